// SPDX-License-Identifier: Apache-2.0

package guestmem

// leafMax bounds the entries of one leaf. A change copies one leaf and the
// list of leaves; with 65535 windows that is 3 KiB + 24 KiB instead of 1.5 MiB.
const leafMax = 128

// entry is one window in the table with its bounds beside the pointer, so that
// the search touches no window but the one it finds.
type entry struct {
	first, last uint64 // inclusive
	w           *window
}

// table is an immutable, sorted, two-level index of disjoint windows.
// Invariant: no leaf is empty, heads[i] == leaves[i][0].first.
type table struct {
	heads  []uint64
	leaves [][]entry
	n      int
}

// leaf returns the index of the last leaf that starts at or before iova, or -1.
func (t *table) leaf(iova uint64) int {
	lo, hi := 0, len(t.heads)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if t.heads[m] <= iova {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// find returns the window that holds iova, or nil.
func (t *table) find(iova uint64) *window {
	i := t.leaf(iova)
	if i < 0 {
		return nil
	}
	l := t.leaves[i]
	lo, hi := 0, len(l)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if l[m].first <= iova {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == 0 || l[lo-1].last < iova {
		return nil
	}
	return l[lo-1].w
}

// overlapping calls f in order for the windows that touch [first, last] until
// f returns false.
func (t *table) overlapping(first, last uint64, f func(*window) bool) {
	i := max(t.leaf(first), 0)
	for ; i < len(t.leaves) && t.heads[i] <= last; i++ {
		for _, e := range t.leaves[i] {
			if e.first > last {
				return
			}
			if e.last >= first && !f(e.w) {
				return
			}
		}
	}
}

// insert returns a table with w added. w must overlap nothing.
func (t *table) insert(w *window) *table {
	e := entry{w.first, w.last, w}
	if len(t.leaves) == 0 {
		return &table{heads: []uint64{e.first}, leaves: [][]entry{{e}}, n: 1}
	}
	i := max(t.leaf(w.first), 0)
	old := t.leaves[i]
	at := 0
	for at < len(old) && old[at].first < e.first {
		at++
	}
	l := make([]entry, 0, len(old)+1)
	l = append(append(append(l, old[:at]...), e), old[at:]...)
	parts := [][]entry{l}
	if len(l) > leafMax {
		h := len(l) / 2
		parts = [][]entry{l[:h:h], l[h:]}
	}
	leaves := make([][]entry, 0, len(t.leaves)+1)
	leaves = append(append(append(leaves, t.leaves[:i]...), parts...), t.leaves[i+1:]...)
	return newTable(leaves, t.n+1)
}

// remove returns a table without the windows wholly inside [first, last], and
// those windows. If a window crosses a bound, it returns crossing true and
// changes nothing.
func (t *table) remove(first, last uint64) (nt *table, gone []*window, crossing bool) {
	t.overlapping(first, last, func(w *window) bool {
		if w.first < first || w.last > last {
			crossing = true
			return false
		}
		gone = append(gone, w)
		return true
	})
	if crossing {
		return t, nil, true
	}
	if len(gone) == 0 {
		return t, nil, false
	}
	leaves := make([][]entry, 0, len(t.leaves))
	for _, l := range t.leaves {
		if l[0].first > last || l[len(l)-1].last < first {
			leaves = joinLeaf(leaves, l)
			continue
		}
		kept := make([]entry, 0, len(l))
		for _, e := range l {
			if e.last < first || e.first > last {
				kept = append(kept, e)
			}
		}
		leaves = joinLeaf(leaves, kept)
	}
	return newTable(leaves, t.n-len(gone)), gone, false
}

// joinLeaf appends l to leaves and merges it into its left neighbour when both
// are small, so that the number of leaves stays in proportion to the windows.
func joinLeaf(leaves [][]entry, l []entry) [][]entry {
	if len(l) == 0 {
		return leaves
	}
	if k := len(leaves) - 1; k >= 0 && len(leaves[k])+len(l) <= leafMax/2 {
		merged := make([]entry, 0, len(leaves[k])+len(l))
		leaves[k] = append(append(merged, leaves[k]...), l...)
		return leaves
	}
	return append(leaves, l)
}

func newTable(leaves [][]entry, n int) *table {
	t := &table{heads: make([]uint64, len(leaves)), leaves: leaves, n: n}
	for i, l := range leaves {
		t.heads[i] = l[0].first
	}
	return t
}

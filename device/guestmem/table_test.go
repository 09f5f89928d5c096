// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"math/rand/v2"
	"testing"
)

// check verifies the invariants of a table.
func (t *table) check(tb testing.TB) {
	tb.Helper()
	n := 0
	var last uint64
	for i, l := range t.leaves {
		if len(l) == 0 || len(l) > leafMax || t.heads[i] != l[0].first {
			tb.Fatalf("leaf %d: %d entries, head %#x", i, len(l), t.heads[i])
		}
		for _, e := range l {
			if n > 0 && e.first <= last {
				tb.Fatalf("entry %#x after %#x", e.first, last)
			}
			if e.w.first != e.first || e.w.last != e.last {
				tb.Fatal("entry bounds differ from the window's")
			}
			last = e.last
			n++
		}
	}
	if n != t.n || len(t.heads) != len(t.leaves) {
		tb.Fatalf("%d entries counted as %d", n, t.n)
	}
}

func TestTableHoldsManyWindows(t *testing.T) {
	const n = 20000
	tab := &table{}
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for _, i := range order {
		first := uint64(i) * 0x3000
		tab = tab.insert(&window{first: first, last: first + 0x1fff})
	}
	tab.check(t)
	if tab.n != n {
		t.Fatalf("%d windows", tab.n)
	}
	for i := range uint64(n) {
		for _, at := range []uint64{0, 0x1000, 0x1fff} {
			if w := tab.find(i*0x3000 + at); w == nil || w.first != i*0x3000 {
				t.Fatalf("window %d not found at %#x", i, at)
			}
		}
		if tab.find(i*0x3000+0x2000) != nil {
			t.Fatalf("found something in the hole after window %d", i)
		}
	}
	for i := range uint64(n) { // thin out: small leaves must merge
		if i%100 == 0 {
			continue
		}
		nt, gone, crossing := tab.remove(i*0x3000, i*0x3000+0x2fff)
		if len(gone) != 1 || crossing {
			t.Fatalf("remove %d: %d gone, crossing %v", i, len(gone), crossing)
		}
		tab = nt
	}
	tab.check(t)
	if max := 2*tab.n/(leafMax/2) + 2; len(tab.leaves) > max {
		t.Fatalf("%d leaves for %d windows, want at most %d", len(tab.leaves), tab.n, max)
	}
}

// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"bytes"
	"encoding/binary"
	"testing"
)

const (
	modelPage  = 4096
	modelPages = 24 // IOVA pages in play
	fuzzPages  = 8  // file pages
)

// model is the obvious implementation: one entry for each page of IOVA.
type model struct {
	page [modelPages]struct {
		window int // 0: none
		file   int
		off    int
		acc    Access
	}
	files [2][fuzzPages * modelPage]byte
	next  int
}

func (m *model) span(first, n int) bool { return n > 0 && first+n <= modelPages }

func (m *model) free(first, n int) bool {
	for i := range n {
		if m.page[first+i].window != 0 {
			return false
		}
	}
	return true
}

// FuzzSpace drives a Space and a model with the same operations.
func FuzzSpace(f *testing.F) {
	f.Add([]byte{0, 0, 4, 0, 3, 2, 1, 9, 0, 40, 3, 1, 9, 0, 40, 1, 0, 4, 0, 0})
	f.Add([]byte{0, 0, 2, 0, 3, 0, 2, 2, 129, 3, 2, 0, 0, 240, 255, 1, 0, 3, 0, 0, 1, 0, 4, 0, 0})
	f.Add([]byte{0, 5, 1, 7, 1, 0, 5, 1, 7, 1, 4, 20, 1, 2, 3, 2, 80, 0, 9, 9})
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := New(Options{Grace: -1})
		defer s.Close()
		m := &model{}
		fds := [2]int{memfd(t, fuzzPages*modelPage), memfd(t, fuzzPages*modelPage)}
		if len(ops) > 5*64 {
			ops = ops[:5*64]
		}
		for ; len(ops) >= 5; ops = ops[5:] {
			m.step(t, s, fds, [5]byte(ops))
			s.table.Load().check(t)
		}
		for i, fd := range fds {
			if !bytes.Equal(pread(t, fd, 0, fuzzPages*modelPage), m.files[i][:]) {
				t.Fatalf("file %d differs from the model", i)
			}
		}
	})
}

func (m *model) step(t *testing.T, s *Space, fds [2]int, op [5]byte) {
	first, n := int(op[1])%modelPages, int(op[2])%8
	iova, size := uint64(first)*modelPage, uint64(n)*modelPage
	switch op[0] % 5 {
	case 0: // map
		file, off, acc := int(op[3]>>7), int(op[3])%fuzzPages, Access(op[4]&3)
		err := s.MapFile(iova, size, fds[file], uint64(off)*modelPage, acc)
		same := m.span(first, n) && off+n <= fuzzPages && m.same(first, n, file, off, acc)
		want := n > 0 && off+n <= fuzzPages && (same || m.freeAll(first, n))
		if (err == nil) != want {
			t.Fatalf("map %d pages at page %d from page %d of file %d: %v, model says %v", n, first, off, file, err, want)
		}
		if want && !same {
			m.next++
			for i := range min(n, modelPages-first) {
				p := &m.page[first+i]
				p.window, p.file, p.off, p.acc = m.next, file, off+i, acc
			}
			if first+n > modelPages { // keep the model small: take it back
				if err := s.Unmap(iova, size); err != nil {
					t.Fatal(err)
				}
				m.drop(m.next)
			}
		}
	case 1: // unmap
		err := s.Unmap(iova, size)
		last := min(first+n, modelPages)
		whole := n > 0
		for i := first; i < last; i++ {
			whole = whole && (m.page[i].window == 0 || m.inside(m.page[i].window, first, last))
		}
		if (err == nil) != whole {
			t.Fatalf("unmap %d pages at page %d: %v, model says %v", n, first, err, whole)
		}
		if whole {
			for i := first; i < last; i++ {
				if w := m.page[i].window; w != 0 {
					m.drop(w)
				}
			}
		}
	case 2, 3: // write, read
		at := (uint64(op[1])<<8 | uint64(op[2])) % (modelPages * modelPage)
		p := make([]byte, int(op[3])<<6)
		m.transfer(t, s, op[0]%5 == 2, at, p, op[4])
	case 4: // fetch and add
		at := (uint64(op[1])<<8 | uint64(op[2])) % (modelPages * modelPage)
		prev, err := s.AddUint64(at, uint64(op[3]))
		b, ok := m.at(at, rw)
		if want := ok && at%8 == 0; (err == nil) != want {
			t.Fatalf("add at %#x: %v, model says %v", at, err, want)
		} else if want {
			if v := binary.LittleEndian.Uint64(b); v != prev {
				t.Fatalf("add at %#x returned %#x, want %#x", at, prev, v)
			}
			binary.LittleEndian.PutUint64(b, prev+uint64(op[3]))
		}
	}
}

func (m *model) transfer(t *testing.T, s *Space, write bool, at uint64, p []byte, seed byte) {
	acc := Read
	want := make([]byte, 0, len(p))
	if write {
		acc = Write
	}
	ok := true
	for i := range p {
		b, mapped := m.at(at+uint64(i), acc)
		ok = ok && mapped
		if ok {
			want = append(want, b[0])
		}
		p[i] = seed + byte(i)
	}
	if !write {
		err := s.ReadAt(p, at)
		if (err == nil) != ok || ok && !bytes.Equal(p, want) {
			t.Fatalf("read of %d at %#x: %v, model says %v", len(p), at, err, ok)
		}
		return
	}
	if err := s.WriteAt(p, at); (err == nil) != ok {
		t.Fatalf("write of %d at %#x: %v, model says %v", len(p), at, err, ok)
	}
	for i := range p {
		if ok {
			b, _ := m.at(at+uint64(i), acc)
			b[0] = p[i]
		}
	}
}

func (m *model) at(iova uint64, acc Access) ([]byte, bool) {
	if iova/modelPage >= modelPages {
		return nil, false
	}
	p := &m.page[iova/modelPage]
	if p.window == 0 || acc&^p.acc != 0 {
		return nil, false
	}
	return m.files[p.file][p.off*modelPage+int(iova%modelPage):], true
}

func (m *model) freeAll(first, n int) bool { return m.free(first, min(n, modelPages-first)) }

func (m *model) same(first, n, file, off int, acc Access) bool {
	w := m.page[first].window
	p := &m.page[first]
	return w != 0 && m.count(w) == n && m.inside(w, first, first+n) && p.file == file && p.off == off && p.acc == acc
}

func (m *model) count(w int) (n int) {
	for i := range m.page {
		if m.page[i].window == w {
			n++
		}
	}
	return n
}

func (m *model) inside(w, first, last int) bool {
	for i := range m.page {
		if m.page[i].window == w && (i < first || i >= last) {
			return false
		}
	}
	return true
}

func (m *model) drop(w int) {
	for i := range m.page {
		if m.page[i].window == w {
			m.page[i].window = 0
		}
	}
}

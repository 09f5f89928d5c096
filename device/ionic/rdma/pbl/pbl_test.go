// SPDX-License-Identifier: Apache-2.0

package pbl

import (
	"bytes"
	"math"
	"testing"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
)

const page = testram.Page

func load(t *testing.T, ram *testram.RAM, b *Budget, count uint32, dma uint64, shift uint8, n uint64) *Map {
	t.Helper()
	m := new(Map)
	if err := m.Load(ram.Space, b, count, dma, shift, n); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMap_OneEntryIsContiguousWhateverThePageSize(t *testing.T) {
	ram := testram.New(t, 1<<20)
	b := NewBudget(10)
	at := ram.Alloc(4*page) + 12
	for _, shift := range []uint8{0, 12, 63, 255} {
		m := load(t, ram, b, 1, at, shift, 3*page)
		if a, n := m.Run(page-5, page); a != at+page-5 || n != page {
			t.Errorf("shift %d: byte %d is at %#x for %d bytes", shift, page-5, a, n)
		}
	}
	if b.Left() != 10 {
		t.Errorf("a contiguous buffer took %d table entries", 10-b.Left())
	}
}

func TestMap_TableOfPages(t *testing.T) {
	ram := testram.New(t, 1<<20)
	b := NewBudget(100)
	p := ram.Alloc(8 * page)
	// Pages 0,1 follow each other, 2 is before them, 3 after.
	table := ram.Table(p+2*page, p+3*page, p, p+5*page)
	m := load(t, ram, b, 4, table, 12, 4*page)
	ram.Write(table, make([]byte, 32)) // the driver frees it

	data := make([]byte, 4*page)
	for i := range data {
		data[i] = byte(i >> 4)
	}
	if err := m.WriteAt(ram.Space, data, 0); err != nil {
		t.Fatal(err)
	}
	if got := ram.Read(p, page); !bytes.Equal(got, data[2*page:3*page]) {
		t.Error("third page is elsewhere")
	}
	got := make([]byte, 2*page+100)
	if err := m.ReadAt(ram.Space, got, page-50); err != nil || !bytes.Equal(got, data[page-50:3*page+50]) {
		t.Errorf("reading over three pages: %v", err)
	}
	if _, n := m.Run(10, 4*page-10); n != 2*page-10 {
		t.Errorf("pages that follow each other are a run of %d bytes", n)
	}
	if b.Left() != 96 {
		t.Errorf("%d entries left", b.Left())
	}
	m.Free(b)
	if b.Left() != 100 {
		t.Errorf("%d entries left after Free", b.Left())
	}
}

func TestMap_ConsecutivePagesNeedNoTable(t *testing.T) {
	ram := testram.New(t, 1<<20)
	b := NewBudget(100)
	p := ram.Alloc(4 * page)
	m := load(t, ram, b, 3, ram.Table(p, p+page, p+2*page), 12, 3*page)
	if _, n := m.Run(0, 3*page); n != 3*page {
		t.Errorf("run of %d bytes", n)
	}
	m.Trim(b)
	if b.Left() != 100 {
		t.Errorf("%d entries left", b.Left())
	}
	// Loaded again, as a fast registration does, from a larger table.
	if err := m.Load(ram.Space, b, 4, ram.Table(p+3*page, p+page, p, p), 12, 3*page+1); err != nil {
		t.Fatal(err)
	}
	if a, _ := m.Run(0, 1); a != p+3*page || b.Left() != 96 {
		t.Errorf("first byte at %#x, %d entries left", a, b.Left())
	}
	if err := m.Load(ram.Space, b, 2, ram.Table(p, p+2*page), 12, 2*page); err != nil || b.Left() != 96 {
		t.Errorf("a smaller table did not use the memory again: %v, %d left", err, b.Left())
	}
}

func TestMap_RefusesWhatCannotBe(t *testing.T) {
	ram := testram.New(t, 1<<20)
	p := ram.Alloc(page)
	for name, c := range map[string]struct {
		count uint32
		dma   uint64
		shift uint8
		n     uint64
	}{
		"no memory":                  {0, p, 12, 1},
		"contiguous past the end":    {1, math.MaxUint64 - 10, 12, 12},
		"page size too small":        {2, p, 11, 1},
		"page size too large":        {2, p, 48, 1},
		"table too short":            {2, p, 12, 2*page + 1},
		"table not mapped":           {2, 0x1000, 12, 2 * page},
		"table leaves the memory":    {1 << 20, testram.Base + 1<<20 - 8, 12, 1 << 30},
		"table past the end":         {1 << 20, math.MaxUint64 - 7, 12, 1 << 30},
		"more pages than the budget": {2000, p, 12, 2000 * page},
		"page past the end":          {2, ram.Table(p, math.MaxUint64-100), 12, 2 * page},
	} {
		b := NewBudget(1000)
		m := new(Map)
		if err := m.Load(ram.Space, b, c.count, c.dma, c.shift, c.n); err == nil {
			t.Errorf("%s: taken", name)
		}
		m.Free(b)
		if b.Left() != 1000 {
			t.Errorf("%s: %d entries are lost", name, 1000-b.Left())
		}
	}
	b := NewBudget(1)
	if m := load(t, ram, b, 5, 0x1234, 7, 0); m == nil {
		t.Error("an empty buffer is refused")
	}
}

// A write that a later page refuses must not have changed an earlier one.
func TestMap_WriteChecksAllPagesFirst(t *testing.T) {
	ram := testram.New(t, 1<<20)
	b := NewBudget(10)
	p := ram.Alloc(page)
	m := load(t, ram, b, 2, ram.Table(p, 0x2000), 12, 2*page)
	if err := m.WriteAt(ram.Space, bytes.Repeat([]byte{1}, 100), page-50); err == nil {
		t.Fatal("written to an unmapped page")
	}
	if got := ram.Read(p, page); !bytes.Equal(got, make([]byte, page)) {
		t.Error("the first page changed")
	}
	if err := m.Check(ram.Space, 0, page, guestmem.Write); err != nil {
		t.Error(err)
	}
	if err := m.Check(ram.Space, 0, page+1, guestmem.Write); err == nil {
		t.Error("check passed an unmapped page")
	}
}

func FuzzMap(f *testing.F) {
	f.Add(uint32(4), uint8(12), uint64(4*page), uint64(100), uint64(8000), []byte{0, 1, 2, 3})
	f.Add(uint32(2), uint8(21), uint64(1<<22), uint64(1<<21-1), uint64(2), []byte{9, 0})
	f.Fuzz(func(t *testing.T, count uint32, shift uint8, n, off, length uint64, order []byte) {
		ram := testram.New(t, 1<<20)
		b := NewBudget(1 << 12)
		pages := make([]uint64, len(order))
		for i, o := range order {
			pages[i] = testram.Base + uint64(o)<<shift
		}
		if len(pages) == 0 || len(pages) > 512 {
			return
		}
		m := new(Map)
		err := m.Load(ram.Space, b, count, ram.Table(pages...), shift, n)
		if err != nil {
			m.Free(b)
		} else if off < n && length > 0 && length <= n-off && length < 1<<20 {
			// Run by run, every byte must be where the table says.
			for at := off; at < off+length; {
				addr, run := m.Run(at, off+length-at)
				if run == 0 {
					t.Fatalf("run of nothing at %d", at)
				}
				if count > 1 && int(at>>shift) < len(pages) {
					if want := pages[at>>shift] + at&(1<<shift-1); addr != want {
						t.Fatalf("byte %d is at %#x, want %#x", at, addr, want)
					}
				}
				at += run
			}
		}
		m.Free(b)
		if b.Left() != 1<<12 {
			t.Fatalf("%d entries are lost", 1<<12-b.Left())
		}
	})
}

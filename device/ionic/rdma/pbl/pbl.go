// SPDX-License-Identifier: Apache-2.0

// Package pbl translates byte offsets of a buffer to guest addresses, from the
// page buffer list with which the driver describes rings and memory regions:
//
//	map_count 0   no memory
//	map_count 1   dma_addr is the first byte, the buffer is contiguous
//	map_count n   dma_addr is a table of n little-endian 64-bit page addresses
//
// The table belongs to the driver and is freed when the command completes, so
// it is copied. Tables whose pages follow each other are kept as one address.
package pbl

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// Page size limits of a table, log2 of bytes.
const (
	MinShift = 12
	MaxShift = 47
)

// Budget bounds the table entries that all maps of a device keep. The zero
// value has none.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of n entries of 8 bytes.
func NewBudget(n int64) *Budget {
	b := new(Budget)
	b.left.Store(n)
	return b
}

func (b *Budget) take(n int) bool {
	if b.left.Add(-int64(n)) >= 0 {
		return true
	}
	b.left.Add(int64(n))
	return false
}

func (b *Budget) give(n int) { b.left.Add(int64(n)) }

// Left is the number of entries nobody holds.
func (b *Budget) Left() int64 { return b.left.Load() }

// Map is a buffer in guest memory. The zero value has no memory. It is
// immutable between Load, Contiguous and Free, and safe for concurrent use
// meanwhile.
type Map struct {
	base  uint64   // address of byte 0 if pages is empty
	pages []uint64 // its capacity is charged to the budget
	shift uint8
}

// Contiguous makes m the bytes from base on.
func (m *Map) Contiguous(base uint64) {
	m.base, m.pages, m.shift = base, m.pages[:0], 0
}

// Free gives the table back to the budget.
func (m *Map) Free(b *Budget) {
	b.give(cap(m.pages))
	*m = Map{}
}

var scratch = sync.Pool{New: func() any { return new([4096]byte) }}

// Load makes m the first n bytes of the buffer described by count, dma and
// shift (log2 of the page size, meaningless unless count > 1), reading the
// table from mem. Memory of an earlier table of m is used again when it is
// large enough. On error m has no memory.
func (m *Map) Load(mem *guestmem.Space, b *Budget, count uint32, dma uint64, shift uint8, n uint64) error {
	m.Contiguous(0)
	switch {
	case n == 0:
		return nil
	case count == 0:
		return fmt.Errorf("buffer of %d bytes has no memory (map_count 0)", n)
	case count == 1:
		if n-1 > math.MaxUint64-dma {
			return fmt.Errorf("buffer of %d bytes at %#x passes the end of the address space", n, dma)
		}
		m.base = dma
		return nil
	case shift < MinShift || shift > MaxShift:
		return fmt.Errorf("page size 2^%d of a page table is outside 2^%d to 2^%d", shift, MinShift, MaxShift)
	}
	need := (n-1)>>shift + 1
	if need > uint64(count) {
		return fmt.Errorf("page table has %d pages of 2^%d bytes, the buffer of %d bytes needs %d", count, shift, n, need)
	}
	if err := m.room(b, int(need)); err != nil {
		return err
	}
	if err := m.read(mem, dma, shift); err != nil {
		m.Contiguous(0)
		return err
	}
	m.shift = shift
	m.compact()
	return nil
}

func (m *Map) room(b *Budget, n int) error {
	if cap(m.pages) < n {
		b.give(cap(m.pages))
		m.pages = nil
		if !b.take(n) {
			return fmt.Errorf("no room for %d page table entries", n)
		}
		m.pages = make([]uint64, n)
	}
	m.pages = m.pages[:n]
	return nil
}

func (m *Map) read(mem *guestmem.Space, dma uint64, shift uint8) error {
	buf := scratch.Get().(*[4096]byte)
	defer scratch.Put(buf)
	size := uint64(1) << shift
	for i := 0; i < len(m.pages); {
		k := min(len(m.pages)-i, len(buf)/8)
		at := dma + uint64(i)*8
		if at < dma {
			return fmt.Errorf("page table at %#x passes the end of the address space", dma)
		}
		if err := mem.ReadAt(buf[:k*8], at); err != nil {
			return fmt.Errorf("page table at %#x: %w", dma, err)
		}
		for j := range k {
			p := binary.LittleEndian.Uint64(buf[j*8:])
			if p > math.MaxUint64-(size-1) {
				return fmt.Errorf("page %d at %#x of 2^%d bytes passes the end of the address space", i+j, p, shift)
			}
			m.pages[i+j] = p
		}
		i += k
	}
	return nil
}

// compact drops the table when its pages follow each other. A table that will
// be loaded again (fast registration) keeps its capacity.
func (m *Map) compact() {
	for i := 1; i < len(m.pages); i++ {
		if m.pages[i] != m.pages[i-1]+1<<m.shift {
			return
		}
	}
	m.base = m.pages[0]
	m.pages = m.pages[:0]
	m.shift = 0
}

// Trim gives the capacity of an unused table back to the budget.
func (m *Map) Trim(b *Budget) {
	if len(m.pages) == 0 && cap(m.pages) > 0 {
		b.give(cap(m.pages))
		m.pages = nil
	}
}

// Run returns the address of byte off and how many bytes from there, at most
// n, are contiguous in guest address space. The caller guarantees that
// [off, off+n) lies inside the loaded buffer.
func (m *Map) Run(off, n uint64) (addr, run uint64) {
	if len(m.pages) == 0 {
		return m.base + off, n
	}
	size := uint64(1) << m.shift
	i := off >> m.shift
	in := off & (size - 1)
	addr = m.pages[i] + in
	run = size - in
	for run < n && m.pages[i+1] == m.pages[i]+size {
		run += size
		i++
	}
	return addr, min(run, n)
}

// ReadAt copies len(p) bytes from offset off into p.
func (m *Map) ReadAt(mem *guestmem.Space, p []byte, off uint64) error {
	for len(p) > 0 {
		addr, n := m.Run(off, uint64(len(p)))
		if err := mem.ReadAt(p[:n], addr); err != nil {
			return err
		}
		p = p[n:]
		off += n
	}
	return nil
}

// WriteAt copies p to offset off. All of the range is checked before the first
// byte changes.
func (m *Map) WriteAt(mem *guestmem.Space, p []byte, off uint64) error {
	addr, n := m.Run(off, uint64(len(p)))
	if n == uint64(len(p)) {
		return mem.WriteAt(p, addr)
	}
	if err := m.Check(mem, off, uint64(len(p)), guestmem.Write); err != nil {
		return err
	}
	for {
		if err := mem.WriteAt(p[:n], addr); err != nil {
			return err
		}
		p = p[n:]
		off += n
		if len(p) == 0 {
			return nil
		}
		addr, n = m.Run(off, uint64(len(p)))
	}
}

// Check reports whether guest memory backs [off, off+n) with the rights acc.
func (m *Map) Check(mem *guestmem.Space, off, n uint64, acc guestmem.Access) error {
	for n > 0 {
		addr, run := m.Run(off, n)
		if err := mem.Check(addr, run, acc); err != nil {
			return err
		}
		off += run
		n -= run
	}
	return nil
}

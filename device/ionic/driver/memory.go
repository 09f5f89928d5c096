// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"

	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// PageSize is the guest's page size in bytes.
const PageSize = 4096

// freedByte fills memory that belongs to nobody.
const freedByte = 0xdb

// DMA is a physically contiguous piece of guest memory.
type DMA struct {
	IOVA uint64 // bus address, page aligned
	Size int    // bytes, as asked for
	ram  *vfioclient.RAM
}

// Bytes returns the memory.
func (d DMA) Bytes() []byte { return d.ram.Bytes(d.IOVA, uint64(d.Size)) }

// Load32 reads an aligned little-endian word at byte off with acquire order.
func (d DMA) Load32(off int) uint32 { return d.ram.LoadUint32(d.IOVA + uint64(off)) }

// Load64 reads an aligned little-endian double word at byte off with acquire order.
func (d DMA) Load64(off int) uint64 { return d.ram.LoadUint64(d.IOVA + uint64(off)) }

// Memory hands out the pages of a guest. It may be used from any goroutine.
// Contiguous pieces come from the windows in turn, so that addresses above
// 4 GiB are as common as those below.
type Memory struct {
	ram *vfioclient.RAM

	mu      sync.Mutex
	bump    []uint64         // next unused bus address of each window
	free    map[int][]uint64 // freed pieces by their number of pages
	turn    int
	late    error // first write to freed memory that was found
	inUse   int   // pages
	noGuard bool
}

func newMemory(ram *vfioclient.RAM) *Memory {
	m := &Memory{ram: ram, free: make(map[int][]uint64)}
	for _, w := range ram.Windows() {
		start := w.IOVA
		if start == 0 {
			start = PageSize // address 0 means "none" in several places
		}
		m.bump = append(m.bump, start)
	}
	return m
}

// SetGuard turns the check for writes to freed memory on or off; it is on at
// first. Benchmarks turn it off.
func (m *Memory) SetGuard(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noGuard = !on
}

// RAM returns the memory that the pieces are parts of.
func (m *Memory) RAM() *vfioclient.RAM { return m.ram }

// InUse returns how many pages are allocated.
func (m *Memory) InUse() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inUse
}

func pagesOf(size int) int { return (size + PageSize - 1) / PageSize }

// Alloc returns a zeroed contiguous piece of at least size bytes, page aligned.
func (m *Memory) Alloc(size int) (DMA, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	iova, err := m.take(pagesOf(size))
	if err != nil {
		return DMA{}, err
	}
	d := DMA{IOVA: iova, Size: size, ram: m.ram}
	clear(m.ram.Bytes(iova, uint64(pagesOf(size)*PageSize)))
	return d, nil
}

// Pages returns n zeroed pages that are not contiguous, as those of a user
// process are.
func (m *Memory) Pages(n int) ([]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]uint64, n)
	for i := range out {
		// Every second page is taken from the end, so that neighbours in the
		// list are no neighbours in memory even in a single window.
		at := i
		if i%2 == 1 {
			at = n - n%2 - i
		}
		p, err := m.take(1)
		if err != nil {
			return nil, err
		}
		clear(m.ram.Bytes(p, PageSize))
		out[at] = p
	}
	return out, nil
}

// take returns n contiguous pages with whatever is in them; m is locked.
func (m *Memory) take(n int) (uint64, error) {
	if n <= 0 {
		return 0, fmt.Errorf("driver: allocation of %d pages", n)
	}
	if f := m.free[n]; len(f) > 0 {
		iova := f[0]
		m.free[n] = f[1:]
		m.checkFreed(iova, n)
		m.inUse += n
		return iova, nil
	}
	size := uint64(n * PageSize)
	windows := m.ram.Windows()
	for range windows {
		i := m.turn % len(windows)
		m.turn++
		if w := windows[i]; m.bump[i]+size <= w.IOVA+w.Size {
			iova := m.bump[i]
			m.bump[i] += size
			m.inUse += n
			return iova, nil
		}
	}
	return 0, fmt.Errorf("driver: the guest is out of memory: %d pages wanted, %d in use", n, m.inUse)
}

// Free gives a piece back. Whatever the device writes to it from here on is a
// mistake, which is found when the piece is used again or by Check.
func (m *Memory) Free(d DMA) {
	if d.Size == 0 {
		return
	}
	m.put(d.IOVA, pagesOf(d.Size))
}

// FreePages gives pages back.
func (m *Memory) FreePages(pages []uint64) {
	for _, p := range pages {
		m.put(p, 1)
	}
}

func (m *Memory) put(iova uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.noGuard {
		b := m.ram.Bytes(iova, uint64(n*PageSize))
		for i := range b {
			b[i] = freedByte
		}
	}
	m.inUse -= n
	m.free[n] = append(m.free[n], iova)
}

// checkFreed looks for writes to n free pages; m is locked.
func (m *Memory) checkFreed(iova uint64, n int) {
	if m.noGuard || m.late != nil {
		return
	}
	b := m.ram.Bytes(iova, uint64(n*PageSize))
	if i := firstWrite(b); i >= 0 {
		m.late = fmt.Errorf("driver: the device wrote %#02x to freed memory at %#x", b[i], iova+uint64(i))
	}
}

// Check looks through all freed memory for late writes of the device.
func (m *Memory) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, pieces := range m.free {
		for _, iova := range pieces {
			m.checkFreed(iova, n)
		}
	}
	return m.late
}

// firstWrite returns the index of the first byte that is not the pattern of
// freed memory, or -1.
func firstWrite(b []byte) int {
	for i, v := range b {
		if v != freedByte {
			return i
		}
	}
	return -1
}

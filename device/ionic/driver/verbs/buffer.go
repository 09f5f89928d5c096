// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// Buffer is memory of a context's user: a process has virtual addresses over
// pages from anywhere, the kernel has bus addresses.
type Buffer struct {
	VA  uint64 // address of the first byte
	Len int    // bytes

	mem    *driver.Memory
	offset int      // of the first byte in the first page
	pages  []uint64 // bus addresses
	whole  driver.DMA
	chunks [][]byte // the pages' bytes
}

// NewBuffer makes a zeroed buffer. In a process it starts offset bytes into a
// page and its pages are not neighbours; in the kernel it is contiguous.
func (c *Context) NewBuffer(size, offset int) (*Buffer, error) {
	if size < 1 || offset < 0 || offset >= driver.PageSize {
		return nil, fmt.Errorf("verbs: buffer of %d bytes at page offset %d", size, offset)
	}
	if c.kernel {
		return c.newContiguous(size, offset)
	}
	pages, err := c.d.mem.Pages((offset + size + driver.PageSize - 1) / driver.PageSize)
	if err != nil {
		return nil, err
	}
	b := &Buffer{Len: size, mem: c.d.mem, offset: offset, pages: pages}
	b.setVA(c)
	for _, p := range pages {
		b.chunks = append(b.chunks, b.mem.RAM().Bytes(p, driver.PageSize))
	}
	return b, nil
}

// NewContiguousBuffer makes a zeroed buffer whose pages are neighbours, as a
// large allocation of a process tends to be.
func (c *Context) NewContiguousBuffer(size int) (*Buffer, error) { return c.newContiguous(size, 0) }

func (c *Context) newContiguous(size, offset int) (*Buffer, error) {
	whole, err := c.d.mem.Alloc(offset + size)
	if err != nil {
		return nil, err
	}
	b := &Buffer{Len: size, mem: c.d.mem, offset: offset, whole: whole}
	for at := 0; at < offset+size; at += driver.PageSize {
		b.pages = append(b.pages, whole.IOVA+uint64(at))
		b.chunks = append(b.chunks, b.mem.RAM().Bytes(whole.IOVA+uint64(at), driver.PageSize))
	}
	b.setVA(c)
	return b, nil
}

// setVA gives the buffer its virtual address: a range of its own, with a hole after.
func (b *Buffer) setVA(c *Context) {
	if c.kernel {
		b.VA = b.pages[0] + uint64(b.offset)
		return
	}
	span := uint64(len(b.pages)+1) * driver.PageSize
	b.VA = c.nextVA.Add(span) - span + uint64(b.offset)
}

// Free gives the memory back. The device must have no key for it any more.
func (b *Buffer) Free() {
	if b.whole.Size > 0 {
		b.mem.Free(b.whole)
	} else {
		b.mem.FreePages(b.pages)
	}
	b.chunks = nil
}

// each calls f with the pieces of n bytes at off.
func (b *Buffer) each(off, n int, f func([]byte)) {
	if off < 0 || n < 0 || off+n > b.Len {
		panic(fmt.Sprintf("verbs: %d bytes at %d of a buffer of %d", n, off, b.Len))
	}
	for at := b.offset + off; n > 0; {
		p := b.chunks[at/driver.PageSize][at%driver.PageSize:]
		p = p[:min(len(p), n)]
		f(p)
		at, n = at+len(p), n-len(p)
	}
}

// Write copies p to the buffer at off.
func (b *Buffer) Write(off int, p []byte) {
	b.each(off, len(p), func(to []byte) { p = p[copy(to, p):] })
}

// Read copies n bytes of the buffer at off.
func (b *Buffer) Read(off, n int) []byte {
	out := make([]byte, 0, n)
	b.each(off, n, func(from []byte) { out = append(out, from...) })
	return out
}

// Load64 reads the aligned little-endian double word at off with acquire order.
func (b *Buffer) Load64(off int) uint64 {
	at := b.offset + off
	return b.mem.RAM().LoadUint64(b.pages[at/driver.PageSize] + uint64(at%driver.PageSize))
}

// SGE returns a scatter-gather element of n bytes at off with a key.
func (b *Buffer) SGE(off, n int, key uint32) SGE {
	return SGE{Addr: b.VA + uint64(off), Length: uint32(n), LKey: key}
}

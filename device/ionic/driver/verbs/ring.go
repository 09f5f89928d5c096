// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// ring is a queue in guest memory. Positions are indexes of entries.
type ring struct {
	depthLog2, strideLog2 int
	mask                  int
	mem                   *driver.Memory
	pages                 []uint64 // bus address of each page; one entry if contiguous
	chunks                [][]byte // the pages' bytes
	chunkLog2             int      // log2 of the bytes of one chunk
	whole                 driver.DMA
}

// newRing makes a ring for at least entries requests: the kernel and the
// provider round up to a power of two above entries, and to at least a page.
func newRing(m *driver.Memory, entries, strideLog2 int, contiguous bool) (*ring, error) {
	r := &ring{strideLog2: strideLog2, mem: m}
	r.depthLog2 = max(ceilLog2(entries+1), pageLog2-strideLog2)
	if r.depthLog2 > 16 || strideLog2 > 16 {
		return nil, fmt.Errorf("verbs: ring of %d entries of %d bytes is too large", entries, 1<<strideLog2)
	}
	r.mask = 1<<r.depthLog2 - 1
	size := 1 << (r.depthLog2 + strideLog2)
	if contiguous {
		whole, err := m.Alloc(size)
		if err != nil {
			return nil, err
		}
		r.whole, r.pages, r.chunks = whole, []uint64{whole.IOVA}, [][]byte{whole.Bytes()}
		r.chunkLog2 = r.depthLog2 + strideLog2
		return r, nil
	}
	pages, err := m.Pages(size / driver.PageSize)
	if err != nil {
		return nil, err
	}
	r.pages, r.chunkLog2 = pages, pageLog2
	for _, p := range pages {
		r.chunks = append(r.chunks, m.RAM().Bytes(p, driver.PageSize))
	}
	return r, nil
}

func (r *ring) release() {
	if r.whole.Size > 0 {
		r.mem.Free(r.whole)
	} else {
		r.mem.FreePages(r.pages)
	}
	r.chunks = nil
}

// at returns entry i.
func (r *ring) at(i int) []byte {
	off := i << r.strideLog2
	in := off & (1<<r.chunkLog2 - 1)
	return r.chunks[off>>r.chunkLog2][in : in+1<<r.strideLog2]
}

// lastWord reads the last big-endian word of entry i with acquire order.
func (r *ring) lastWord(i int) uint32 {
	off := i<<r.strideLog2 + 1<<r.strideLog2 - 4
	iova := r.pages[off>>r.chunkLog2] + uint64(off&(1<<r.chunkLog2-1))
	return swap32(r.mem.RAM().LoadUint32(iova))
}

func swap32(v uint32) uint32 { return v<<24 | v>>24 | v<<8&0xff0000 | v>>8&0xff00 }

func (r *ring) next(i int) int { return (i + 1) & r.mask }

// buffer describes memory to the device: its address if it is one piece, else
// a table of page addresses that lives until release.
type buffer struct {
	count    uint32
	address  uint64
	pageLog2 uint8
	table    driver.DMA
}

func (b *buffer) release(m *driver.Memory) { m.Free(b.table) }

// describe returns the ring's buffer description.
func (r *ring) describe() (buffer, error) {
	if r.whole.Size > 0 {
		return buffer{count: 1, address: r.whole.IOVA}, nil
	}
	return describePages(r.mem, r.pages, pageLog2)
}

func describePages(m *driver.Memory, pages []uint64, pageSizeLog2 int) (buffer, error) {
	b := buffer{count: uint32(len(pages)), pageLog2: uint8(pageSizeLog2)}
	if len(pages) == 1 {
		b.address = pages[0]
		return b, nil
	}
	table, err := m.Alloc(8 * len(pages))
	if err != nil {
		return b, err
	}
	t := table.Bytes()
	for i, p := range pages {
		le.PutUint64(t[8*i:], p)
	}
	b.table, b.address = table, table.IOVA
	return b, nil
}

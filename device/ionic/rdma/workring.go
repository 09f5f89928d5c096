// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"fmt"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

// workRing is the SQ or RQ of a QP: entries the guest writes and the device
// only reads.
type workRing struct {
	pages  pbl.Map
	mask   uint32
	stride uint8 // log2

	prod atomic.Uint32 // as the guest rang it
	next atomic.Uint32 // first entry not fetched; moved under the QP's lock

	// The entry fetched last, copied once so that the guest cannot change it
	// between check and use. Under the QP's lock.
	entry [1 << maxStrideLog2]byte
	index uint32 // of entry; beyond mask when there is none
}

// noEntry is the index of no entry.
const noEntry = 1 << 16

// init makes r the ring that d describes.
func (r *workRing) init(l *lif, d *abi.RingDesc) error {
	if d.DepthLog2 < 1 || d.DepthLog2 > 16 || d.StrideLog2 < 6 || d.StrideLog2 > maxStrideLog2 {
		return fmt.Errorf("2^%d entries of 2^%d bytes", d.DepthLog2, d.StrideLog2)
	}
	size := uint64(1) << (d.DepthLog2 + d.StrideLog2)
	if err := r.pages.Load(l.mem, l.budget, d.MapCount, d.DMA, d.PageSizeLog2, size); err != nil {
		return err
	}
	r.pages.Trim(l.budget)
	r.mask, r.stride, r.index = 1<<d.DepthLog2-1, d.StrideLog2, noEntry
	return r.pages.Check(l.mem, 0, size, guestmem.Read)
}

// produce takes a doorbell.
func (r *workRing) produce(index uint16) { r.prod.Store(uint32(index) & r.mask) }

// reset empties the ring. The QP fetches nothing meanwhile.
func (r *workRing) reset() {
	r.prod.Store(0)
	r.next.Store(0)
	r.index = noEntry
}

// fetch copies the next entry and returns it with its index; ok is false when
// there is none. readable is false when guest memory does not hold the ring
// any more.
func (r *workRing) fetch(mem *guestmem.Space) (entry []byte, index uint32, readable, ok bool) {
	index = r.next.Load()
	if index == r.prod.Load() {
		return nil, 0, false, false
	}
	r.next.Store((index + 1) & r.mask)
	entry = r.entry[:1<<r.stride]
	r.index = index
	if r.pages.ReadAt(mem, entry, uint64(index)<<r.stride) != nil {
		r.index = noEntry
		return entry, index, false, true
	}
	return entry, index, true, true
}

// read copies bytes from offset off of entry index.
func (r *workRing) read(mem *guestmem.Space, p []byte, index uint32, off uint64) error {
	if index == r.index {
		copy(p, r.entry[off:])
		return nil
	}
	return r.pages.ReadAt(mem, p, uint64(index)<<r.stride+off)
}

// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// rxFetch is how many posted descriptors are read from guest memory at once.
// The driver does not change a descriptor it has posted.
const rxFetch = 32

// rxQueue is one receive queue. The goroutines that receive from the port fill
// its buffers.
type rxQueue struct {
	ring
	index int

	// Guarded by mu.
	descs   [rxFetch * abi.RxDescSize]byte
	fetched uint32 // descriptors in descs
	taken   uint32 // of these, already used
	sg      [abi.RxSGDescSize]byte
}

func newRxQueue(l *LIF, i int) *rxQueue {
	q := &rxQueue{index: i}
	q.bank = l.cfg.Bank
	return q
}

// doorbell records how far the driver has posted buffers.
func (q *rxQueue) doorbell(index uint32) { q.prod.Store(index) }

// init takes the rings of a checked Q_INIT. Holds LIF.ctl.
func (q *rxQueue) init(c *abi.QInit, mem *guestmem.Space) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setup(c, mem)
	q.fetched, q.taken = 0, 0
}

// enable and disable are Q_CONTROL. Hold LIF.ctl.
func (q *rxQueue) enable() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Store(uint32(qEnabled))
}

func (q *rxQueue) disable() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if qState(q.state.Load()) == qEnabled {
		q.post()
		q.state.Store(uint32(qInitialised))
	}
}

// delivered is the result of deliver when the guest got the frame. No counter
// has this number.
const delivered = abi.LIFStatEthEnd

// deliver puts a frame into the next posted buffer and completes it. c carries
// what the completion says about the frame. The result is delivered, or the
// counter of what went wrong. Every descriptor that is taken is completed, in
// order: a completion out of order stops the driver's queue for good.
func (q *rxQueue) deliver(f rxFrame, c *abi.RxCompletion) abi.LIFStat {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running() {
		return abi.RxQueueDisabled
	}
	if q.avail() == 0 {
		return abi.RxQueueEmpty
	}
	slot := q.cons
	d, ok := q.next()
	result := abi.RxDescFetchError
	if ok {
		c.SGs, result = q.fill(f, &d, slot)
	}
	c.Index, c.Len = uint16(slot), uint16(f.len())
	if result != delivered {
		*c = abi.RxCompletion{Status: abi.RxStatusError, Index: c.Index, Len: c.Len}
	}
	if q.complete(c.Words(false)) != nil {
		return abi.RxDMAError
	}
	return result
}

// next takes the descriptor at cons. ok is false if it cannot be read.
func (q *rxQueue) next() (d abi.RxDesc, ok bool) {
	if q.taken == q.fetched {
		n := min(q.avail(), rxFetch, q.mask+1-q.cons)
		if q.mem.ReadAt(q.descs[:n*abi.RxDescSize], q.ring.descs+uint64(q.cons)*abi.RxDescSize) != nil {
			q.cons = (q.cons + 1) & q.mask
			return d, false
		}
		q.fetched, q.taken = n, 0
	}
	d = abi.DecodeRxDesc(q.descs[q.taken*abi.RxDescSize:])
	q.taken++
	q.cons = (q.cons + 1) & q.mask
	return d, true
}

// fill writes the frame to the descriptor's buffers, never past their ends, and
// returns how many scatter-gather elements it used.
func (q *rxQueue) fill(f rxFrame, d *abi.RxDesc, slot uint32) (sgs uint8, result abi.LIFStat) {
	if d.Op > abi.RxSG || d.Len == 0 {
		return 0, abi.RxDescDataError
	}
	if f.len() > int(d.Len) && (d.Op != abi.RxSG || q.sgs == 0) {
		return 0, abi.RxDescDataError // larger than the buffer
	}
	if !q.put(&f, d.Addr, int(d.Len)) {
		return 0, abi.RxDMAError
	}
	if f.len() == 0 {
		return 0, delivered
	}
	if q.mem.ReadAt(q.sg[:], q.sgs+uint64(slot)*abi.RxSGDescSize) != nil {
		return 0, abi.RxDescFetchError
	}
	for i := range abi.RxMaxSG {
		e := abi.DecodeSGElem(q.sg[:], i)
		if e.Len == 0 {
			break
		}
		if !q.put(&f, e.Addr, int(e.Len)) {
			return 0, abi.RxDMAError
		}
		sgs++
		if f.len() == 0 {
			return sgs, delivered
		}
	}
	return 0, abi.RxDescDataError
}

// put moves up to n bytes from the front of the frame to guest memory.
func (q *rxQueue) put(f *rxFrame, addr uint64, n int) bool {
	for _, part := range [...]*[]byte{&f.head, &f.body} {
		k := min(len(*part), n)
		if k == 0 {
			continue
		}
		if q.mem.WriteAt((*part)[:k], addr) != nil {
			return false
		}
		*part = (*part)[k:]
		addr += uint64(k)
		n -= k
	}
	return true
}

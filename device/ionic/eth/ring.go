// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/intr"
)

// qState is the state of a queue.
//
//	        Q_INIT              Q_CONTROL enable
//	none ----------> initialised ----------------> enabled
//	  ^                  ^  ^  ------- Q_CONTROL disable --'
//	  |                  |  `-- Q_INIT: new rings, indices at 0
//	  `-- LIF_RESET, RESET, FLR, detach (from any state)
//
// Disabling keeps all indices and the colour. Doorbells are remembered from
// initialised on.
type qState uint32

const (
	qNone qState = iota
	qInitialised
	qEnabled
)

func (s qState) String() string {
	switch s {
	case qInitialised:
		return "initialised"
	case qEnabled:
		return "enabled"
	}
	return "none"
}

// ring is a descriptor ring with its completion ring.
type ring struct {
	prod  atomic.Uint32 // next slot the driver will fill, from the doorbell
	state atomic.Uint32 // a qState; changed under mu, read by the doorbell without

	mu sync.Mutex // guards what follows, and every access to the rings
	// dma is the bus master bit.
	dma      bool
	mem      *guestmem.Space
	bank     *intr.Bank
	vec      int
	mask     uint32 // entries - 1
	descs    uint64 // DMA addresses
	comps    uint64
	sgs      uint64
	cons     uint32 // next slot to take
	comp     uint32 // next completion to write
	color    bool
	unposted int // completions whose interrupt is still owed
}

// ready reports whether the queue has been initialised.
func (r *ring) ready() bool { return qState(r.state.Load()) != qNone }

// running reports whether work may be done. Holds mu.
func (r *ring) running() bool { return r.dma && qState(r.state.Load()) == qEnabled }

// avail returns the number of slots the driver has filled and we have not
// taken. Holds mu.
func (r *ring) avail() uint32 { return (r.prod.Load() - r.cons) & r.mask }

// setup takes new rings; everything about the old ones is forgotten. Holds mu.
func (r *ring) setup(q *abi.QInit, mem *guestmem.Space) {
	r.mem = mem
	r.vec = int(q.Intr)
	r.mask = 1<<q.RingLog2 - 1
	r.descs, r.comps, r.sgs = q.Ring, q.CQ, q.SG
	r.cons, r.comp, r.color, r.unposted = 0, 0, true, 0
	r.prod.Store(0)
	r.state.Store(uint32(qInitialised))
}

// clear forgets the queue. No work is under way when it returns.
func (r *ring) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Store(uint32(qNone))
	r.mem, r.unposted = nil, 0
}

// setDMA follows the bus master bit.
func (r *ring) setDMA(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dma = on
}

// complete publishes one completion: first quadword, then the second with the
// colour. Its interrupt is owed until post. Holds mu.
func (r *ring) complete(lo, hi uint64) error {
	at := r.comps + uint64(r.comp)*abi.CompletionSize
	if r.color {
		hi |= abi.ColorBit
	}
	r.comp = (r.comp + 1) & r.mask
	if r.comp == 0 {
		r.color = !r.color
	}
	if err := r.mem.StoreUint64(at, lo); err != nil {
		return err
	}
	if err := r.mem.StoreUint64(at+8, hi); err != nil {
		return err
	}
	r.unposted++
	return nil
}

// post raises the interrupt for the completions since the last call. Holds mu.
func (r *ring) post() {
	if r.unposted > 0 {
		r.bank.Post(r.vec, r.unposted)
		r.unposted = 0
	}
}

// flush waits for the work under way and raises the interrupt for what was
// completed since the last flush.
func (r *ring) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.post()
}

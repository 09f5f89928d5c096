// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

type kind uint8

const (
	region  kind = iota // CREATE_MR with memory
	fast                // CREATE_MR for fast registration
	window1             // memory window type 1
	window2             // memory window type 2
)

func (k kind) isWindow() bool { return k == window1 || k == window2 }

// closed is what users holds, beside the count, while nobody may enter.
const closed = -1 << 40

// entry is a memory region or window.
type entry struct {
	users atomic.Int64 // accesses under way, plus closed while there may be none

	mu   sync.Mutex // serialises changes of what follows; guards open
	open bool       // entry is valid
	gone bool       // destroyed; never opens again

	kind kind
	pd   uint32

	// Written while closed, read with a use or with mu.
	key    uint8
	access uint16 // MR flags bits 0-5
	va     uint64 // first address
	length uint64
	offset uint64 // of va in pages, or of the window in its parent
	pages  pbl.Map
	life   uint32 // registrations of a region so far: a window outlives none

	parent     *entry // of a bound window
	parentLife uint32
	qp         uint32 // that bound a type 2 window
}

// enter takes a use, false while the entry is invalid.
func (t *Table) enter(e *entry) bool {
	if e.users.Add(1) > 0 {
		return true
	}
	t.leave(e)
	return false
}

// leave gives a use back.
func (t *Table) leave(e *entry) {
	if e.users.Add(-1) == closed {
		t.mu.Lock()
		t.idle.Broadcast()
		t.mu.Unlock()
	}
}

// shut lets nobody in any more and waits for those inside. Caller holds e.mu
// and no use of any entry.
func (t *Table) shut(e *entry) {
	if !e.open {
		return
	}
	e.open = false
	if e.users.Add(closed) == closed {
		return
	}
	t.mu.Lock()
	for e.users.Load() != closed {
		t.idle.Wait()
	}
	t.mu.Unlock()
}

// admit lets users in. Caller holds e.mu.
func (e *entry) admit() {
	if !e.open {
		e.open = true
		e.users.Add(-closed)
	}
}

// first is the address peers and WQEs use for the first byte.
func (e *entry) first() uint64 {
	if e.access&abi.MRZeroBased != 0 {
		return 0
	}
	return e.va
}

// locate gives the distance of [va, va+n) from the start of the entry.
func (e *entry) locate(va, n uint64) (uint64, bool) {
	first := e.first()
	if va < first {
		return 0, false
	}
	d := va - first
	return d, d <= e.length && n <= e.length-d
}

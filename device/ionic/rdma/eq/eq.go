// SPDX-License-Identifier: Apache-2.0

// Package eq is an RDMA event queue: a ring of 4-byte entries in guest memory,
// bound to one interrupt vector.
//
//	device                    guest
//	  | EQE, one 32-bit store   |
//	  |------------------------>|
//	  | interrupt               |  reads entries until the colour is old
//	  |------------------------>|
//	  |             UNMASK      |
//	  |<------------------------|
//
// The driver never says how far it has read. What was in the ring when an
// interrupt was raised has been read when the guest unmasks the vector again,
// because the handler drains the ring before it unmasks. The queue therefore
// remembers the producer index at the raise (mark) and takes it for the
// consumer index (safe) at the next unmask. Entries that would overwrite
// unread ones wait here.
package eq

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// maxHeld bounds the events that wait, beyond those of completion queues,
// which wait at most once each.
const maxHeld = 1 << 16

// Interrupts raises interrupts; Post must neither block nor allocate.
type Interrupts interface {
	// Post adds credits events to vector vec.
	Post(vec, credits int)
}

// Config describes an event queue (RDMA_CREATE_EQ).
type Config struct {
	ID        uint32
	Vector    int
	DepthLog2 uint8
	Base      uint64 // guest address of the contiguous ring, 4-byte aligned
	Memory    *guestmem.Space
	Interrupt Interrupts
	Totals    *Totals // counts for all queues of a device
}

// Totals are counters that outlive their queues.
type Totals struct {
	Waited atomic.Uint64 // events that had to wait for the guest to read others
	Lost   atomic.Uint64 // events dropped: ring not writable, or too many held
}

type event struct {
	e      abi.EQE
	posted *atomic.Bool // cleared when the event reaches the ring; may be nil
}

// Queue is an event queue. All methods are safe for concurrent use.
type Queue struct {
	Config
	mask uint64

	mu      sync.Mutex // guards all below
	stopped bool
	prod    uint64 // entries written, running freely
	safe    uint64 // entries the guest has certainly read
	mark    uint64 // producer at the last interrupt the guest can have seen
	armed   bool   // the vector was unmasked with nothing new: the next event interrupts
	held    []event
	first   int // of held
}

// New returns an empty queue. The ring must be writable memory.
func New(c Config) (*Queue, error) {
	size := uint64(abi.EQELen) << c.DepthLog2
	switch {
	case c.DepthLog2 < 1 || c.DepthLog2 > 16:
		return nil, fmt.Errorf("event queue %d: depth 2^%d is outside 2^1 to 2^16", c.ID, c.DepthLog2)
	case c.Base%abi.EQELen != 0:
		return nil, fmt.Errorf("event queue %d: ring at %#x is not aligned to %d bytes", c.ID, c.Base, abi.EQELen)
	}
	if err := c.Memory.Check(c.Base, size, guestmem.Write); err != nil {
		return nil, fmt.Errorf("event queue %d: %w", c.ID, err)
	}
	return &Queue{Config: c, mask: 1<<c.DepthLog2 - 1}, nil
}

// Post writes an event and interrupts, or holds the event back while the ring
// is full of entries that may be unread. posted, if not nil, says that the
// event is on its way and need not be posted again: it is set while the event
// is held.
func (q *Queue) Post(e abi.EQE, posted *atomic.Bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopped:
	case q.first == len(q.held) && q.room():
		q.write(e)
	case posted != nil:
		if !posted.Swap(true) {
			q.hold(event{e, posted})
		}
	case len(q.held)-q.first < maxHeld:
		q.hold(event{e, nil})
	default:
		q.Totals.Lost.Add(1)
	}
}

func (q *Queue) room() bool { return q.prod-q.safe < q.mask }

func (q *Queue) hold(e event) {
	q.Totals.Waited.Add(1)
	if len(q.held) == cap(q.held) && 2*q.first >= len(q.held) && q.first > 0 {
		// The room of those that have gone, before more room is taken.
		n := copy(q.held, q.held[q.first:])
		clear(q.held[n:])
		q.held, q.first = q.held[:n], 0
	}
	q.held = append(q.held, e)
}

// write puts an entry into the ring and interrupts.
func (q *Queue) write(e abi.EQE) {
	word := e.Word()
	if q.prod&(q.mask+1) == 0 {
		word |= 1 // colour of the odd laps, counted from one
	}
	at := q.Base + (q.prod&q.mask)*abi.EQELen
	if q.Memory.StoreUint32(at, bits.ReverseBytes32(word)) != nil {
		q.Totals.Lost.Add(1)
		return
	}
	q.prod++
	if q.armed {
		q.armed = false
		q.mark = q.prod
	}
	q.Interrupt.Post(q.Vector, 1)
}

// Unmasking is called when the guest unmasks the vector, before the vector can
// interrupt again: the guest has read what the last interrupt told it of.
func (q *Queue) Unmasking() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	seen := q.mark
	q.safe, q.armed = seen, false
	for q.first < len(q.held) && q.room() {
		h := q.held[q.first]
		q.held[q.first] = event{}
		q.first++
		if h.posted != nil {
			h.posted.Store(false)
		}
		q.write(h.e)
	}
	if q.first == len(q.held) {
		q.held, q.first = q.held[:0], 0
	}
	// What came since the last interrupt interrupts as soon as the vector is
	// open; if nothing came, the next event will.
	q.armed = q.prod == seen
	q.mark = q.prod
}

// Stop ends the queue: when it returns, nothing is written and nothing
// interrupts any more.
func (q *Queue) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.held, q.first = nil, 0
}

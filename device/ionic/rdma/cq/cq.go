// SPDX-License-Identifier: Apache-2.0

// Package cq is a completion queue: a ring of 32-byte entries in guest memory
// that tells an event queue when the guest has asked for it.
//
//	QPs --Post--> [held back] --> ring in guest memory --> guest
//	                  ^                |
//	   ring-0 doorbell (consumer)      +-- armed? --> event queue
//
// A full ring is never overwritten: entries wait in order until the guest's
// consumer index makes room. Waiting entries do not exist yet for anybody.
package cq

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/eq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

// Config describes a completion queue (CREATE_CQ, RDMA_CREATE_CQ).
type Config struct {
	ID        uint32
	DBID      uint16 // doorbell page, 0 for the kernel's own queues
	DepthLog2 uint8
	Ring      pbl.Map // of 32 << DepthLog2 bytes, entries 4-byte aligned
	Memory    *guestmem.Space
	Events    *eq.Queue
	// Room bounds the entries that all queues of a device hold back.
	Room *atomic.Int64
	// Totals counts for all queues of a device.
	Totals *Totals
	// Drain is called, without a lock, when the guest has made room for held
	// entries: Drain of the queue must then be called on another goroutine.
	Drain func()
}

// Totals are counters that outlive their queues.
type Totals struct {
	Waited    atomic.Uint64 // completions that were held back
	Lost      atomic.Uint64 // completions dropped after an overflow or a memory fault
	Overflows atomic.Uint64 // queues that overflowed or lost their memory
}

// maxHeld bounds the entries one queue holds back.
const maxHeld = 1 << 18

// arm bits, as asked for by doorbells.
const (
	armAny       = 1 << 0
	armSolicited = 1 << 1
)

// Stats of a queue.
type Stats struct {
	Written uint64 // entries
	Waited  uint64 // entries that were held back
	Lost    uint64 // entries dropped after an overflow or a memory fault
	Events  uint64 // notifications
}

// Queue is a completion queue. All methods are safe for concurrent use.
type Queue struct {
	Config
	mask   uint64
	users  atomic.Int32 // QPs and admin queues bound to it
	posted atomic.Bool  // the notification waits in the event queue

	// Set by doorbells without a lock.
	cons atomic.Uint32 // consumer index
	arms atomic.Uint32 // arm bits not looked at yet
	wait atomic.Int64  // entries held back

	mu      sync.Mutex // guards all below; held for a few memory writes at most
	stopped bool
	broken  bool   // overflow or memory fault; nothing is written any more
	prod    uint64 // entries written, running freely
	armed   uint32 // arm bits in force
	urgent  uint64 // one more than the index of the last solicited or failed entry
	held    fifo
	entry   [abi.CQELen]byte
	stats   Stats
}

// New returns an empty queue.
func New(c Config) (*Queue, error) {
	if c.DepthLog2 < 1 || c.DepthLog2 > 16 {
		return nil, fmt.Errorf("completion queue %d: depth 2^%d is outside 2^1 to 2^16", c.ID, c.DepthLog2)
	}
	q := &Queue{Config: c, mask: 1<<c.DepthLog2 - 1}
	for off := uint64(0); off < c.bytes(); {
		at, run := c.Ring.Run(off, c.bytes()-off)
		if at%4 != 0 {
			return nil, fmt.Errorf("completion queue %d: ring memory at %#x is not aligned to 4 bytes", c.ID, at)
		}
		off += run
	}
	if err := c.Ring.Check(c.Memory, 0, c.bytes(), guestmem.Write); err != nil {
		return nil, fmt.Errorf("completion queue %d: %w", c.ID, err)
	}
	if c.DBID != 0 {
		// libionic sends the arm of ibv_req_notify_cq with the next poll or
		// post; a program that does neither before it sleeps would never wake.
		// One event too many at the first completion is harmless.
		q.armed = armAny
	}
	return q, nil
}

// bytes is the size of the ring.
func (c *Config) bytes() uint64 { return abi.CQELen << c.DepthLog2 }

// Use counts a QP or admin queue that completes here; Unuse takes it back.
func (q *Queue) Use() { q.users.Add(1) }

// Unuse ends a Use.
func (q *Queue) Unuse() { q.users.Add(-1) }

// InUse reports whether somebody completes here.
func (q *Queue) InUse() bool { return q.users.Load() > 0 }

// Post writes a completion, or holds it back while the ring is full. urgent
// says that it is solicited, or an error. It reports whether the completion
// will reach the guest.
func (q *Queue) Post(c *abi.CQE, urgent bool) bool {
	q.mu.Lock()
	ok := q.post(c, urgent)
	q.mu.Unlock()
	q.look()
	return ok
}

// PostFailed writes the completion of a failed request and, behind it, the
// flush of its queue. A consumer that sees the first finds the second there
// too: libionic, asked for one completion at a time, forgets to flush unless
// the CQ holds more than the failed one. It reports whether both will reach the
// guest.
func (q *Queue) PostFailed(c, flush *abi.CQE) bool {
	q.mu.Lock()
	ok := q.postFailed(c, flush)
	q.mu.Unlock()
	q.look()
	return ok
}

func (q *Queue) postFailed(c, flush *abi.CQE) bool {
	if q.stopped || q.broken || q.held.len() > 0 || q.space() < 2 {
		// A full ring may tear them apart; nothing more can be done.
		return q.post(c, true) && q.post(flush, true)
	}
	flush.Put(q.entry[:])
	if !q.place(q.prod + 1) {
		return false
	}
	c.Put(q.entry[:])
	if !q.place(q.prod) {
		return false
	}
	q.advance(2, true)
	return true
}

func (q *Queue) post(c *abi.CQE, urgent bool) bool {
	if q.stopped {
		return false
	}
	if q.broken {
		q.lose(1)
		return false
	}
	if q.held.len() == 0 && q.room() {
		c.Put(q.entry[:])
		return q.write(urgent)
	}
	if q.held.len() >= maxHeld || q.Room.Add(-1) < 0 {
		if q.held.len() < maxHeld {
			q.Room.Add(1)
		}
		q.lose(1)
		q.fail()
		return false
	}
	q.stats.Waited++
	q.Totals.Waited.Add(1)
	c.Put(q.held.push(urgent)[:])
	q.wait.Add(1)
	// The guest may have moved on between the check and the announcement.
	q.drain()
	return true
}

// room reports whether the ring has a free slot.
func (q *Queue) room() bool { return q.space() > 0 }

// space is the number of free slots of the ring.
func (q *Queue) space() uint64 { return q.mask - (q.prod-uint64(q.cons.Load()))&q.mask }

// write puts q.entry into the ring, then the event.
func (q *Queue) write(urgent bool) bool {
	if !q.place(q.prod) {
		return false
	}
	q.advance(1, urgent)
	return true
}

// place puts q.entry into the slot of index: all but the last word, then the
// last word with the colour.
func (q *Queue) place(index uint64) bool {
	off := (index & q.mask) * abi.CQELen
	if index&(q.mask+1) == 0 {
		q.entry[abi.CQELen-1] |= abi.CQEColor // of the odd laps, counted from one
	}
	err := q.Ring.WriteAt(q.Memory, q.entry[:abi.CQETail], off)
	if err == nil {
		at, _ := q.Ring.Run(off+abi.CQETail, 4)
		err = q.Memory.StoreUint32(at, binary.LittleEndian.Uint32(q.entry[abi.CQETail:]))
	}
	if err != nil {
		q.lose(1)
		q.fail()
	}
	return err == nil
}

// advance counts n entries that are in their slots, and notifies the guest.
func (q *Queue) advance(n uint64, urgent bool) {
	q.prod += n
	q.stats.Written += n
	if urgent {
		q.urgent = q.prod
	}
	if q.armed&armAny != 0 || urgent && q.armed&armSolicited != 0 {
		q.fire()
	}
}

// fire notifies the guest and disarms.
func (q *Queue) fire() {
	q.armed = 0
	q.stats.Events++
	q.Events.Post(abi.EQE{Type: abi.EventCQ, Code: abi.EventCQNotify, QID: q.ID}, &q.posted)
}

// fail ends the use of the ring: the guest hears of it and nothing more is
// written, so that what is lost is not lost silently.
func (q *Queue) fail() {
	q.broken = true
	q.Totals.Overflows.Add(1)
	q.lose(q.drop())
	q.Events.Post(abi.EQE{Type: abi.EventCQ, Code: abi.EventCQError, QID: q.ID}, nil)
}

// lose counts completions the guest will not see.
func (q *Queue) lose(n int) {
	q.stats.Lost += uint64(n)
	q.Totals.Lost.Add(uint64(n))
}

// drop forgets the held entries and tells how many there were.
func (q *Queue) drop() int {
	n := q.held.len()
	q.held = fifo{}
	q.wait.Store(0)
	q.Room.Add(int64(n))
	return n
}

// drain writes held entries while there is room.
func (q *Queue) drain() {
	for q.held.len() > 0 && q.room() {
		h := q.held.pop()
		q.Room.Add(1)
		q.wait.Add(-1)
		q.entry = h.b
		if !q.write(h.urgent) {
			return
		}
	}
}

// Drain writes what was held back and has room now.
func (q *Queue) Drain() {
	q.mu.Lock()
	if !q.stopped && !q.broken {
		q.drain()
	}
	q.mu.Unlock()
	q.look()
}

// Doorbell takes a doorbell: the consumer index (ring 0) or an arm request
// (ring 1, 2). It never waits: if the queue is being written, the writer looks
// at the request when it is done.
func (q *Queue) Doorbell(d abi.Doorbell) bool {
	switch d.Ring {
	case abi.RingIndex:
		q.cons.Store(uint32(d.Index) & uint32(q.mask))
		if q.wait.Load() > 0 {
			q.Config.Drain()
		}
		return true
	case abi.RingArm:
		q.arms.Or(armAny)
	case abi.RingSolicited:
		q.arms.Or(armSolicited)
	default:
		return false
	}
	q.look()
	return true
}

// look puts arm requests in force unless somebody else is about to.
func (q *Queue) look() {
	for q.arms.Load() != 0 && q.mu.TryLock() {
		q.arm(q.arms.Swap(0))
		q.mu.Unlock()
	}
}

// arm puts arm bits in force. The guest arms after it has said how far it has
// read and does not look again, so an entry it has not read fires at once.
func (q *Queue) arm(asked uint32) {
	if q.stopped || q.broken {
		return
	}
	q.armed |= asked
	unread := (q.prod - uint64(q.cons.Load())) & q.mask
	if unread == 0 {
		return
	}
	if q.armed&armAny != 0 || q.urgent > q.prod-unread {
		q.fire()
	}
}

// Purge forgets the held entries of queue qid: after a reset or the end of a
// QP no completion of it may appear any more.
func (q *Queue) Purge(qid uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.held.remove(func(b *[abi.CQELen]byte) bool {
		return uint32(b[28])<<16|uint32(b[29])<<8|uint32(b[30]) == qid
	})
	q.wait.Add(-int64(n))
	q.Room.Add(int64(n))
}

// Stop ends the queue: when it returns, nothing is written any more.
func (q *Queue) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.drop()
}

// Stats returns what the queue did.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

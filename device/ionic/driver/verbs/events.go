// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// Event ring: 511 events asked for, 1024 in a page.
const (
	eqEntries    = 511
	eqStrideLog2 = 2

	eventCQ = 0
	eventQP = 1

	eventCQNotify = 0

	// Budgets of the interrupt handler and of its work item.
	eqIRQBudget  = 10
	eqWorkBudget = 1000
)

// Codes of queue pair events.
const (
	EventSQDrained = 1
	EventCommEst   = 2
	EventFatal     = 8
	EventRequest   = 9
	EventAccess    = 10
)

// eventQueue is one event queue with its vector.
type eventQueue struct {
	d    *Device
	id   uint32
	ring *ring
	intr *driver.Intr

	mu     sync.Mutex // guards what follows
	next   int
	colour uint32
}

// QPEvent is an asynchronous event of a queue pair.
type QPEvent struct {
	QPN  uint32
	Code uint8
}

type qpEvents struct {
	sync.Mutex
	list    []QPEvent
	changed chan struct{} // closed and replaced at each event
}

func (d *Device) createEQs() error {
	n := min(d.nic.Sizes().EventQs, int(d.EQ.Count), maxEQs)
	if n < minEQs {
		return fmt.Errorf("%d event queues, the driver needs at least %d", n, minEQs)
	}
	for i := range n {
		eq, err := d.createEQ(uint32(i))
		if err != nil {
			return fmt.Errorf("event queue %d: %w", i, err)
		}
		d.eqs = append(d.eqs, eq)
	}
	return nil
}

func (d *Device) createEQ(id uint32) (*eventQueue, error) {
	r, err := newRing(d.mem, eqEntries, eqStrideLog2, true)
	if err != nil {
		return nil, err
	}
	eq := &eventQueue{d: d, id: id, ring: r, colour: 1}
	if eq.intr, err = d.nic.AllocIntr(eq.interrupt); err != nil {
		return nil, err
	}
	eq.intr.Mask()
	eq.intr.SetMaskAssert()
	eq.intr.SetCoalesce(0)
	eq.intr.CleanCredits()
	if err := eq.intr.Request(); err != nil {
		return nil, err
	}
	if err := d.createQueue(opRDMACreateEQ, id, uint32(eq.intr.Index), r); err != nil {
		return nil, err
	}
	eq.intr.Unmask()
	return eq, nil
}

// interrupt is the handler of the vector and the work item it leaves a full
// budget to: the credits of a finished poll are not returned.
func (eq *eventQueue) interrupt() {
	for budget := eqIRQBudget; ; budget = eqWorkBudget {
		n := eq.poll(budget)
		if n < budget {
			eq.intr.ReturnCredits(0, driver.CreditUnmask)
			return
		}
		eq.intr.ReturnCredits(n, 0)
	}
}

func (eq *eventQueue) poll(budget int) (n int) {
	eq.mu.Lock()
	defer eq.mu.Unlock()
	for ; n < budget; n++ {
		e := eq.ring.lastWord(eq.next)
		if e&1 != eq.colour {
			return n
		}
		if eq.next = eq.ring.next(eq.next); eq.next == 0 {
			eq.colour ^= 1
		}
		eq.d.dispatch(e>>8, e>>1&7, uint8(e>>4&0xf))
	}
	return n
}

// drain takes the events that are in the ring: those of a queue that was
// destroyed come before the completion of its destruction.
func (eq *eventQueue) drain() { eq.poll(eq.ring.mask + 1) }

// dispatch delivers one event. Events of unknown queues are ignored: the queue
// may have gone while the event was in the ring.
func (d *Device) dispatch(id, kind uint32, code uint8) {
	switch kind {
	case eventCQ:
		if d.aq != nil && id == d.aq.cqID {
			d.aq.notified()
			return
		}
		cq := d.cqs.get(id)
		switch {
		case cq == nil:
			d.strays.Add(1)
		case code == eventCQNotify:
			cq.notified()
		default:
			d.fault("completion queue %d: event code %d: completion queue error", id, code)
		}
	case eventQP:
		d.events.Lock()
		defer d.events.Unlock()
		d.events.list = append(d.events.list, QPEvent{id, code})
		close(d.events.changed)
		d.events.changed = make(chan struct{})
	default:
		d.fault("event of unknown type %d, queue %d", kind, id)
	}
}

// QPEvents returns the queue pair events so far and a channel that closes at
// the next.
func (d *Device) QPEvents() ([]QPEvent, <-chan struct{}) {
	d.events.Lock()
	defer d.events.Unlock()
	return append([]QPEvent(nil), d.events.list...), d.events.changed
}

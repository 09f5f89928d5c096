// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	cqStrideLog2 = 5
	// cqGrace is how many entries a completion queue has beyond what was asked
	// for; completions of flushes go there.
	cqGrace = 100

	ringArm       = 1
	ringSolicited = 2

	cqeColour = 1 << 0
	cqeError  = 1 << 1

	cqeAdmin   = 0
	cqeRecv    = 1
	cqeSendMSN = 2
	cqeSendNPG = 3

	// cleanedID marks completions of a queue pair that is gone.
	cleanedID = 0xffffff
)

// CQ is a completion queue: two queues of the device.
type CQ struct {
	c    *Context
	half [numUDMA]*halfCQ
	turn int
	mu   sync.Mutex // guards turn

	events atomic.Uint64
	event  chan struct{} // capacity 1: at least one event came
}

// halfCQ is one of the device's queues of a completion queue.
type halfCQ struct {
	cq     *CQ
	id     uint32
	ring   *ring
	arms   atomic.Uint64 // arm doorbells so far
	fires  atomic.Uint64 // events so far
	strict bool          // an event without an arm is a mistake (the kernel warns)
	eq     *eventQueue

	mu       sync.Mutex // guards what follows, taken before a queue pair's locks
	next     int        // completion to read
	colour   uint32
	told     int // position that the device was told last
	credit   int // completions that may be asked for before it must be told again
	pending  int // work requests retired since (provider)
	armAny   int
	armSol   int
	deferred bool // an arm waits for the next poll or post (provider)
	solOnly  bool
	toPoll   []*QP // send queues with completions that are known but not read
	flushSQ  []*QP
	flushRQ  []*QP
}

// CreateCQ makes a completion queue for entries completions. vector chooses the
// event queues.
func (c *Context) CreateCQ(entries, vector int) (*CQ, error) {
	if entries < 1 || entries+cqGrace > 0xffff {
		return nil, fmt.Errorf("verbs: completion queue of %d entries", entries)
	}
	cq := &CQ{c: c, event: make(chan struct{}, 1)}
	for udma := range cq.half {
		h, err := c.createHalf(cq, entries, vector, udma)
		if err != nil {
			return nil, fmt.Errorf("verbs: create completion queue: %w", err)
		}
		cq.half[udma] = h
	}
	return cq, nil
}

func (c *Context) createHalf(cq *CQ, entries, vector, udma int) (*halfCQ, error) {
	d := c.d
	r, err := newRing(d.mem, entries+cqGrace, cqStrideLog2, c.kernel)
	if err != nil {
		return nil, err
	}
	h := &halfCQ{cq: cq, ring: r, colour: 1, credit: r.mask, strict: c.kernel}
	d.mu.Lock()
	h.id, err = d.cqIDs.take(udma)
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	buf, err := r.describe()
	if err != nil {
		return nil, err
	}
	defer buf.release(d.mem)
	h.eq = d.eqs[(vector%(len(d.eqs)/2-1)+1)*2+udma]
	b := make([]byte, 34)
	le.PutUint32(b[0:], h.eq.id)
	b[4], b[5], b[7] = uint8(r.depthLog2), cqStrideLog2, buf.pageLog2
	le.PutUint32(b[12:], h.id)
	le.PutUint32(b[16:], 0xffffffff)
	le.PutUint32(b[20:], buf.count)
	le.PutUint64(b[24:], buf.address)
	le.PutUint16(b[32:], uint16(c.pid))
	d.cqs.set(h.id, h)
	if err := d.command(admCreateCQ, b); err != nil {
		d.cqs.del(h.id)
		return nil, err
	}
	return h, nil
}

// ID returns the device's id of one half.
func (cq *CQ) ID(udma int) uint32 { return cq.half[udma].id }

// Destroy destroys the queue, which no queue pair uses any more. The device
// writes no completion to it after.
func (cq *CQ) Destroy() error {
	d := cq.c.d
	for udma := numUDMA - 1; udma >= 0; udma-- {
		h := cq.half[udma]
		if err := d.command(admDestroyCQ, le.AppendUint32(nil, h.id)); err != nil {
			return fmt.Errorf("verbs: destroy completion queue %d: %w", h.id, err)
		}
		h.eq.drain() // the next queue with this id must not get its events
		d.cqs.del(h.id)
		h.ring.release()
		d.mu.Lock()
		d.cqIDs.put(h.id)
		d.mu.Unlock()
	}
	return nil
}

// notified takes a completion event.
func (h *halfCQ) notified() {
	fires, arms := h.fires.Add(1), h.arms.Load()
	// A user's queue may start armed; see the arming rules of the device.
	if h.strict && fires > arms || fires > arms+1 {
		h.cq.c.d.fault("completion queue %d: event %d with %d arms: the kernel warns of an unsolicited event", h.id, fires, arms)
	}
	h.cq.events.Add(1)
	select {
	case h.cq.event <- struct{}{}:
	default:
	}
}

// Events returns how many completion events came.
func (cq *CQ) Events() uint64 { return cq.events.Load() }

// Arm asks for one event at the next completion, or at the next solicited or
// failed one. As in the provider, a user's queue is armed by the next Poll, post
// send or post receive that touches it, and not before.
func (cq *CQ) Arm(solicitedOnly bool) {
	for _, h := range cq.half {
		h.mu.Lock()
		if cq.c.kernel {
			h.sync()
			h.arm(solicitedOnly)
		} else {
			h.solOnly = solicitedOnly && (!h.deferred || h.solOnly)
			h.deferred = true
		}
		h.mu.Unlock()
	}
}

// arm rings the arm doorbell; h is locked.
func (h *halfCQ) arm(solicitedOnly bool) {
	h.arms.Add(1)
	if solicitedOnly {
		h.armSol = h.ring.next(h.armSol)
		h.bell(ringSolicited, h.armSol)
		return
	}
	h.armAny = h.ring.next(h.armAny)
	h.bell(ringArm, h.armAny)
}

func (h *halfCQ) bell(ringNo, index int) { h.cq.c.ring(h.cq.c.d.CQ, h.id, ringNo, index) }

// sync tells the device how far completions were read; h is locked.
func (h *halfCQ) sync() {
	if h.next == h.told {
		return
	}
	if h.cq.c.kernel {
		h.credit += (h.next - h.told) & h.ring.mask
	} else {
		h.credit += h.pending
		h.pending = 0
	}
	h.told = h.next
	h.bell(0, h.told)
}

// reserve accounts for spend new work requests before their doorbell; h is locked.
func (h *halfCQ) reserve(spend int) {
	h.credit -= spend
	if h.credit <= 0 || h.deferred {
		h.sync()
	}
	if h.deferred {
		h.deferred = false
		h.arm(h.solOnly)
	}
}

// Wait waits for a completion event.
func (cq *CQ) Wait(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-cq.event:
		return nil
	case <-timer.C:
		return fmt.Errorf("verbs: no completion event in %v", timeout)
	case <-cq.c.d.nic.Failed():
		return cq.c.d.nic.Err()
	}
}

// Poll reads completions into wc and returns their number. An error means that
// the queue is wedged for good.
func (cq *CQ) Poll(wc []WC) (int, error) {
	cq.mu.Lock()
	first := cq.turn
	cq.turn ^= numUDMA - 1
	cq.mu.Unlock()
	n := 0
	for i := range cq.half {
		if n == len(wc) {
			break
		}
		m, err := cq.half[i^first].poll(wc[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// poll reads one half: first what is known of send queues, then new
// completions, then flushes.
func (h *halfCQ) poll(wc []WC) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.reserve(0)

	for len(h.toPoll) > 0 && n < len(wc) {
		qp := h.toPoll[0]
		m, more := qp.retire(h, wc[n:])
		n += m
		if more {
			break
		}
		h.toPoll = h.toPoll[1:]
		qp.listed.poll = false
	}
	for n < len(wc) {
		qtf := h.ring.lastWord(h.next)
		if qtf&cqeColour != h.colour {
			break
		}
		m, err := h.take(h.ring.at(h.next), qtf, wc[n:])
		if err != nil {
			return n, h.cq.c.d.wedge("completion queue %d entry %d: %w", h.id, h.next, err)
		}
		n += m
		if h.next = h.ring.next(h.next); h.next == 0 {
			h.colour ^= 1
		}
	}
	return n + h.pollFlush(wc[n:]), nil
}

// take reads one completion; h is locked.
func (h *halfCQ) take(cqe []byte, qtf uint32, wc []WC) (int, error) {
	id, kind := qtf>>8, qtf>>5&7
	if id == cleanedID {
		return 0, nil
	}
	qp := h.cq.c.d.qps.get(id)
	if qp == nil {
		return 0, fmt.Errorf("completion of queue pair %d, which does not exist: it came after the queue pair was destroyed", id)
	}
	if bad := qtf & 0x1c; bad != 0 {
		return 0, fmt.Errorf("queue pair %d: reserved bits %#x", id, bad)
	}
	switch kind {
	case cqeRecv:
		return qp.receive(h, cqe, qtf, wc)
	case cqeSendMSN:
		if err := qp.completeMSN(cqe, qtf); err != nil {
			return 0, err
		}
	case cqeSendNPG:
		if err := qp.completeNPG(cqe, qtf); err != nil {
			return 0, err
		}
	default:
		return 0, fmt.Errorf("queue pair %d: completion type %d", id, kind)
	}
	n, more := qp.retire(h, wc)
	if more && !qp.listed.poll {
		qp.listed.poll = true
		h.toPoll = append(h.toPoll, qp)
	}
	return n, nil
}

// pollFlush completes what is left on flushed queues; h is locked.
func (h *halfCQ) pollFlush(wc []WC) (n int) {
	for len(h.flushSQ) > 0 && n < len(wc) {
		qp := h.flushSQ[0]
		n += qp.flushSends(wc[n:])
		if n == len(wc) {
			return n
		}
		h.flushSQ, qp.listed.flushSQ = h.flushSQ[1:], false
	}
	for len(h.flushRQ) > 0 && n < len(wc) {
		qp := h.flushRQ[0]
		n += qp.flushReceives(wc[n:])
		if n == len(wc) {
			return n
		}
		h.flushRQ, qp.listed.flushRQ = h.flushRQ[1:], false
	}
	return n
}

// listFlush puts a queue pair's send or receive queue on the list of flushed
// ones; h is locked.
func (h *halfCQ) listFlush(qp *QP, send bool) {
	switch {
	case send && !qp.listed.flushSQ:
		qp.listed.flushSQ = true
		h.flushSQ = append(h.flushSQ, qp)
	case !send && !qp.listed.flushRQ:
		qp.listed.flushRQ = true
		h.flushRQ = append(h.flushRQ, qp)
	}
}

// clean removes the completions of a queue pair that was reset or destroyed.
func (h *halfCQ) clean(qp *QP) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, colour := h.next, h.colour; ; {
		qtf := h.ring.lastWord(at)
		if qtf&cqeColour != colour {
			break
		}
		if qtf>>8 == qp.QPN {
			be.PutUint32(h.ring.at(at)[28:], qtf|cleanedID<<8)
		}
		if at = h.ring.next(at); at == 0 {
			colour ^= 1
		}
		if at == h.next {
			break
		}
	}
	if h == qp.sendHalf {
		h.toPoll, h.flushSQ = without(h.toPoll, qp), without(h.flushSQ, qp)
		qp.listed.poll, qp.listed.flushSQ = false, false
	}
	if h == qp.recvHalf {
		h.flushRQ, qp.listed.flushRQ = without(h.flushRQ, qp), false
	}
}

func without(list []*QP, qp *QP) []*QP {
	out := list[:0]
	for _, q := range list {
		if q != qp {
			out = append(out, q)
		}
	}
	return out
}

// PollN polls until n completions came, or says after the timeout what is missing.
func (cq *CQ) PollN(n int, timeout time.Duration) ([]WC, error) {
	out := make([]WC, n)
	got := 0
	deadline := time.Now().Add(timeout)
	for spins := 0; ; spins++ {
		m, err := cq.Poll(out[got:])
		got += m
		switch {
		case err != nil:
			return out[:got], err
		case got == n:
			return out, nil
		case cq.c.d.nic.Err() != nil:
			return out[:got], cq.c.d.nic.Err()
		}
		if spins > 100 {
			if time.Now().After(deadline) {
				return out[:got], fmt.Errorf("verbs: %d of %d completions in %v: %s", got, n, timeout, cq.stuck())
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// stuck describes the queue pairs that wait for completions on this queue.
func (cq *CQ) stuck() string {
	s := ""
	cq.c.d.qps.m.Range(func(_, v any) bool {
		qp := v.(*QP)
		if qp.sendCQ == cq || qp.recvCQ == cq {
			s += qp.String() + "; "
		}
		return true
	})
	return s
}

// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
)

// sendQueue is the consumer's view of a send queue. Requests are retired in
// ring order: a remote one when the message number has passed it, a local one
// when its own completion came.
type sendQueue struct {
	ring *ring

	mu       sync.Mutex // guards what follows
	prod     int
	cons     int
	rung     int // prod at the last doorbell
	colour   bool
	meta     []sendMeta
	msnIndex []int // ring index of each message, by its number modulo the ring
	msnProd  int   // messages posted, modulo the ring
	msnCons  int   // messages complete, modulo the ring
	flushing bool
	flushed  bool // the device's flush completion came
}

// sendMeta is what the consumer remembers of a request.
type sendMeta struct {
	id       uint64
	op       Operation
	length   uint32
	status   Status
	msn      int // messages posted before it, modulo the ring
	remote   bool
	local    bool // its own completion came
	signaled bool
}

func (q *sendQueue) init() {
	n := q.ring.mask + 1
	q.meta, q.msnIndex, q.colour = make([]sendMeta, n), make([]int, n), true
}

func (q *sendQueue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.prod, q.cons, q.rung, q.msnProd, q.msnCons = 0, 0, 0, 0, 0
	q.flushing, q.flushed = false, false
}

// ready reports whether the oldest request is complete; q is locked.
func (q *sendQueue) ready() bool {
	if q.flushing || q.cons == q.prod {
		return false
	}
	m := &q.meta[q.cons]
	if m.remote {
		return m.msn != q.msnCons
	}
	return m.local
}

// describe says what the queue waits for; q is locked.
func (q *sendQueue) describe() string {
	s := fmt.Sprintf("send queue %d..%d, message %d of %d", q.cons, q.prod, q.msnCons, q.msnProd)
	if q.cons != q.prod && !q.flushing {
		if q.meta[q.cons].remote {
			s += ", waits for a message completion"
		} else {
			s += ", waits for the local completion of its oldest request"
		}
	}
	if q.flushing || q.flushed {
		s += ", flushing"
	}
	return s
}

// completeMSN takes a message completion: all messages up to its number are
// complete. A number that repeats or runs ahead wedges the consumers.
func (qp *QP) completeMSN(cqe []byte, qtf uint32) error {
	q := &qp.sq
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushing {
		return nil
	}
	number, mask := be.Uint32(cqe[4:]), q.ring.mask
	msn := int(number) & mask
	posted, done := (q.msnProd-q.msnCons)&mask, (msn-1-q.msnCons)&mask
	if done >= posted {
		return fmt.Errorf("queue pair %d: message number %d: %d messages complete and %d posted, modulo %d: it repeats or runs ahead",
			qp.QPN, number, q.msnCons, q.msnProd, mask+1)
	}
	q.msnCons = msn
	if qtf&cqeError != 0 {
		m := &q.meta[q.msnIndex[(msn-1)&mask]]
		m.status = Status(be.Uint32(cqe[24:]))
		if m.status == Success {
			return fmt.Errorf("queue pair %d: message number %d failed with status 0", qp.QPN, number)
		}
	}
	return nil
}

// completeNPG takes the completion of one local request, or the flush of the queue.
func (qp *QP) completeNPG(cqe []byte, qtf uint32) error {
	q := &qp.sq
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushing {
		return nil
	}
	status := Status(be.Uint32(cqe[24:]))
	if qtf&cqeError != 0 && status == Flushed {
		q.flushed = true
		return nil
	}
	id := le.Uint64(cqe[16:])
	index := int(id) & q.ring.mask
	switch {
	case id > uint64(q.ring.mask):
		return fmt.Errorf("queue pair %d: local completion of request %#x in a ring of %d", qp.QPN, id, q.ring.mask+1)
	case (index-q.cons)&q.ring.mask >= (q.prod-q.cons)&q.ring.mask:
		return fmt.Errorf("queue pair %d: local completion of request %d, outstanding are %d..%d", qp.QPN, index, q.cons, q.prod)
	}
	m := &q.meta[index]
	if m.local {
		return fmt.Errorf("queue pair %d: second local completion of request %d", qp.QPN, index)
	}
	if m.remote && qtf&cqeError == 0 {
		return fmt.Errorf("queue pair %d: local completion of request %d, which is a message: it would never retire", qp.QPN, index)
	}
	m.local = true
	if qtf&cqeError != 0 {
		m.status, m.remote = status, false
	}
	return nil
}

// retire reads completions of requests that are complete, in ring order. more
// says that there was no room for all that can be read. h is locked.
func (qp *QP) retire(h *halfCQ, wc []WC) (n int, more bool) {
	q := &qp.sq
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(wc) && q.ready() {
		m := &q.meta[q.cons]
		if got := le.Uint64(q.ring.at(q.cons)); got != uint64(q.cons) {
			qp.c.d.fault("queue pair %d: the device wrote to send request %d", qp.QPN, q.cons)
		}
		q.cons = q.ring.next(q.cons)
		h.pending++
		if m.status == Success && !m.signaled {
			continue
		}
		wc[n] = WC{ID: m.id, QPN: qp.QPN, Status: m.status, Op: m.op, Len: m.length}
		n++
		if m.status != Success {
			q.flushing = true
			h.listFlush(qp, true)
		}
	}
	if n < len(wc) && q.flushed && !q.flushing {
		q.flushing = true
		h.listFlush(qp, true)
	}
	return n, q.ready() || q.flushed && !q.flushing
}

// flushSends completes the rest of a flushed send queue.
func (qp *QP) flushSends(wc []WC) (n int) {
	q := &qp.sq
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.flushing && q.cons != q.prod && n < len(wc) {
		wc[n] = WC{ID: q.meta[q.cons].id, QPN: qp.QPN, Status: Flushed}
		q.cons = q.ring.next(q.cons)
		n++
	}
	return n
}

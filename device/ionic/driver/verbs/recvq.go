// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"sync"
)

// recvQueue is the consumer's view of a receive queue. Each request has a slot
// of a free list; the kernel gives the device the slot as the request's id, the
// provider the ring index.
type recvQueue struct {
	ring *ring

	mu       sync.Mutex // guards what follows
	prod     int
	cons     int
	rung     int
	slots    []recvSlot
	free     []int // stack
	slotOf   []int // slot of each ring index
	flushing bool
}

type recvSlot struct {
	id     uint64
	index  int // ring index
	posted bool
}

func (q *recvQueue) init() {
	n := q.ring.mask + 1
	q.slots, q.slotOf = make([]recvSlot, n), make([]int, n)
	q.resetFree()
}

func (q *recvQueue) resetFree() {
	q.free = q.free[:0]
	for i := q.ring.mask; i >= 0; i-- {
		q.free = append(q.free, i)
	}
}

func (q *recvQueue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.prod, q.cons, q.rung, q.flushing = 0, 0, 0, false
	clear(q.slots)
	q.resetFree()
}

// Operations in a receive completion.
const (
	recvSend    = 0
	recvSendInv = 1
	recvSendImm = 2
	recvWrImm   = 3

	recvVLAN = 1 << 30
	recvIPv4 = 1 << 31
)

// receive takes a receive completion; h is locked.
func (qp *QP) receive(h *halfCQ, cqe []byte, qtf uint32, wc []WC) (int, error) {
	q := &qp.rq
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushing {
		return 0, nil
	}
	failed, status := qtf&cqeError != 0, be.Uint32(cqe[24:])
	if failed && Status(status) == Flushed {
		q.flushing = true
		h.listFlush(qp, false)
		return 0, nil
	}
	slot, err := qp.outstanding(le.Uint64(cqe))
	if err != nil {
		return 0, err
	}
	w := WC{ID: slot.id, QPN: qp.QPN, Op: WCRecv}
	if failed {
		w.Status = Status(status)
		if w.Status == Success {
			return 0, fmt.Errorf("queue pair %d: receive failed with status 0", qp.QPN)
		}
		q.flushing = true
		h.listFlush(qp, false)
	} else if err := qp.readReceive(cqe, &w); err != nil {
		return 0, err
	}
	slot.posted = false
	q.free = append(q.free, q.slotOf[slot.index])
	q.cons = q.ring.next(q.cons)
	h.pending++
	wc[0] = w
	return 1, nil
}

// outstanding finds the request of a receive completion. Receives complete in
// ring order, so it must be the oldest; the queue is locked.
func (qp *QP) outstanding(token uint64) (*recvSlot, error) {
	q := &qp.rq
	switch {
	case q.cons == q.prod:
		return nil, fmt.Errorf("queue pair %d: receive completion on an empty receive queue", qp.QPN)
	case token > uint64(q.ring.mask):
		return nil, fmt.Errorf("queue pair %d: receive completion with id %#x in a ring of %d", qp.QPN, token, q.ring.mask+1)
	}
	i := int(token)
	if !qp.c.kernel {
		i = q.slotOf[i]
	}
	slot := &q.slots[i]
	switch {
	case !slot.posted || !qp.c.kernel && slot.index != int(token):
		return nil, fmt.Errorf("queue pair %d: receive completion with id %d, which is not outstanding", qp.QPN, token)
	case slot.index != q.cons:
		return nil, fmt.Errorf("queue pair %d: receive completion of ring index %d, the oldest is %d", qp.QPN, slot.index, q.cons)
	case le.Uint64(q.ring.at(q.cons)) != token:
		return nil, fmt.Errorf("queue pair %d: the device wrote to receive request %d", qp.QPN, q.cons)
	}
	return slot, nil
}

// readReceive decodes a successful receive completion.
func (qp *QP) readReceive(cqe []byte, w *WC) error {
	src := be.Uint32(cqe[8:])
	w.Len, w.SrcQPN = be.Uint32(cqe[24:]), src&0xffffff
	word := be.Uint32(cqe[20:])
	switch op := src >> 24 & 0x1f; op {
	case recvSend:
	case recvSendInv:
		w.InvKey, w.HasInv = word, true
	case recvSendImm:
		w.Imm, w.HasImm = word, true
	case recvWrImm:
		w.Imm, w.HasImm, w.Op = word, true, WCRecvWriteImm
	default:
		return fmt.Errorf("queue pair %d: receive completion with operation %d", qp.QPN, op)
	}
	if !qp.Type.datagram() {
		if src&(recvVLAN|recvIPv4) != 0 {
			return fmt.Errorf("queue pair %d: datagram flags %#x on a connected queue pair", qp.QPN, src>>30)
		}
		return nil
	}
	if w.Len < grhSize {
		return fmt.Errorf("queue pair %d: datagram of %d bytes, less than its 40-byte header", qp.QPN, w.Len)
	}
	w.HasGRH, w.IPv4, w.Tagged = true, src&recvIPv4 != 0, src&recvVLAN != 0
	copy(w.SrcMAC[:], cqe[12:18])
	w.VLAN = be.Uint16(cqe[18:])
	return nil
}

// flushReceives completes the rest of a flushed receive queue, by the ids in
// the ring as the consumers do.
func (qp *QP) flushReceives(wc []WC) (n int) {
	q := &qp.rq
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.flushing && q.cons != q.prod && n < len(wc) {
		slot, err := qp.outstanding(le.Uint64(q.ring.at(q.cons)))
		if err != nil {
			qp.c.d.fault("flush: %w", err)
			return n
		}
		wc[n] = WC{ID: slot.id, QPN: qp.QPN, Status: Flushed, Op: WCRecv}
		slot.posted = false
		q.free = append(q.free, q.slotOf[q.cons])
		q.cons = q.ring.next(q.cons)
		n++
	}
	return n
}

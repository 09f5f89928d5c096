// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// Bounds of each of the two halves of an inbox. A peer that keeps to its
// window never reaches them: they hold a whole window and its retransmission.
const (
	inboxPackets = 4096
	inboxBytes   = 4 * window
	// A connectionless or unreliable sender has no window; the link's bound
	// is all that limits it, and a message dropped here is lost for good.
	inboxBytesUnreliable = 16 << 20
)

// inbox is where packets wait for the QP's next Step. Requests and responses
// wait apart: a responder that is held up must not hold up the requester.
type inbox struct {
	limit int // bytes of each half

	mu        sync.Mutex // guards everything below
	closed    bool
	signalled bool // Deliver has asked for a Step that has not begun
	requests  packet.Queue
	responses packet.Queue
	dropped   uint64
}

// Deliver puts a packet into the QP's inbox and takes ownership of it. It
// never blocks; beyond the inbox's bound the packet is dropped and counted.
// When it returns true the caller must see to it that Step runs. Any
// goroutine may call it at any time, also after Close.
func (q *QP) Deliver(p *packet.Packet) (schedule bool) {
	in := &q.in
	in.mu.Lock()
	half := &in.requests
	if !p.Op.IsRequest() {
		half = &in.responses
	}
	full := half.Len() >= inboxPackets || half.Len() > 0 && half.Bytes()+len(p.Payload) > in.limit
	if in.closed || full {
		if full {
			in.dropped++
		}
		in.mu.Unlock()
		p.Release()
		return false
	}
	half.Push(p)
	schedule = !in.signalled
	in.signalled = true
	in.mu.Unlock()
	return schedule
}

// collect takes what has arrived. Requests are left behind, and true
// returned, while earlier ones are still being worked on: that keeps the
// memory a QP can hold within twice the bound.
func (q *QP) collect() (left bool) {
	in := &q.in
	in.mu.Lock()
	in.signalled = false
	if q.responses.Len() == 0 {
		q.responses = in.responses.Take()
	} else {
		left = in.responses.Len() > 0
	}
	if q.requests.Len() == 0 {
		q.requests = in.requests.Take()
	} else {
		left = left || in.requests.Len() > 0
	}
	dropped := in.dropped
	in.dropped = 0
	in.mu.Unlock()
	if dropped > 0 {
		q.env.Count(DropInbox, dropped)
	}
	return left
}

// purge releases every packet that waits, here and in the inbox.
func (q *QP) purge(closing bool) (n uint64) {
	in := &q.in
	in.mu.Lock()
	in.closed = in.closed || closing
	requests, responses := in.requests.Take(), in.responses.Take()
	in.mu.Unlock()
	for _, w := range []*packet.Queue{&requests, &responses, &q.requests, &q.responses} {
		for p := w.Pop(); p != nil; p = w.Pop() {
			p.Release()
			n++
		}
	}
	return n
}

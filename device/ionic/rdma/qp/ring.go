// SPDX-License-Identifier: Apache-2.0

package qp

// maxMessages bounds the messages of one QP that are fetched and not complete.
const maxMessages = 512

// message is a fetched SQ WQE on its way.
type message struct {
	SendWork
	psn    uint64 // first PSN; meaningless for local work
	end    uint64 // one beyond its last PSN
	placed uint64 // bytes of a READ response that are in memory
	msn    uint32 // number among the remote work of the QP, from 1
	begun  bool   // a packet of it has left
	done   bool   // local work executed, datagram gone, or response placed
	bad    Status // not OK: fails with this status once it is the oldest
}

// ring holds the messages from the oldest incomplete one (head) to the newest
// fetched one (before tail). The indices run freely; the buffer grows on
// demand to maxMessages and is then reused for ever.
type ring struct {
	buf        []message // a power of two
	head, tail uint32
}

func (r *ring) at(i uint32) *message { return &r.buf[i&uint32(len(r.buf)-1)] }

func (r *ring) len() uint32 { return r.tail - r.head }

// slot returns the message at tail, nil when the bound is reached. The caller
// moves tail if it uses the slot.
func (r *ring) slot() *message {
	n := r.len()
	if n >= maxMessages {
		return nil
	}
	if n == uint32(len(r.buf)) {
		grown := make([]message, max(8, 2*len(r.buf)))
		for i := range n {
			grown[(r.head+i)&uint32(len(grown)-1)] = *r.at(r.head + i)
		}
		r.buf = grown
	}
	return r.at(r.tail)
}

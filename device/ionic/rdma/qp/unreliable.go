// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

// requestUnreliable executes one packet for a UC QP. Whatever goes wrong drops
// the rest of the message; its receive stays posted for the next one.
func (q *QP) requestUnreliable(p *packet.Packet) {
	r := &q.resp
	psn := extend(p.PSN, r.expected)
	switch {
	case p.Flags&packet.First != 0:
		if psn != r.expected {
			q.env.Count(RespOutOfSeq, 1)
		}
		r.in = incoming{}
	case !r.in.active:
		r.expected = psn + uint64(p.Count)
		return // the rest of a message that is dropped already
	case psn != r.expected:
		q.env.Count(RespOutOfSeq, 1)
		r.expected = psn + uint64(p.Count)
		r.in = incoming{}
		return
	}
	r.expected = psn + uint64(p.Count)
	f := refusal{kind: badRequest}
	switch p.Op {
	case packet.ReadRequest, packet.CompareSwap, packet.FetchAdd:
	default:
		f = q.place(p)
	}
	switch f.kind {
	case accepted:
		return
	case noReceive:
		q.env.Count(RespOutOfBuffer, 1)
		q.env.Count(DropNoBuffer, 1)
	case tooLong:
		q.env.Count(RespLocalLenErr, 1)
	case badReceive:
		// Not the message is at fault but the receive: it would hold up every
		// message after it, unseen.
		q.env.Count(RespLocalOperErr, 1)
		q.failRecv(f.status)
		q.enterErr(nil)
		return
	default:
		q.env.Count(RespInvRequest, 1)
	}
	r.in = incoming{}
}

// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// refusalKind says why a request packet was not executed.
type refusalKind uint8

const (
	accepted   refusalKind = iota
	noReceive              // the guest has posted none
	badRequest             // the packet is not one a correct peer sends here
	badAccess              // key, range or right
	tooLong                // message does not fit the receive
	badReceive             // receive WQE malformed, or its memory unusable
	badKey                 // remote invalidation refused
)

// refusal is a reason and, for badReceive, the status of the receive.
type refusal struct {
	kind   refusalKind
	status Status
}

// permit checks the rights of the QP and of the key.
func (q *QP) permit(rkey uint32, va, n uint64, need Access) Status {
	switch {
	case n == 0:
		return OK
	case q.attr.Access&need == 0 || va+(n-1) < va:
		return RemoteAccErr
	}
	return q.env.RemoteCheck(rkey, va, n, need)
}

// receive makes sure that a receive WQE is at hand.
func (q *QP) receive() bool {
	r := &q.resp
	if !r.held {
		r.held = q.env.FetchRecv(&r.recv)
	}
	return r.held
}

// place executes the next packet of a SEND or WRITE. Nothing is written when
// the packet is refused, except that a receive whose memory turns out to be
// unusable may hold earlier packets of its message.
func (q *QP) place(p *packet.Packet) refusal {
	in := &q.resp.in
	first, last := p.Flags&packet.First != 0, p.Flags&packet.Last != 0
	n := uint64(len(p.Payload))
	if first == in.active || !first && p.Op != in.op {
		return refusal{kind: badRequest}
	}
	m := *in
	if first {
		m = incoming{active: true, op: p.Op, total: uint64(p.Length), va: p.VA, rkey: p.RKey}
	}
	if m.total > maxMessage || n > m.total-m.off || last != (m.off+n == m.total) ||
		uint64(p.Count) != units(n, q.shift) || !last && (n == 0 || n&(1<<q.shift-1) != 0) {
		return refusal{kind: badRequest}
	}
	var f refusal
	if m.op == packet.Write || m.op == packet.WriteImm {
		f = q.placeWrite(p, &m, first, last)
	} else {
		f = q.placeSend(p, &m, first)
	}
	if f.kind != accepted {
		return f
	}
	m.off += n
	q.rx.bytes += n
	if last {
		if f := q.finish(p, &m); f.kind != accepted {
			return f
		}
		m = incoming{}
	}
	*in = m
	return refusal{}
}

func (q *QP) placeWrite(p *packet.Packet, m *incoming, first, last bool) refusal {
	if first && q.permit(m.rkey, m.va, m.total, RemoteWrite) != OK {
		return refusal{kind: badAccess}
	}
	if last && m.op == packet.WriteImm {
		if !q.receive() {
			return refusal{kind: noReceive}
		}
		if st := q.resp.recv.Bad; st != OK {
			return refusal{badReceive, st}
		}
	}
	if len(p.Payload) > 0 && q.env.RemoteWrite(m.rkey, m.va+m.off, p.Payload) != OK {
		return refusal{kind: badAccess}
	}
	return refusal{}
}

func (q *QP) placeSend(p *packet.Packet, m *incoming, first bool) refusal {
	recv := &q.resp.recv
	if first {
		switch {
		case !q.receive():
			return refusal{kind: noReceive}
		case recv.Bad != OK:
			return refusal{badReceive, recv.Bad}
		case m.total > recv.Length:
			return refusal{kind: tooLong}
		}
	}
	if len(p.Payload) > 0 {
		if st := q.env.Scatter(recv.SGE[:recv.NumSGE], m.off, p.Payload); st != OK {
			return refusal{badReceive, st}
		}
	}
	return refusal{}
}

// finish completes a message whose last packet is in place.
func (q *QP) finish(p *packet.Packet, m *incoming) refusal {
	r := &q.resp
	if m.op == packet.SendInv && q.env.RemoteInvalidate(binary.BigEndian.Uint32(p.Imm[:])) != OK {
		return refusal{kind: badKey}
	}
	r.msn++
	q.rx.messages++
	if m.op == packet.Write {
		return refusal{}
	}
	c := &r.done
	*c = RecvCompletion{
		ID: r.recv.ID, Length: uint32(m.total), SrcQPN: p.SrcQPN,
		Solicited: p.Flags&packet.Solicited != 0,
	}
	switch m.op {
	case packet.SendImm:
		c.Op, c.Imm = RecvSendImm, p.Imm
	case packet.SendInv:
		c.Op, c.Imm = RecvSendInv, p.Imm
	case packet.WriteImm:
		c.Op, c.Imm = RecvWriteImm, p.Imm
	}
	r.held = false
	q.env.CompleteRecv(c)
	return refusal{}
}

// failRecv completes the receive at hand with an error. One whose token cannot
// be read cannot be completed: an event says that the queue is lost.
func (q *QP) failRecv(st Status) {
	r := &q.resp
	if !r.held {
		return
	}
	r.held = false
	if r.recv.Unreadable {
		q.env.Event(EventQPFatal)
		return
	}
	q.env.Count(RespCQEErr, 1)
	r.done = RecvCompletion{ID: r.recv.ID, Status: st, SrcQPN: q.attr.DestQPN}
	q.env.CompleteRecv(&r.done)
}

// refuse answers a request that a reliable QP cannot execute: the receive it
// consumed fails, the peer gets a NAK, and the QP is of no use any more.
func (q *QP) refuse(f refusal, psn uint64) {
	syndrome := packet.NakInvalidRequest
	switch f.kind {
	case badRequest:
		q.env.Count(RespInvRequest, 1)
		q.env.Count(RespTxInvReqErr, 1)
		q.env.Event(EventRequestErr)
	case tooLong:
		q.env.Count(RespLocalLenErr, 1)
		q.env.Count(RespTxInvReqErr, 1)
		q.failRecv(LocalLenErr)
	case badReceive:
		syndrome = packet.NakRemoteOperation
		q.env.Count(RespLocalOperErr, 1)
		q.env.Count(RespTxOperErr, 1)
		q.failRecv(f.status)
	default:
		syndrome = packet.NakRemoteAccess
		q.env.Count(RespTxAccessErr, 1)
		if f.kind == badKey {
			q.failRecv(LocalAccErr)
		}
		q.env.Event(EventAccessErr)
	}
	q.nak(syndrome, psn)
	q.enterErr(q.resp.out)
}

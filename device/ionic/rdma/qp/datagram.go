// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

const (
	maxDatagram = 4096 // largest path MTU of the port
	grhLen      = 40   // bytes in front of every received datagram
	ownQKey     = 1 << 31
)

// sendDatagram sends the message at hand. A peer that cannot be reached makes
// no difference: the datagram is dropped and complete. Only faults of the
// guest's own work fail, and on the GSI QP not even those: its consumer
// could not recover.
func (q *QP) sendDatagram(m *message, b *budget) bool {
	r := &q.req
	if r.out == nil {
		p := packet.Get(int(m.Length))
		if m.bad = q.fillDatagram(m, p); m.bad != OK {
			p.Release()
			return true // drive deals with it
		}
		dst, ok := q.env.Address(m.AH, int(m.Length), m.Op == OpSendImm, &p.Header)
		if !ok {
			p.Release()
			q.env.Count(DropNoAH, 1)
			q.finishDatagram(m, b)
			return true
		}
		r.out, r.dst = p, dst
	}
	n := len(r.out.Payload)
	verdict, gone := q.transmit()
	if !gone {
		return false
	}
	if verdict == Sent {
		q.tx.bytes += uint64(n)
		q.tx.messages++
	}
	q.finishDatagram(m, b)
	return true
}

func (q *QP) fillDatagram(m *message, p *packet.Packet) Status {
	if len(p.Payload) > 0 {
		if st := q.env.Gather(&m.SendWork, 0, p.Payload); st != OK {
			return st
		}
	}
	r := &q.req
	h := &p.Header
	h.Op = packet.Datagram
	if m.Op == OpSendImm {
		h.Op, h.Imm = packet.DatagramImm, m.Imm
	}
	h.Flags = packet.First | packet.Last
	if m.Solicited {
		h.Flags |= packet.Solicited
	}
	h.SrcQPN, h.DstQPN = q.num, m.DestQPN&packet.QPNMask
	h.PSN, h.Count, h.Length = wire(r.next), 1, m.Length
	h.QKey = m.QKey
	if m.QKey&ownQKey != 0 {
		h.QKey = q.attr.QKey
	}
	return OK
}

func (q *QP) finishDatagram(m *message, b *budget) {
	r := &q.req
	b.spend(int(m.Length))
	r.next++
	r.high, r.planned, r.unacked = r.next, r.next, r.next
	r.cur++
	m.done = true
	q.retire()
}

// receiveDatagrams takes in the datagrams that have arrived. It returns true
// when its share is used up.
func (q *QP) receiveDatagrams() (more bool) {
	b := newBudget()
	for p := q.responses.Pop(); p != nil; p = q.responses.Pop() {
		q.env.Count(DropNoQP, 1)
		p.Release()
	}
	for q.receives() {
		if b.spent() {
			return q.requests.Len() > 0
		}
		p := q.requests.Pop()
		if p == nil {
			break
		}
		b.spend(len(p.Payload))
		q.receiveDatagram(p)
		p.Release()
	}
	return false
}

// receiveDatagram puts the 40 bytes and the payload into a receive, or drops
// the datagram and leaves the receive for the next one.
func (q *QP) receiveDatagram(p *packet.Packet) {
	r := &q.resp
	n := uint64(len(p.Payload))
	var drop Counter
	switch {
	case !p.Op.IsDatagram() || n > maxDatagram:
		drop = DropNoQP
	case p.QKey != q.attr.QKey:
		drop = DropQKey
	case !q.receive():
		drop = DropNoBuffer
		q.env.Count(RespOutOfBuffer, 1)
	case r.recv.Bad == OK && grhLen+n > r.recv.Length:
		drop = DropTooLong
	default:
		q.completeDatagram(p)
		return
	}
	q.env.Count(drop, 1)
}

func (q *QP) completeDatagram(p *packet.Packet) {
	r := &q.resp
	st := r.recv.Bad
	if st == OK {
		st = q.env.Scatter(r.recv.SGE[:r.recv.NumSGE], 0, p.GRH[:])
	}
	if st == OK && len(p.Payload) > 0 {
		st = q.env.Scatter(r.recv.SGE[:r.recv.NumSGE], grhLen, p.Payload)
	}
	if st != OK {
		q.env.Count(RespLocalOperErr, 1)
		q.failRecv(st)
		q.enterErr(nil)
		return
	}
	c := &r.done
	*c = RecvCompletion{
		ID: r.recv.ID, Length: grhLen + uint32(len(p.Payload)), SrcQPN: p.SrcQPN,
		Solicited: p.Flags&packet.Solicited != 0,
		SrcMAC:    p.SrcMAC, VLAN: p.VLAN, Path: p.Path,
	}
	if p.Op == packet.DatagramImm {
		c.Op, c.Imm = RecvSendImm, p.Imm
	}
	r.held = false
	q.rx.bytes += uint64(len(p.Payload))
	q.rx.messages++
	q.env.CompleteRecv(c)
}

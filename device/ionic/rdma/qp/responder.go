// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

// responder is the receiving half of a connected QP.
type responder struct {
	expected uint64 // next PSN to execute
	msn      uint32 // messages executed
	nakked   bool   // a NAK was sent for expected; what follows is dropped until it comes
	owed     bool   // an acknowledgement of everything before expected is due

	in   incoming       // message being received
	recv RecvWork       // receive fetched for it, or left over from one that failed
	held bool           // recv is valid
	done RecvCompletion // scratch

	read    reading        // READ being answered; requests wait behind it
	out     *packet.Packet // answer refused by a full link; requests wait behind it
	atomics []atomicRecord // the latest atomics, by PSN
	newest  int            // where the latest one is
}

// incoming is a SEND or WRITE of which not all packets have come.
type incoming struct {
	active bool
	op     packet.Op
	total  uint64
	off    uint64 // bytes in place
	va     uint64
	rkey   uint32
}

// reading is a READ request whose answer is not sent to the end.
type reading struct {
	active bool
	first  bool // next answer is the first of the request
	last   bool // request ends its message
	psn    uint64
	va     uint64
	left   uint64
	rkey   uint32
}

// atomicRecord remembers the answer to an atomic, so that a repeated request
// is answered without being executed again.
type atomicRecord struct {
	psn   uint64 // 0: unused
	value uint64
}

func (r *responder) start(psn uint32) {
	r.expected = epoch + uint64(psn&packet.PSNMask)
}

// halt forgets all work in progress but keep, which still goes to the peer.
func (r *responder) halt(keep *packet.Packet) {
	if r.out != nil && r.out != keep {
		r.out.Release()
	}
	r.out = keep
	r.in, r.read = incoming{}, reading{}
	r.held, r.owed, r.nakked = false, false, false
}

// serve executes requests that have arrived and sends the answers. It returns
// true when its share is used up.
func (q *QP) serve() (more bool) {
	r := &q.resp
	b := newBudget()
	for q.receives() {
		if r.out != nil && !q.reply(r.out) {
			return false
		}
		if b.spent() {
			more = r.read.active || q.requests.Len() > 0
			break
		}
		if r.read.active {
			q.sendRead(&b)
			continue
		}
		p := q.requests.Pop()
		if p == nil {
			break
		}
		b.spend(len(p.Payload))
		q.request(p)
		p.Release()
	}
	if r.owed && r.out == nil && !r.read.active && q.receives() {
		r.owed = false
		q.reply(q.answerTo(packet.Ack, packet.Positive, r.expected-1))
	}
	return more
}

// request executes one packet of a peer.
func (q *QP) request(p *packet.Packet) {
	if p.Op.IsDatagram() || (p.Flags&packet.Unreliable != 0) != (q.typ == UC) {
		q.env.Count(DropNoQP, 1)
		return
	}
	if !q.fromPeer(p) {
		q.env.Count(DropSource, 1)
		return
	}
	if q.state == RTR && !q.commEst {
		q.commEst = true
		q.env.Event(EventCommEst)
	}
	if q.typ == UC {
		q.requestUnreliable(p)
		return
	}
	r := &q.resp
	psn := extend(p.PSN, r.expected)
	switch {
	case psn > r.expected:
		q.env.Count(RespOutOfSeq, 1)
		if !r.nakked {
			r.nakked = true
			q.nak(packet.NakSequence, r.expected)
		}
	case psn < r.expected:
		q.env.Count(RespDupRequest, 1)
		q.repeat(p, psn)
	default:
		r.nakked = false
		q.perform(p, psn)
	}
}

// repeat answers a request that was executed before.
func (q *QP) repeat(p *packet.Packet, psn uint64) {
	r := &q.resp
	switch p.Op {
	case packet.ReadRequest:
		if psn+uint64(p.Count) > r.expected {
			q.refuse(refusal{kind: badRequest}, psn)
			return
		}
		if f := q.beginRead(p, psn); f.kind != accepted {
			q.refuse(f, psn)
		}
	case packet.CompareSwap, packet.FetchAdd:
		for i := range r.atomics {
			if a := &r.atomics[i]; a.psn == psn {
				q.replyAtomic(psn, a.value)
				return
			}
		}
		q.env.Count(RespOutOfAtomic, 1)
	default:
		r.owed = true
	}
}

// perform executes the packet that is expected next.
func (q *QP) perform(p *packet.Packet, psn uint64) {
	r := &q.resp
	var f refusal
	switch p.Op {
	case packet.ReadRequest:
		f = q.beginRead(p, psn)
	case packet.CompareSwap, packet.FetchAdd:
		f = q.performAtomic(p, psn)
	default:
		f = q.place(p)
		if f.kind == accepted {
			r.expected = psn + uint64(p.Count)
			r.owed = r.owed || p.Flags&packet.AckRequest != 0
		}
	}
	switch f.kind {
	case accepted:
	case noReceive:
		// The PSN stays expected; what follows it is dropped in silence.
		r.nakked = true
		q.env.Count(RespOutOfBuffer, 1)
		q.env.Count(RespTxRNR, 1)
		q.nak(packet.RNR|packet.Syndrome(q.attr.MinRNRTimer&0x1f), psn)
	default:
		q.refuse(f, psn)
	}
}

// beginRead checks a READ request, new or repeated, and makes serve answer it.
func (q *QP) beginRead(p *packet.Packet, psn uint64) refusal {
	r := &q.resp
	n := uint64(p.Length)
	first, last := p.Flags&packet.First != 0, p.Flags&packet.Last != 0
	whole := n
	if first {
		whole = p.Operand
	}
	if psn == r.expected && r.in.active || depth(q.attr.MaxDestRead) == 0 || len(p.Payload) > 0 ||
		n > maxMessage || whole > maxMessage || whole < n || first && last && whole != n ||
		uint64(p.Count) != units(n, q.shift) || !last && n&(1<<q.shift-1) != 0 {
		return refusal{kind: badRequest}
	}
	if q.permit(p.RKey, p.VA, whole, RemoteRead) != OK {
		return refusal{kind: badAccess}
	}
	r.read = reading{active: true, first: true, last: last, psn: psn, va: p.VA, left: n, rkey: p.RKey}
	if psn == r.expected {
		r.expected += uint64(p.Count)
		if last {
			r.msn++
			q.rx.messages++
		}
	}
	return refusal{}
}

// sendRead sends the next packet of a READ answer.
func (q *QP) sendRead(b *budget) {
	r := &q.resp
	rd := &r.read
	n := min(rd.left, chunk)
	p := packet.Get(int(n))
	if n > 0 {
		if st := q.env.RemoteRead(rd.rkey, rd.va, p.Payload); st != OK {
			p.Release()
			q.refuse(refusal{kind: badAccess}, rd.psn)
			return
		}
	}
	b.spend(int(n))
	q.address(&p.Header)
	p.Op, p.PSN, p.Count, p.MSN = packet.ReadResponse, wire(rd.psn), uint32(units(n, q.shift)), r.msn&packet.PSNMask
	if rd.first {
		p.Flags |= packet.First
	}
	rd.first = false
	rd.psn += uint64(p.Count)
	rd.va += n
	rd.left -= n
	if rd.left == 0 {
		p.Flags |= packet.Last
		rd.active = false
		if rd.psn == r.expected {
			r.owed = false // the answer acknowledges all before it
		}
	}
	q.tx.bytes += n
	q.reply(p)
}

// performAtomic executes a new atomic and answers it.
func (q *QP) performAtomic(p *packet.Packet, psn uint64) refusal {
	r := &q.resp
	n := depth(q.attr.MaxDestRead)
	if r.in.active || len(p.Payload) > 0 || p.Count != 1 || p.VA&7 != 0 {
		return refusal{kind: badRequest}
	}
	if n == 0 {
		q.env.Count(RespOutOfAtomic, 1)
		return refusal{kind: badRequest}
	}
	if q.permit(p.RKey, p.VA, 8, RemoteAtomic) != OK {
		return refusal{kind: badAccess}
	}
	value, st := q.env.RemoteAtomic(p.RKey, p.VA, p.Op, p.Operand, p.Compare)
	if st != OK {
		return refusal{kind: badAccess}
	}
	if len(r.atomics) < n {
		r.atomics = append(r.atomics, atomicRecord{})
		r.newest = len(r.atomics) - 1
	} else {
		r.newest = (r.newest + 1) % len(r.atomics)
	}
	r.atomics[r.newest] = atomicRecord{psn, value}
	r.expected++
	r.msn++
	r.owed = false
	q.rx.messages++
	q.rx.bytes += 8
	q.replyAtomic(psn, value)
	return refusal{}
}

func (q *QP) replyAtomic(psn, value uint64) {
	p := q.answerTo(packet.AtomicAck, packet.Positive, psn)
	p.Operand = value
	q.reply(p)
}

// nak sends a negative acknowledgement; it acknowledges all before psn.
func (q *QP) nak(s packet.Syndrome, psn uint64) {
	if s == packet.NakSequence {
		q.env.Count(RespTxPktSeqErr, 1)
	}
	q.resp.owed = false
	q.reply(q.answerTo(packet.Ack, s, psn))
}

// answerTo makes an answer without payload.
func (q *QP) answerTo(op packet.Op, s packet.Syndrome, psn uint64) *packet.Packet {
	p := packet.Get(0)
	q.address(&p.Header)
	p.Op, p.Syndrome = op, s
	p.PSN, p.Count, p.MSN = wire(psn), 1, q.resp.msn&packet.PSNMask
	return p
}

// reply hands an answer to the link and keeps it while the link is full.
func (q *QP) reply(p *packet.Packet) (gone bool) {
	switch q.env.Transmit(&q.attr.Dest, p) {
	case Full:
		q.resp.out = p
		return false
	case Lost:
		q.env.Count(DropNoRoute, 1)
	}
	q.resp.out = nil
	return true
}

// farewell sends the NAK that a QP in state ERR still owes its peer.
func (q *QP) farewell() {
	if q.state == Err && q.resp.out != nil {
		q.reply(q.resp.out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// absorb takes in the responses that have arrived. It returns true when its
// share is used up.
func (q *QP) absorb() (more bool) {
	b := newBudget()
	for {
		if b.spent() {
			return q.responses.Len() > 0
		}
		p := q.responses.Pop()
		if p == nil {
			return false
		}
		b.spend(len(p.Payload))
		switch {
		case q.typ != RC:
			q.env.Count(DropNoQP, 1)
		case !q.fromPeer(p):
			q.env.Count(DropSource, 1)
		case !q.sends():
			q.env.Count(DropState, 1)
		default:
			q.answer(p)
		}
		p.Release()
	}
}

// fromPeer reports whether the connected peer sent the packet.
func (q *QP) fromPeer(p *packet.Packet) bool {
	return p.SrcQPN == q.attr.DestQPN && p.SrcGID == q.attr.Dest.GID
}

// answer acts on one response of the peer.
func (q *QP) answer(p *packet.Packet) {
	r := &q.req
	psn := extend(p.PSN, r.unacked)
	if psn >= r.high {
		q.env.Count(ReqInvalidPkt, 1) // answers what was never asked
		return
	}
	if p.Op != packet.Ack {
		q.answerData(p, psn)
		return
	}
	if p.Syndrome.IsPositive() {
		if psn < r.unacked {
			q.env.Count(ReqDupResponse, 1)
		} else if q.acknowledge(psn + 1) {
			q.gap(ReqImpliedNak)
		}
		return
	}
	if psn < r.unacked {
		q.env.Count(ReqDupResponse, 1)
		return
	}
	// A NAK acknowledges all that came before the packet it names.
	if q.acknowledge(psn) {
		q.gap(ReqImpliedNak)
		return
	}
	if r.ring.len() == 0 || r.unacked != psn {
		return // the requester has failed meanwhile
	}
	switch {
	case p.Syndrome.IsRNR():
		q.notReady(p.Syndrome.Timer())
	case p.Syndrome == packet.NakSequence:
		q.gap(ReqPktSeqErr)
	case p.Syndrome == packet.NakInvalidRequest:
		q.failOldest(RemoteInvReqErr)
	case p.Syndrome == packet.NakRemoteAccess:
		q.failOldest(RemoteAccErr)
	case p.Syndrome == packet.NakRemoteOperation:
		q.failOldest(RemoteOperErr)
	default:
		q.env.Count(ReqInvalidPkt, 1)
	}
}

// answerData places the data of a READ response or an atomic's original value.
func (q *QP) answerData(p *packet.Packet, psn uint64) {
	r := &q.req
	if psn < r.unacked {
		q.env.Count(ReqDupResponse, 1)
		return
	}
	implied := q.acknowledge(psn)
	if r.ring.len() == 0 || !q.sends() {
		return
	}
	m := r.ring.at(r.ring.head)
	if implied || psn != r.unacked {
		q.gap(ReqImpliedNak)
		return
	}
	var st Status
	switch {
	case p.Op == packet.ReadResponse && m.Op == OpRead && q.fits(m, p):
		if len(p.Payload) > 0 {
			st = q.env.Scatter(m.SGE[:m.NumSGE], m.placed, p.Payload)
		}
		m.placed += uint64(len(p.Payload))
		m.done = m.placed == uint64(m.Length)
	case p.Op == packet.AtomicAck && m.Op.atomic() && len(p.Payload) == 0:
		binary.LittleEndian.PutUint64(r.original[:], p.Operand)
		st = q.env.Scatter(m.SGE[:m.NumSGE], 0, r.original[:])
		m.done = true
	default:
		st = BadRespErr
	}
	if st != OK {
		q.failOldest(st)
		return
	}
	q.rx.bytes += uint64(len(p.Payload))
	if m.done {
		q.rx.messages++
		q.acknowledge(m.end)
		return
	}
	q.acknowledge(m.psn + m.placed>>q.shift)
}

// fits reports whether the payload of a READ response is what the next packet
// of the answer to m can carry.
func (q *QP) fits(m *message, p *packet.Packet) bool {
	n, rest := uint64(len(p.Payload)), uint64(m.Length)-m.placed
	if n > rest || uint64(p.Count) != units(n, q.shift) {
		return false
	}
	return n == rest || n > 0 && n&(1<<q.shift-1) == 0
}

// acknowledge moves the oldest unacknowledged PSN up to psn and completes the
// messages before it. It stops at a READ or atomic whose data has not come,
// and returns true when psn lies beyond: the peer has executed it, so the
// answer is lost.
func (q *QP) acknowledge(psn uint64) (implied bool) {
	r := &q.req
	before := r.unacked
	for q.sends() && r.ring.head != r.ring.tail {
		m := r.ring.at(r.ring.head)
		if m.bad != OK || m.Op.local() {
			if !q.retire() {
				break
			}
			continue
		}
		edge, waits := m.end, m.Op.answered() && !m.done
		if waits {
			edge = m.psn + m.placed>>q.shift
			implied = psn > edge
		}
		r.unacked = max(r.unacked, min(psn, edge))
		if waits || psn < edge {
			break
		}
		m.done = true
		q.retire()
	}
	if r.unacked == before {
		return implied
	}
	r.settle()
	r.progress = q.now
	if q.typ == RC && r.unacked < r.high {
		q.startTimer()
	}
	if r.next < r.unacked {
		q.reposition(r.unacked)
	}
	return implied
}

// retire completes the oldest message if it is done, or fails the QP if it is
// bad. It returns true when the message has left the ring.
func (q *QP) retire() bool {
	r := &q.req
	if r.ring.head == r.ring.tail {
		return false
	}
	m := r.ring.at(r.ring.head)
	switch {
	case m.bad != OK:
		q.failSend(m, m.bad)
		return false
	case !m.done:
		return false
	case m.Op.local() || !q.connected():
		q.env.CompleteNPG(m.Index, OK, m.Signaled)
	default:
		q.env.CompleteMSN(m.msn, OK, m.Signaled)
		if m.Op.answered() {
			r.reads--
		}
	}
	r.ring.head++
	return true
}

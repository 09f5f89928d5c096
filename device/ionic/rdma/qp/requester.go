// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// Limits of the requester. A chunk is what one packet carries; it divides
// into every path MTU. Asking for a READ in pieces no larger than the window
// allows bounds what can be under way towards this side as well.
const (
	chunk      = packet.MaxPayload
	readPiece  = 2 * chunk
	maxMessage = 1 << 31
	// What has no acknowledgements waits this long for a full link before it
	// drops. A datagram holds up those for other destinations. A UC message
	// does not, and is often larger than what the link holds; it waits for
	// its turn among many, and gives up only if the link has ended.
	datagramPatience   = 20 * time.Millisecond
	unreliablePatience = 5 * time.Second
	// lateFires of the acknowledgement timer are let pass in one try.
	lateFires = 4
	// A link that sends, but not our packets for so long, is as good as dead.
	pendingPatience = 2 * time.Second
	// A silent peer is waited for so long, if four times the guest's own limit
	// allows it: time enough to notice that a lane is dead and dial another.
	silencePatience = 2 * time.Second
)

// requester is the sending half.
type requester struct {
	ring ring
	cur  uint32 // ring index of the message whose packet is next
	msn  uint32 // remote messages fetched since RESET

	unacked uint64 // oldest PSN that is not acknowledged
	next    uint64 // PSN of the next packet
	high    uint64 // one beyond the highest PSN ever sent
	planned uint64 // one beyond the last PSN of the messages in the ring
	lastAck uint64 // one beyond the last PSN that asked for an acknowledgement or an answer

	reads    int     // READs and atomics begun and not complete
	original [8]byte // scratch for the answer of an atomic

	out       *packet.Packet // built, and refused by a full link
	dst       packet.Address // where a datagram in out goes
	fullSince time.Time      // first refusal of the link that no success followed

	retries    int       // timeouts and NAKs without progress
	rnrRetries int       // RNR NAKs without progress
	recovering bool      // a gap was seen and everything is sent again; more NAKs say nothing new
	probing    bool      // after a timeout: one packet at a time until the peer answers
	deadline   time.Time // of the acknowledgement timer, zero when it does not run
	progress   time.Time // when unacked moved, or the first packet beyond it left
	linkMoved  uint64    // how far the way to the peer had moved when the timer was started
	spared     int       // late fires of the timer that were let pass in this try
	rnrUntil   time.Time // nothing is sent before

	paceUntil time.Time // the rate limit lets nothing leave before
	paced     bool      // work waits for that time
}

// start sets the PSN of the first packet.
func (r *requester) start(psn uint32) {
	r.unacked = epoch + uint64(psn&packet.PSNMask)
	r.next, r.high, r.planned, r.lastAck = r.unacked, r.unacked, r.unacked, r.unacked
}

// halt forgets all work in progress; PSN and message number stay.
func (r *requester) halt() {
	r.unpark()
	r.ring.head, r.ring.tail, r.cur = 0, 0, 0
	r.paceUntil, r.paced = time.Time{}, false
	r.unacked, r.high, r.planned, r.lastAck = r.next, r.next, r.next, r.next
	r.reads = 0
	r.settle()
	r.fullSince = time.Time{}
}

// settle ends all retrying and waiting.
func (r *requester) settle() {
	r.retries, r.rnrRetries = 0, 0
	r.recovering, r.probing = false, false
	r.deadline, r.rnrUntil = time.Time{}, time.Time{}
}

func (r *requester) unpark() {
	if r.out != nil {
		r.out.Release()
		r.out = nil
	}
}

// due is the next time the requester must run by the clock, zero for never.
func (q *QP) due() time.Time {
	t := q.req.deadline
	pace := time.Time{}
	if q.req.paced {
		pace = q.req.paceUntil
	}
	for _, c := range [...]time.Time{q.req.rnrUntil, q.patience(), pace} {
		if c.After(q.now) && (t.IsZero() || c.Before(t)) {
			t = c
		}
	}
	return t
}

// patience is when a full link makes a QP without acknowledgements drop.
func (q *QP) patience() time.Time {
	switch {
	case q.typ == RC || q.req.fullSince.IsZero():
		return time.Time{}
	case q.typ == UC:
		return q.req.fullSince.Add(unreliablePatience)
	}
	return q.req.fullSince.Add(datagramPatience)
}

// fetch takes the next WQE of the guest into the ring.
func (q *QP) fetch() bool {
	r := &q.req
	if q.state != RTS {
		return false // SQD: started work only
	}
	m := r.ring.slot()
	if m == nil || !q.env.FetchSend(&m.SendWork) {
		return false
	}
	r.ring.tail++
	m.psn, m.end, m.placed, m.msn = 0, 0, 0, 0
	m.begun, m.done, m.bad = false, false, q.vet(&m.SendWork)
	if m.Op.local() || !q.connected() {
		return true
	}
	r.msn++
	m.msn = r.msn
	m.psn = r.planned
	m.end = m.psn + 1
	if !m.Op.atomic() {
		m.end = m.psn + units(uint64(m.Length), q.shift)
	}
	r.planned = m.end
	return true
}

// vet is the status a WQE fails with before it is begun.
func (q *QP) vet(w *SendWork) Status {
	switch {
	case w.Bad != OK:
		return w.Bad
	case w.Op >= numSendOps || w.NumSGE > MaxSGE:
		return LocalQPOperErr
	case w.Op.local():
		return OK
	case q.typ == UD && w.Op != OpSend && w.Op != OpSendImm:
		return LocalQPOperErr
	case q.typ == UD && w.Length > maxDatagram:
		return LocalLenErr
	case w.Op.answered() && (q.typ != RC || depth(q.attr.MaxRead) == 0):
		return LocalQPOperErr
	case !w.Op.atomic() && w.Length > maxMessage:
		return LocalLenErr
	}
	return OK
}

// depth is the number of READs and atomics that a rrq_depth or rsq_depth
// stands for.
func depth(log2 uint8) int { return 1<<log2 - 1 }

// drive sends what may be sent, in order. It returns true when its share is
// used up.
func (q *QP) drive() (more bool) {
	r := &q.req
	if r.paced = false; r.rnrUntil.After(q.now) {
		return false
	}
	b := newBudget()
	for q.sends() {
		if r.cur == r.ring.tail && !q.fetch() {
			return false
		}
		m := r.ring.at(r.cur)
		gone := true
		switch {
		case b.spent():
			return true
		case m.bad != OK:
			gone = q.excuse(m)
			b.spend(0)
		case m.done:
			r.cur++ // local work that a retransmission passes again
		case m.Op.local():
			gone = q.execute(m)
			b.spend(0)
		case q.typ == UD:
			gone = q.sendDatagram(m, &b)
		default:
			gone = q.sendChunk(m, &b)
		}
		if !gone {
			return false
		}
	}
	return false
}

// execute runs a local operation when its turn has come. An invalidation
// waits until all earlier work is complete: a retransmission may still read
// through the key.
func (q *QP) execute(m *message) bool {
	r := &q.req
	if m.Fence && r.reads > 0 || m.Op == OpLocalInv && r.ring.head != r.cur {
		return false
	}
	if m.bad = q.env.Local(&m.SendWork); m.bad != OK {
		return true // drive deals with it
	}
	m.done = true
	r.cur++
	q.retire()
	return true
}

// cut is the next packet of a message: byte offset, bytes, PSNs.
func (q *QP) cut(m *message) (off, n, count uint64) {
	if m.Op.atomic() {
		return 0, 0, 1
	}
	size := uint64(chunk)
	if m.Op == OpRead {
		size = readPiece
	}
	off = (q.req.next - m.psn) << q.shift
	end := min((off/size+1)*size, uint64(m.Length))
	n = end - off
	return off, n, units(n, q.shift)
}

// admits reports whether the packet of count PSNs may leave now.
func (q *QP) admits(m *message, count uint64) bool {
	r := &q.req
	if !m.begun && r.reads > 0 {
		if m.Fence || m.Op.answered() && r.reads >= depth(q.attr.MaxRead) {
			return false
		}
	}
	if q.typ != RC || r.next == r.unacked {
		return true
	}
	return !r.probing && q.fitsWindow(count)
}

// sendChunk sends the next packet of a message. It returns false when nothing
// more can leave for now.
func (q *QP) sendChunk(m *message, b *budget) bool {
	r := &q.req
	off, n, count := q.cut(m)
	if !q.admits(m, count) {
		return false
	}
	if r.paced = r.paceUntil.After(q.now); r.paced {
		return false
	}
	if r.out == nil {
		if r.out, m.bad = q.build(m, off, n, count); m.bad != OK {
			return true // drive deals with it
		}
	}
	flags := r.out.Flags
	payload := len(r.out.Payload)
	verdict, gone := q.transmit()
	if !gone {
		return false
	}
	b.spend(payload)
	if r.next < r.high {
		q.env.Count(ReqRetransmitPkts, 1)
		q.env.Count(ReqRetransmitBytes, uint64(payload))
	}
	q.sent(m, count, flags)
	q.pace(payload)
	if verdict == Sent {
		q.tx.bytes += uint64(payload)
		if r.next == m.end {
			q.tx.messages++
		}
	}
	if q.typ == UC && verdict == Lost {
		r.next, r.high = m.end, m.end // the rest would be useless
	}
	if r.next == m.end {
		r.cur++
		if q.typ == UC {
			q.acknowledge(m.end)
		}
	}
	return true
}

// transmit hands the parked packet to the link; gone is false while the link
// is full and the packet waits.
func (q *QP) transmit() (v Verdict, gone bool) {
	r := &q.req
	dst := &q.attr.Dest
	if q.typ == UD {
		dst = &r.dst
	}
	v = q.env.Transmit(dst, r.out)
	switch v {
	case Full:
		if r.fullSince.IsZero() {
			r.fullSince = q.now
		}
		if q.typ == RC || q.now.Before(q.patience()) {
			return v, false
		}
		q.env.Count(DropFull, 1)
		r.unpark()
		return Lost, true
	case Lost:
		q.env.Count(DropNoRoute, 1)
	}
	r.out = nil
	r.fullSince = time.Time{}
	return v, true
}

// sent moves the requester past a packet that has left.
func (q *QP) sent(m *message, count uint64, flags packet.Flags) {
	r := &q.req
	if !m.begun {
		m.begun = true
		if m.Op.answered() {
			r.reads++
		}
	}
	if r.deadline.IsZero() {
		q.startTimer()
	}
	if r.next == r.unacked && r.high == r.unacked {
		r.progress = q.now
	}
	r.next += count
	r.high = max(r.high, r.next)
	if flags&packet.AckRequest != 0 || m.Op.answered() {
		r.lastAck = r.next
	}
}

// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// gsiNumber is the QP number that makes a UD QP the GSI QP.
const gsiNumber = 1

// Config is what CREATE_QP fixes for the life of a QP.
type Config struct {
	Number uint32 // 24 bits
	Type   Type
	Share  *Share // of the device; nil: the QP has a whole window for itself
	// Pending reports whether the link still holds packets that the QP gave it,
	// and how many packets the way to the peer has let go, of this QP or any. It
	// is called with the QP's lock held and must not block. Nil: unknown.
	Pending func() (held bool, moved uint64)
}

// QP is one queue pair: a requester that turns send work into packets and a
// responder that executes the packets of the peer. All methods are safe for
// concurrent use.
type QP struct {
	num uint32
	typ Type
	env Env

	share   *Share
	pending func() (held bool, moved uint64)

	in inbox // has a lock of its own

	mu       sync.Mutex // guards everything below
	closed   bool
	state    State
	attr     Attr
	shift    uint8 // log2 of the path MTU, from attr
	commEst  bool  // COMM_EST was raised for this connection
	drained  bool  // SQ_DRAINED was raised for this stay in SQD
	requests packet.Queue
	// responses and requests are what Step took out of the inbox and has not
	// finished.
	responses packet.Queue
	req       requester
	resp      responder

	now    time.Time // of the Step that runs
	wakeAt time.Time // the wake-up that is asked for, zero when none is
	tx, rx traffic

	sharing bool // share counts this QP
}

// traffic is what a Step moved; it is counted once at the end of it.
type traffic struct{ bytes, messages uint64 }

// New makes a QP in state RESET.
func New(c Config, env Env) *QP {
	q := &QP{num: c.Number & packet.QPNMask, typ: c.Type, env: env, share: c.Share, pending: c.Pending}
	q.in.limit = inboxBytes
	if c.Type == UC {
		q.in.limit = inboxBytesUnreliable
	}
	q.clear()
	return q
}

// Number is the QP number.
func (q *QP) Number() uint32 { return q.num }

// Type is the transport.
func (q *QP) Type() Type { return q.typ }

// State is the state the QP is in.
func (q *QP) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// Query returns the attributes with the live PSNs: SQPSN is the next one to
// send, RQPSN the next one expected.
func (q *QP) Query() Attr {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	a.State = q.state
	a.SQPSN, a.RQPSN = wire(q.req.next), wire(q.resp.expected)
	a.Draining = q.state == SQD && !q.idle()
	return a
}

// Close ends the QP (DESTROY_QP, RDMA reset). Once it has returned the QP
// makes no call of its Env any more and holds no packet.
func (q *QP) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.halt(nil)
	q.purge(true)
	q.closed = true
	q.req.ring = ring{}
}

// clear puts everything but the configuration back to what CREATE_QP made.
func (q *QP) clear() {
	q.halt(nil)
	q.purge(false)
	atomics := q.resp.atomics
	clear(atomics)
	q.state, q.attr = Reset, Attr{PathMTU: 12}
	q.shift = q.attr.PathMTU
	q.commEst, q.drained = false, false
	q.req = requester{ring: ring{buf: q.req.ring.buf}}
	q.resp = responder{atomics: atomics}
	q.req.start(0)
	q.resp.start(0)
}

// halt stops all work in progress without completing it. keep is a packet
// that is still owed to the peer, nil when there is none.
func (q *QP) halt(keep *packet.Packet) {
	q.req.halt()
	q.resp.halt(keep)
	q.noteShare()
	if !q.wakeAt.IsZero() {
		q.wakeAt = time.Time{}
		q.env.Wake(q.wakeAt)
	}
}

// connected reports whether the QP has one peer (RC, UC).
func (q *QP) connected() bool { return q.typ == RC || q.typ == UC }

// receives reports whether the state executes packets of peers.
func (q *QP) receives() bool {
	return q.state == RTR || q.state == RTS || q.state == SQD || q.state == SQE
}

// sends reports whether the state lets started work go on.
func (q *QP) sends() bool { return q.state == RTS || q.state == SQD }

// idle reports that no send work is fetched and unfinished.
func (q *QP) idle() bool { return q.req.ring.len() == 0 }

// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/header"
	"github.com/ernic-dev/ernic/device/ionic/rdma/mr"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/ionic/rdma/sched"
)

// queuePair is a QP core with its rings, its CQs and its place in the
// scheduler. It is the core's qp.Env.
type queuePair struct {
	lif    *lif
	id     uint32
	typ    qp.Type
	dbid   uint16
	domain atomic.Pointer[mr.Domain] // what memory it may reach; replaced, never changed
	core   *qp.QP
	actor  sched.Actor
	sq, rq workRing
	sendCQ *completionQueue
	recvCQ *completionQueue

	// Of the admin queues' commands on this QP.
	path atomic.Pointer[path]

	parked queuePairLink // guarded by Engine.parked
	tally  packet.Tally  // of the requests that the link has not released

	// A completion was lost: the CQ has overflowed, or its memory is gone.
	unheard atomic.Bool

	// Whether the flush of a queue stands in its CQ already, until the core asks
	// for it. Under the core's lock.
	sendFlushed, recvFlushed bool

	// The producer indices that the last flush CQE of each queue covers. Under the
	// core's lock.
	sendFlushedTo, recvFlushedTo uint32
	// flushing: the receive queue is flushed, and its doorbells are looked at.
	flushing atomic.Bool

	// The newest message that is complete, if no completion has told of it: the
	// guest did not ask. Under the core's lock.
	untold    bool
	untoldMSN uint32

	// counters are written under the core's lock, read by anybody.
	counters [qp.NumCounters]atomic.Uint64
}

// path is the address vector of a connected QP.
type path struct {
	ah     uint32
	handle *addressHandle
}

// Run does the work that is due.
func (q *queuePair) Run(now time.Time) (more bool) {
	more = q.core.Step(now)
	if q.unheard.Load() && q.unheard.Swap(false) {
		q.core.Fail()
		return true
	}
	return more
}

// pending reports whether the link holds packets of the QP, and how far the way
// to its peer has moved.
func (q *queuePair) pending() (held bool, moved uint64) { return q.tally.Held() > 0, q.tally.Moved() }

// mrRights are the QP flags that remote access needs. The core checks the
// QP's own rights itself, before it asks for memory.
const mrRights = abi.QPRemoteWrite | abi.QPRemoteRead | abi.QPRemoteAtomic

// unoffered are QP flags that ask for what the identity does not offer:
// queues in controller memory, and shared page tables.
const unoffered = abi.QPSendCMB | abi.QPRecvCMB | abi.QPSendPB | abi.QPRecvPB

func (l *lif) adminCreateQP(b []byte) error {
	var c abi.CreateQP
	c.Get(b)
	refuse := func(s abi.AdminStatus, why string) error {
		return abi.Refuse(s, "create QP %d: %s", c.ID, why)
	}
	switch {
	case c.ID >= l.qps.Limit() || c.ID == 0:
		return abi.Refuse(abi.AdminBadIndex, "create QP %d: id is not in 1 to %d", c.ID, l.qps.Limit()-1)
	case l.qps.Get(c.ID) != nil:
		return refuse(abi.AdminBadIndex, "exists")
	case c.Type != abi.TypeRC && c.Type != abi.TypeUC && c.Type != abi.TypeUD:
		return abi.Refuse(abi.AdminBadType, "create QP %d: type %d is not offered", c.ID, c.Type)
	case c.ID == abi.GSI && c.Type != abi.TypeUD:
		return refuse(abi.AdminBadType, "the GSI QP must be of type UD")
	case c.Flags&unoffered != 0 || c.Flags > 0xffff:
		return abi.Refuse(abi.AdminBadAttr, "create QP %d: flags %#x are not offered", c.ID, c.Flags)
	}
	q := &queuePair{
		lif: l, id: c.ID, typ: qp.Type(c.Type), dbid: c.DBID,
		sendCQ: l.cqs.Get(c.SQ.CQ), recvCQ: l.cqs.Get(c.RQ.CQ),
	}
	q.domain.Store(&mr.Domain{QP: c.ID, PD: c.PD, Flags: uint16(c.Flags) | mrRights})
	if q.sendCQ == nil || q.recvCQ == nil {
		return abi.Refuse(abi.AdminBadIndex, "create QP %d: completion queue %d or %d does not exist", c.ID, c.SQ.CQ, c.RQ.CQ)
	}
	if err := q.sq.init(l, &c.SQ); err != nil {
		q.free()
		return abi.Refuse(abi.AdminBadAttr, "create QP %d: send queue: %v", c.ID, err)
	}
	if err := q.rq.init(l, &c.RQ); err != nil {
		q.free()
		return abi.Refuse(abi.AdminBadAttr, "create QP %d: receive queue: %v", c.ID, err)
	}
	q.core = qp.New(qp.Config{Number: c.ID, Type: q.typ, Share: &l.engine.share, Pending: q.pending}, q)
	q.actor.Init(l.engine.sched, q, c.ID>>udmaShift^c.ID, c.ID == abi.GSI)
	q.sendCQ.Use()
	q.recvCQ.Use()
	if !l.qps.Add(c.ID, q) {
		q.free()
		q.sendCQ.Unuse()
		q.recvCQ.Unuse()
		return refuse(abi.AdminBadIndex, "exists")
	}
	return nil
}

func (q *queuePair) free() {
	q.sq.pages.Free(q.lif.budget)
	q.rq.pages.Free(q.lif.budget)
}

// end stops the QP for good. When it returns the QP touches no guest memory
// any more and no completion of it will appear.
func (q *queuePair) end() {
	q.core.Close()
	q.actor.Stop()
	q.sendCQ.Purge(q.id)
	q.recvCQ.Purge(q.id)
}

func (l *lif) adminDestroyQP(b []byte) error {
	var c abi.Destroy
	c.Get(b)
	q := l.qps.Get(c.ID)
	if q == nil {
		return abi.Refuse(abi.AdminBadIndex, "destroy QP %d: does not exist", c.ID)
	}
	q.end()
	if !l.engine.stats.retire(l, q) {
		return abi.Refuse(abi.AdminBadIndex, "destroy QP %d: was destroyed meanwhile", c.ID)
	}
	if p := q.path.Load(); p != nil {
		// The handle ends with its QP, unless the driver has given the id away.
		l.ahs.RemoveIf(p.ah, p.handle)
	}
	q.sendCQ.Unuse()
	q.recvCQ.Unuse()
	q.free()
	return nil
}

// template is the header template of a connected QP, nil before it has one.
func (q *queuePair) template() *header.Template {
	if p := q.path.Load(); p != nil {
		return p.handle.template
	}
	return nil
}

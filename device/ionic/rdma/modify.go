// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// adminModifyQP executes MODIFY_QP. What the mask does not name is garbage.
func (l *lif) adminModifyQP(b []byte) error {
	var c abi.ModifyQP
	c.Get(b)
	q := l.qps.Get(c.ID)
	if q == nil {
		return abi.Refuse(abi.AdminBadIndex, "modify QP %d: does not exist", c.ID)
	}
	if c.Flags&unoffered != 0 {
		return abi.Refuse(abi.AdminBadAttr, "modify QP %d: flags %#x are not offered", c.ID, c.Flags)
	}
	mask := qp.Mask(c.Mask)
	attr := qp.Attr{
		State: qp.State(c.State), Access: qp.Access(c.Flags) & (qp.RemoteWrite | qp.RemoteRead | qp.RemoteAtomic),
		SQDNotify: c.Flags&abi.QPSQDNotify != 0,
		QKey:      c.QKeyDestQPN, DestQPN: c.QKeyDestQPN & abi.QIDMask,
		PathMTU: c.PMTU, Timeout: c.Timeout, RetryCnt: c.RetryCnt, RNRRetry: c.RNRRetry,
		MinRNRTimer: c.RNRTimer, RQPSN: c.RQPSN & packet.PSNMask, SQPSN: c.SQPSN & packet.PSNMask,
		MaxRead: c.RRQDepth, MaxDestRead: c.RSQDepth, RateLimit: c.RateLimit,
	}
	var handle *addressHandle
	if mask&qp.MaskAV != 0 {
		if c.AH >= l.ahs.Limit() {
			return abi.Refuse(abi.AdminBadIndex, "modify QP %d: address handle %d, there are %d", c.ID, c.AH, l.ahs.Limit())
		}
		t, err := l.template(c.DMA, uint32(c.TemplateLen))
		if err != nil {
			return abi.Refuse(abi.AdminBadAttr, "modify QP %d: %v", c.ID, err)
		}
		handle = &addressHandle{pd: q.domain.Load().PD, template: t}
		attr.Dest = packet.Address{GID: t.DstGID, MAC: t.DstMAC}
		attr.SrcGID = t.SrcGID
	}
	if err := q.core.Modify(mask, &attr); err != nil {
		var state *qp.StateError
		if errors.As(err, &state) {
			return abi.Refuse(abi.AdminBadState, "%v", err)
		}
		return abi.Refuse(abi.AdminBadAttr, "%v", err)
	}
	q.carry(c.Flags)
	if mask&qp.MaskState != 0 && attr.State == qp.Reset {
		q.restart()
	}
	if handle != nil {
		q.tally.Share(l.engine.ways.to(handle.template.DstMAC))
		l.ahs.Replace(c.AH, handle)
		if old := q.path.Swap(&path{ah: c.AH, handle: handle}); old != nil && old.ah != c.AH {
			l.ahs.RemoveIf(old.ah, old.handle)
		}
		l.seen(handle.template, SourceQP)
	}
	q.actor.Schedule()
	return nil
}

// carried are the QP flags that the driver repeats in every MODIFY_QP whatever
// the mask: privileges of the protection domain, and layouts of the rings.
const carried = abi.QPSendSpec | abi.QPRecvSpec | abi.QPRemotePrivileged | abi.QPPrivileged

// carry takes over the flags of a MODIFY_QP that no mask bit guards.
func (q *queuePair) carry(flags uint16) {
	d := *q.domain.Load()
	now := d.Flags&^carried | flags&carried
	if now != d.Flags {
		d.Flags = now
		q.domain.Store(&d)
	}
}

// restart puts the rings back to what CREATE_QP made, after the core has gone
// to RESET: the driver starts again at index 0 and scrubs the CQs.
func (q *queuePair) restart() {
	q.sq.reset()
	q.rq.reset()
	q.unheard.Store(false)
	q.untold = false
	q.flushing.Store(false)
	q.sendCQ.Purge(q.id)
	q.recvCQ.Purge(q.id)
}

// adminQueryQP executes QUERY_QP with the values of this moment.
func (l *lif) adminQueryQP(b []byte) error {
	var c abi.QueryQP
	c.Get(b)
	q := l.qps.Get(c.ID)
	if q == nil {
		return abi.Refuse(abi.AdminBadIndex, "query QP %d: does not exist", c.ID)
	}
	t := q.template()
	if c.HeaderDMA != 0 && q.typ != qp.RC && t == nil {
		// After a success the driver would read an address vector it never
		// stored, and oops.
		return abi.Refuse(abi.AdminBadAttr, "query QP %d: the QP has no address vector", c.ID)
	}
	a := q.core.Query()
	flags := q.domain.Load().Flags&^mrRights | uint16(a.Access)
	if a.Draining {
		flags |= abi.QPSQDraining
	}
	if a.SQDNotify {
		flags |= abi.QPSQDNotify
	}
	peer := a.DestQPN
	if q.typ == qp.UD {
		peer = a.QKey
	}
	// The driver asks for rrq_depth = ceil(log2(n+2)) - 1, room for 2^(depth+1)-2
	// requests, and reads back 2^depth - 1: one more is the least answer that
	// does not tell the consumer of fewer than it asked for.
	reads := a.MaxRead
	if reads > 0 {
		reads++
	}
	var sq [abi.QuerySQLen]byte
	(&abi.QuerySQ{
		RNRTimer: a.MinRNRTimer, Timeout: a.Timeout, Flags: flags, QKeyDestQPN: peer,
		RateLimit: a.RateLimit, RQPSN: a.RQPSN,
	}).Put(sq[:])
	var rq [abi.QueryRQLen]byte
	(&abi.QueryRQ{
		State: uint8(a.State), PMTU: a.PathMTU, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		RRQDepth: reads, RSQDepth: a.MaxDestRead, SQPSN: a.SQPSN, Flags: flags,
	}).Put(rq[:])
	err := errors.Join(l.mem.WriteAt(sq[:], c.SQDMA), l.mem.WriteAt(rq[:], c.RQDMA))
	if err == nil && c.HeaderDMA != 0 && t != nil {
		err = l.mem.WriteAt(t.Raw[:t.Len], c.HeaderDMA)
	}
	if err != nil {
		return abi.Refuse(abi.AdminBadAttr, "query QP %d: %v", c.ID, err)
	}
	return nil
}

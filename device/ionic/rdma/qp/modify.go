// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// StateError is a transition that the state machine does not have.
type StateError struct {
	QP       uint32
	From, To State
}

// Error names the QP and the transition.
func (e *StateError) Error() string {
	return fmt.Sprintf("modify QP %d: no transition from %v to %v", e.QP, e.From, e.To)
}

// AttrError is an attribute that is missing, out of range, or out of place in
// a transition.
type AttrError struct {
	QP     uint32
	Attr   Mask // the attributes at fault
	From   State
	To     State
	Reason string
}

// Error names the QP, the attributes and what is wrong with them.
func (e *AttrError) Error() string {
	return fmt.Sprintf("modify QP %d (%v to %v): %v %s", e.QP, e.From, e.To, e.Attr, e.Reason)
}

// maxDepth is the largest rrq_depth and rsq_depth (log2) taken from the guest.
const maxDepth = 8

// Attributes that belong to one transition alone.
const (
	rtrOnly = MaskPathMTU | MaskRQPSN | MaskDestQPN
	rtsOnly = MaskSQPSN
	rtrNeed = rtrOnly | MaskAV
)

// Modify changes the attributes that mask names and makes the transition it
// asks for. It changes nothing when it returns an error (*StateError or
// *AttrError). It does not wait for any peer; the caller schedules a Step
// after it. No completion is written after a transition to RESET.
func (q *QP) Modify(mask Mask, a *Attr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	from, to := q.state, q.state
	if mask&MaskState != 0 {
		to = a.State
		if !mayGo(from, to) {
			return &StateError{q.num, from, to}
		}
	}
	if q.closed {
		return &StateError{q.num, from, to}
	}
	if err := q.checkAttr(from, to, mask, a); err != nil {
		return err
	}
	if to == Reset && mask&MaskState != 0 {
		q.clear()
		return nil
	}
	if mask&MaskState != 0 && to == SQD && from != SQD {
		q.attr.SQDNotify = false // asked for with each transition
	}
	q.apply(mask, a)
	if mask&MaskState != 0 {
		q.enter(from, to)
	}
	return nil
}

// mayGo is the transition table: what the IB core lets pass.
func mayGo(from, to State) bool {
	switch to {
	case Reset, Err:
		return from <= Err
	case Init:
		return from == Reset || from == Init
	case RTR:
		return from == Init
	case RTS:
		return from == RTR || from == RTS || from == SQD || from == SQE
	case SQD:
		return from == RTS || from == SQD
	}
	return false // SQE is not entered by command
}

func (q *QP) checkAttr(from, to State, mask Mask, a *Attr) error {
	bad := func(m Mask, reason string) error { return &AttrError{q.num, m, from, to, reason} }
	if to == Reset || to == Err {
		return nil
	}
	moves := mask&MaskState != 0 && from != to
	if m := mask & rtrOnly; m != 0 && (to > RTR || from > Init) {
		return bad(m, "can be set up to the transition to RTR only")
	}
	if m := mask & rtsOnly; m != 0 && (to > RTS || from > RTR) {
		return bad(m, "can be set up to the transition to RTS only")
	}
	if moves && to == RTR && q.connected() && mask&rtrNeed != rtrNeed {
		return bad(rtrNeed&^mask, "missing")
	}
	if moves && from == RTR && to == RTS && mask&rtsOnly != rtsOnly {
		return bad(rtsOnly&^mask, "missing")
	}
	if mask&MaskPathMTU != 0 && (a.PathMTU < 8 || a.PathMTU > 12) {
		return bad(MaskPathMTU, fmt.Sprintf("is 1<<%d bytes, need 1<<8 to 1<<12", a.PathMTU))
	}
	if mask&MaskRateLimit != 0 && q.typ != RC {
		return bad(MaskRateLimit, "is offered for RC only")
	}
	if mask&MaskMaxRead != 0 && a.MaxRead > maxDepth {
		return bad(MaskMaxRead, fmt.Sprintf("is 1<<%d, at most 1<<%d", a.MaxRead, maxDepth))
	}
	if mask&MaskMaxDestRead != 0 && a.MaxDestRead > maxDepth {
		return bad(MaskMaxDestRead, fmt.Sprintf("is 1<<%d, at most 1<<%d", a.MaxDestRead, maxDepth))
	}
	return nil
}

// apply takes over the attributes of the mask; the others are garbage.
func (q *QP) apply(mask Mask, a *Attr) {
	has := func(m Mask) bool { return mask&m != 0 }
	if has(MaskSQDNotify) {
		q.attr.SQDNotify = a.SQDNotify
	}
	if has(MaskAccess) {
		q.attr.Access = a.Access & (RemoteWrite | RemoteRead | RemoteAtomic)
	}
	if has(MaskQKey) {
		q.attr.QKey = a.QKey
	}
	if has(MaskAV) {
		q.attr.Dest, q.attr.SrcGID = a.Dest, a.SrcGID
		q.req.unpark() // it names the old path; it is built again
	}
	if has(MaskPathMTU) {
		q.attr.PathMTU, q.shift = a.PathMTU, a.PathMTU
	}
	if has(MaskTimeout) {
		q.attr.Timeout = a.Timeout & 0x1f
	}
	if has(MaskRetryCnt) {
		q.attr.RetryCnt = a.RetryCnt & 7
	}
	if has(MaskRNRRetry) {
		q.attr.RNRRetry = a.RNRRetry & 7
	}
	if has(MaskRQPSN) {
		q.resp.start(a.RQPSN)
	}
	if has(MaskMaxRead) {
		q.attr.MaxRead = a.MaxRead
	}
	if has(MaskMinRNRTimer) {
		q.attr.MinRNRTimer = a.MinRNRTimer & 0x1f
	}
	if has(MaskSQPSN) {
		q.req.start(a.SQPSN)
	}
	if has(MaskMaxDestRead) {
		q.attr.MaxDestRead = a.MaxDestRead
	}
	if has(MaskDestQPN) {
		q.attr.DestQPN = a.DestQPN & packet.QPNMask
	}
	if has(MaskRateLimit) {
		q.attr.RateLimit = a.RateLimit
		q.req.paceUntil = time.Time{}
	}
}

// enter makes the transition itself.
func (q *QP) enter(from, to State) {
	switch {
	case to == Err:
		if from != Err {
			q.enterErr(nil)
		}
	case to == SQD:
		q.drained = q.drained && from == SQD
		q.state = SQD
		q.noteDrained()
	case from == SQE && to == RTS:
		q.discardPosted()
		q.state = RTS
	default:
		q.state = to
	}
}

// discardPosted skips what the guest posted while the send queue was in
// error: its driver has flushed all of that itself.
func (q *QP) discardPosted() {
	var w SendWork
	for q.env.FetchSend(&w) {
		if q.connected() && !w.Op.local() {
			q.req.msn++
		}
	}
}

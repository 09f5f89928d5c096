// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

// sendFaults says under which counter a failed send is counted besides
// ReqCQEErr.
var sendFaults = map[Status]Counter{
	LocalLenErr: ReqLocalOperErr, LocalQPOperErr: ReqLocalOperErr,
	LocalProtErr: ReqLocalAccessErr, LocalAccErr: ReqLocalAccessErr,
	MemMgmtErr: ReqMemMgmtErr, BadRespErr: ReqInvalidPkt,
	RemoteInvReqErr: ReqRemoteInvReqErr, RemoteAccErr: ReqRemoteAccessErr,
	RemoteOperErr: ReqRemoteOperErr,
}

func (q *QP) countFault(st Status) {
	if c, ok := sendFaults[st]; ok {
		q.env.Count(c, 1)
	}
}

// failOldest fails the oldest message. Everything before it has succeeded.
func (q *QP) failOldest(st Status) {
	if q.req.ring.head != q.req.ring.tail {
		q.failSend(q.req.ring.at(q.req.ring.head), st)
	}
}

// excuse turns a faulty message of the GSI QP into one that is complete. For
// any other QP it returns false, and the message fails once it is the oldest.
func (q *QP) excuse(m *message) bool {
	if q.typ != UD || q.num != gsiNumber {
		q.retire()
		return false
	}
	q.countFault(m.bad)
	m.bad = OK
	m.done = true
	q.req.cur++
	q.retire()
	return true
}

// failSend completes the oldest message with an error. A reliable QP is then
// of no use any more; an unreliable one keeps its receive queue.
func (q *QP) failSend(m *message, st Status) {
	q.countFault(st)
	q.env.Count(ReqCQEErr, 1)
	if m.Op.local() || !q.connected() || m.Unreadable {
		q.env.CompleteNPG(m.Index, st, true)
	} else {
		q.env.CompleteMSN(m.msn, st, true)
	}
	if q.typ == RC {
		q.enterErr(nil)
		return
	}
	q.state = SQE
	q.req.halt()
	q.flushSend()
}

// Fail takes the QP to ERR because its completions do not reach the guest any
// more: the guest hears of it by the event alone. Like Modify it must be
// followed by a Step.
func (q *QP) Fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.state == Reset || q.state == Err {
		return
	}
	q.enterErr(nil)
	q.env.Event(EventQPFatal)
}

// enterErr takes the QP to state ERR: work in progress is dropped and each
// queue gets its one flush completion. keep is a NAK the peer must still get.
func (q *QP) enterErr(keep *packet.Packet) {
	sqe := q.state == SQE
	q.state = Err
	q.halt(keep)
	if !sqe {
		q.flushSend()
	}
	q.env.FlushRecv()
	q.env.Count(RespCQEFlush, 1)
}

func (q *QP) flushSend() {
	q.env.FlushSend()
	q.env.Count(ReqCQEFlush, 1)
}

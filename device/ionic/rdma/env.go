// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/ionic/rdma/wqe"
)

var _ qp.Env = (*queuePair)(nil)

// FetchSend implements qp.Env.
func (q *queuePair) FetchSend(w *qp.SendWork) bool {
	b, index, readable, ok := q.sq.fetch(q.lif.mem)
	if !ok {
		return false
	}
	if !readable {
		*w = qp.SendWork{Index: uint16(index), Signaled: true, Bad: qp.LocalQPOperErr, Unreadable: true}
		return true
	}
	wqe.Send(w, b, uint16(index), q.typ, q.lif.engine.config.Opcodes)
	return true
}

// FetchRecv implements qp.Env.
func (q *queuePair) FetchRecv(r *qp.RecvWork) bool {
	b, _, readable, ok := q.rq.fetch(q.lif.mem)
	if !ok {
		return false
	}
	if !readable {
		*r = qp.RecvWork{Bad: qp.LocalQPOperErr, Unreadable: true}
		return true
	}
	wqe.Recv(r, b)
	return true
}

// CompleteMSN implements qp.Env. A success the guest did not ask to hear of is
// told with the next completion.
func (q *queuePair) CompleteMSN(msn uint32, st qp.Status, signaled bool) {
	if q.untold = !signaled && st == qp.OK; q.untold {
		q.untoldMSN = msn
		return
	}
	c := abi.CQE{Type: abi.CQESendMSN, QID: q.id, MSN: msn}
	q.completeSend(&c, st)
}

// CompleteNPG implements qp.Env. The driver waits for the completion of local
// work and datagrams, signalled or not. It takes work off its queue in order, so
// it must know of the messages before this one.
func (q *queuePair) CompleteNPG(index uint16, st qp.Status, _ bool) {
	if q.untold {
		q.untold = false
		c := abi.CQE{Type: abi.CQESendMSN, QID: q.id, MSN: q.untoldMSN}
		q.completeSend(&c, qp.OK)
	}
	c := abi.CQE{Type: abi.CQESendNPG, QID: q.id, WQEID: uint64(index)}
	q.completeSend(&c, st)
}

func (q *queuePair) completeSend(c *abi.CQE, st qp.Status) {
	if st == qp.OK {
		q.heard(q.sendCQ.Post(c, false))
		return
	}
	c.Error, c.StatusLength = true, uint32(st)
	flush := q.sendFlush()
	q.heard(q.sendCQ.PostFailed(c, &flush))
	q.sendFlushed = true
}

// CompleteRecv implements qp.Env.
func (q *queuePair) CompleteRecv(r *qp.RecvCompletion) {
	c := abi.CQE{Type: abi.CQERecv, QID: q.id, WQEID: r.ID}
	if r.Status != qp.OK {
		c.Error, c.StatusLength = true, uint32(r.Status)
		flush := q.recvFlush()
		q.heard(q.recvCQ.PostFailed(&c, &flush))
		q.recvFlushed = true
		return
	}
	c.StatusLength = r.Length
	c.SrcQPNOp = r.SrcQPN&abi.QIDMask | uint32(r.Op)<<abi.RecvOpShift
	c.Imm = r.Imm
	if q.typ == qp.UD {
		c.SrcMAC, c.VLAN = r.SrcMAC, r.VLAN
		if r.Path&packet.PathIPv4 != 0 {
			c.SrcQPNOp |= abi.RecvIPv4
		}
		if r.Path&packet.PathVLAN != 0 {
			c.SrcQPNOp |= abi.RecvVLAN
		}
	}
	q.heard(q.recvCQ.Post(&c, r.Solicited))
}

// heard notes whether a completion reaches the guest. A QP with one that does
// not ends, after the Step at hand.
func (q *queuePair) heard(ok bool) {
	if !ok {
		q.unheard.Store(true)
	}
}

// sendFlush is the flush CQE of the send queue, for all that is posted by now.
func (q *queuePair) sendFlush() abi.CQE {
	q.sendFlushedTo = q.sq.prod.Load()
	return abi.CQE{Type: abi.CQESendNPG, QID: q.id, Error: true, StatusLength: abi.StatusFlushed}
}

// recvFlush is the same of the receive queue, whose doorbells count from here on.
func (q *queuePair) recvFlush() abi.CQE {
	q.flushing.Store(true)
	q.recvFlushedTo = q.rq.prod.Load()
	return abi.CQE{Type: abi.CQERecv, QID: q.id, Error: true, StatusLength: abi.StatusFlushed}
}

// FlushSend implements qp.Env. A failed request, which a flush always follows,
// has brought it along.
func (q *queuePair) FlushSend() {
	if !q.sendFlushed {
		c := q.sendFlush()
		q.sendCQ.Post(&c, true)
	}
	q.sendFlushed = false
}

// FlushRecv implements qp.Env.
func (q *queuePair) FlushRecv() {
	if !q.recvFlushed {
		c := q.recvFlush()
		q.recvCQ.Post(&c, true)
	}
	q.recvFlushed = false
}

// FlushAgain implements qp.Env. The driver flushes what is posted in ERR by
// itself and calls the consumer of the CQ, but the call is lost if that one is
// about to end a poll on another CPU: ionic_req_notify_cq looks for CQEs, and
// there is none, so a drain never ends. A second flush CQE changes nothing else:
// the driver passes over it once it flushes a queue. The entry posted has paid for
// its place in the CQ.
func (q *queuePair) FlushAgain(recv bool) {
	if q.sq.prod.Load() != q.sendFlushedTo {
		c := q.sendFlush()
		q.sendCQ.Post(&c, true)
	}
	if recv && q.rq.prod.Load() != q.recvFlushedTo {
		c := q.recvFlush()
		q.recvCQ.Post(&c, true)
	}
}

// Event implements qp.Env.
func (q *queuePair) Event(e qp.Event) {
	if events := q.lif.eventQueue(q.id); events != nil {
		events.Post(abi.EQE{Type: abi.EventQP, Code: uint8(e), QID: q.id}, nil)
		return
	}
	q.lif.engine.stats.events.Lost.Add(1)
}

// Address implements qp.Env.
func (q *queuePair) Address(ah uint32, n int, imm bool, h *packet.Header) (packet.Address, bool) {
	a := q.lif.ahs.Get(ah)
	if a == nil || a.pd != q.domain.Load().PD {
		return packet.Address{}, false
	}
	t := a.template
	h.SrcGID, h.DstGID, h.SrcMAC = t.SrcGID, t.DstGID, t.SrcMAC
	h.VLAN, h.Path = t.TCI, 0
	if t.IPv4 {
		h.Path |= packet.PathIPv4
	}
	if t.Tagged {
		h.Path |= packet.PathVLAN
	}
	t.GRH(&h.GRH, n, imm)
	return packet.Address{GID: t.DstGID, MAC: t.DstMAC}, true
}

// Wake implements qp.Env.
func (q *queuePair) Wake(t time.Time) { q.actor.Wake(t) }

// Count implements qp.Env. Only the holder of the core's lock writes.
func (q *queuePair) Count(c qp.Counter, n uint64) {
	q.counters[c].Store(q.counters[c].Load() + n)
}

// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// asyncEvents reads the two event queues that no completion queue uses, and
// tells what the driver would dispatch.
func (n *node) asyncEvents() (list []string) {
	n.settle()
	for _, q := range n.eqs[:2] {
		for _, e := range n.isr(q) {
			if e.Type != abi.EventQP {
				n.t.Errorf("event of type %d for queue %d", e.Type, e.QID)
			}
			list = append(list, fmt.Sprintf("QP %d %v", e.QID, qp.Event(e.Code)))
		}
	}
	return list
}

func (n *node) expectEvents(want ...string) {
	n.t.Helper()
	if got := n.asyncEvents(); !slices.Equal(got, want) {
		n.t.Errorf("asynchronous events %q, want %q", got, want)
	}
}

// lost is memory that the guest takes away with loseIt.
func (n *node) lost() uint64 { return testram.Base + n.ram.Size/2 }

func (n *node) loseIt() {
	n.t.Helper()
	if err := n.ram.Space.Unmap(n.lost(), n.ram.Size/2); err != nil {
		n.t.Fatal(err)
	}
}

// The first request that reaches a QP in RTR says that the peer is there.
func TestEvents_CommunicationEstablished(t *testing.T) {
	for _, typ := range []uint8{abi.TypeRC, abi.TypeUC} {
		bubble(t, func(t *testing.T) {
			f := newFabric()
			a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
			a.probe()
			b.probe()
			pa, pb := a.createQP(qpOptions{typ: typ}), b.createQP(qpOptions{typ: typ})
			pa.connect(pb)
			pb.toInit()
			pb.toRTR(pa)
			src, key := a.region(4096, 0, mrAll)
			dst, dkey := b.region(4096, 0, mrAll)
			for range 3 {
				pb.postRecv(1, sge{dst, 64, dkey})
				pa.postSend(pa.send(abi.OpSend, sge{src, 8, key}))
			}
			b.expectEvents(fmt.Sprintf("QP %d COMM_EST", pb.id))
			pb.toRTS()
			pb.postRecv(1, sge{dst, 64, dkey})
			pa.postSend(pa.send(abi.OpSend, sge{src, 8, key}))
			b.expectEvents()
			a.expectEvents()
		})
	}
}

// A responder that refuses says so by an event; the requester hears of it by a
// completion alone.
func TestEvents_OfARefusingResponder(t *testing.T) {
	for _, c := range []struct {
		name, event string
		post        func(pa *pair, src uint64, skey uint32, dst uint64, dkey uint32)
	}{
		{"key", "ACCESS_ERR", func(pa *pair, src uint64, skey uint32, dst uint64, dkey uint32) {
			pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey+1))
		}},
		{"range", "ACCESS_ERR", func(pa *pair, src uint64, skey uint32, dst uint64, dkey uint32) {
			pa.postSend(pa.send(abi.OpRead, sge{src, 8, skey}).remote(dst+4089, dkey))
		}},
		{"misaligned atomic", "REQ_ERR", func(pa *pair, src uint64, skey uint32, dst uint64, dkey uint32) {
			w := pa.send(abi.OpAtomicFA).remote(dst+4, dkey).u8(abi.WQENumSGE, 1)
			pa.postSend(w.u64(abi.AtomicSGE, src).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, skey))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, abi.TypeRC)
				src, skey := a.region(4096, 0, mrAll)
				dst, dkey := b.region(4096, 0, mrAll)
				c.post(pa, src, skey, dst, dkey)
				b.expectEvents(fmt.Sprintf("QP %d %s", pb.id, c.event))
				a.expectEvents()
			})
		})
	}
}

// SQD ends with an event if the transition asked for it: once what was begun
// is done, and not before.
func TestEvents_SendQueueDrained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey})) // the peer has no receive yet
		a.settle()
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x5, State: 4, Flags: abi.QPSQDNotify, ID: pa.id})
		a.expectEvents()
		if q := a.query(pa.id); q.flags&abi.QPSQDraining == 0 || q.flags&abi.QPSQDNotify == 0 || q.state != 4 {
			t.Errorf("while draining: state %d, flags %#x", q.state, q.flags)
		}
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey})) // waits for RTS
		pb.postRecv(1, sge{dst, 64, dkey})
		pb.postRecv(2, sge{dst, 64, dkey})
		time.Sleep(second)
		a.expect(pa.scq, msnCQE(1, pa.id))
		a.expectEvents(fmt.Sprintf("QP %d SQ_DRAINED", pa.id))
		if q := a.query(pa.id); q.flags&abi.QPSQDraining != 0 || q.state != 4 {
			t.Errorf("drained: state %d, flags %#x", q.state, q.flags)
		}
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 4, ID: pa.id})
		a.expectEvents() // once for each stay
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 3, ID: pa.id})
		a.expect(pa.scq, msnCQE(2, pa.id))
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 4, ID: pa.id})
		a.expectEvents() // nobody asked
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 3, ID: pa.id})
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x5, State: 4, Flags: abi.QPSQDNotify, ID: pa.id})
		a.expectEvents(fmt.Sprintf("QP %d SQ_DRAINED", pa.id)) // there was nothing to drain
	})
}

// queried is what QUERY_QP says of state and flags.
type queried struct {
	state uint8
	flags uint16
	rate  uint32
}

func (n *node) query(id uint32) queried {
	n.t.Helper()
	buf := n.ram.Alloc(8192)
	n.must(abi.AdminQueryQP, &abi.QueryQP{SQDMA: buf, RQDMA: buf + 4096, ID: id})
	var sq abi.QuerySQ
	var rq abi.QueryRQ
	sq.Get(n.ram.Read(buf, abi.QuerySQLen))
	rq.Get(n.ram.Read(buf+4096, abi.QueryRQLen))
	n.ram.Free(buf, 8192)
	return queried{rq.State, sq.Flags | rq.Flags, sq.RateLimit}
}

// A receive queue whose memory is gone cannot be completed: the tokens in it
// are unknown. The guest hears of it by an event, its queues are flushed, and
// the peer is told that the operation failed.
func TestEvents_FatalWhenTheReceiveQueueIsLost(t *testing.T) {
	for _, typ := range []uint8{abi.TypeRC, abi.TypeUC} {
		bubble(t, func(t *testing.T) {
			f := newFabric()
			a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
			a.probe()
			b.probe()
			pa, pb := a.createQP(qpOptions{typ: typ}), b.createQP(qpOptions{typ: typ, rq: b.lost()})
			pa.connect(pb)
			pb.connect(pa)
			src, key := a.region(4096, 0, mrAll)
			dst, dkey := b.region(4096, 0, mrAll)
			pb.postRecv(0x77, sge{dst, 64, dkey})
			b.loseIt()
			pa.postSend(pa.send(abi.OpSend, sge{src, 8, key}))
			b.expectEvents(fmt.Sprintf("QP %d QP_FATAL", pb.id))
			b.expect(pb.rcq, npgErr(0, pb.id, qp.Flushed), recvErr(0, pb.id, qp.Flushed))
			if typ == abi.TypeRC {
				a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteOperErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
			} else {
				a.expect(pa.scq, msnCQE(1, pa.id))
			}
		})
	}
}

// A send queue entry that cannot be read fails by its index: whether it was a
// message, and which, nobody knows.
func TestEvents_LostSendQueueEntryFailsByIndex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		pa, pb := a.createQP(qpOptions{sq: a.lost()}), b.createQP(qpOptions{})
		pa.connect(pb)
		pb.connect(pa)
		src, key := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, key}).remote(dst, dkey))
		a.expect(pa.scq, msnCQE(1, pa.id))
		a.loseIt()
		a.ring(0, 5, abi.Doorbell{Index: 2, QID: pa.id})
		a.expect(pa.scq, npgErr(1, pa.id, qp.LocalQPOperErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		a.expectEvents()
	})
}

// A completion that cannot reach the guest ends its QP: the CQ and the QP each
// raise their event, and others go on.
func TestEvents_FatalWhenTheCompletionQueueIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		gone := a.createCQAt(a.lost(), 8, 0)
		pa, pb := a.createQP(qpOptions{scq: gone}), b.createQP(qpOptions{})
		pa.connect(pb)
		pb.connect(pa)
		other, peer := a.createQP(qpOptions{}), b.createQP(qpOptions{})
		other.connect(peer)
		peer.connect(other)
		src, key := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		a.loseIt()
		a.isr(a.eqs[2])
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, key}).remote(dst, dkey))
		a.expectEvents(fmt.Sprintf("QP %d QP_FATAL", pa.id))
		var failed []uint32
		for _, e := range a.isr(a.eqs[2]) {
			if e.Type == abi.EventCQ && e.Code == abi.EventCQError {
				failed = append(failed, e.QID)
			}
		}
		if !slices.Equal(failed, []uint32{gone.id}) {
			t.Errorf("completion queues that failed: %v, want %d", failed, gone.id)
		}
		if q := a.query(pa.id); q.state != uint8(qp.Err) {
			t.Errorf("the QP is in state %d", q.state)
		}
		other.postSend(other.send(abi.OpWrite, sge{src, 8, key}).remote(dst, dkey))
		a.expect(other.scq, msnCQE(1, other.id))
		if n := a.metric("rdma_cq_overflows"); n != 1 {
			t.Errorf("%d queues counted as lost, want 1", n)
		}
	})
}

// An event for which the driver has made no queue is counted, and nothing else
// comes of it.
func TestEvents_WithoutTheirQueueAreCountedAsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probeEQs(2)
		pa, pb := a.createQP(qpOptions{}), b.createQP(qpOptions{})
		pa.connect(pb)
		pb.connect(pa)
		src, key := a.region(4096, 0, mrAll)
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, key}).remote(0x5000, 1))
		a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteAccErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		b.expect(pb.rcq, npgErr(0, pb.id, qp.Flushed), recvErr(0, pb.id, qp.Flushed))
		// COMM_EST is not raised in RTS, so ACCESS_ERR is the only one.
		if w, l := b.metric("rdma_events_waited"), b.metric("rdma_events_lost"); w != 0 || l != 1 {
			t.Errorf("%d events waited and %d are lost, want 0 and 1", w, l)
		}
		b.engine.Reset()
		if l := b.metric("rdma_events_lost"); l != 0 {
			t.Errorf("%d events are lost after a reset", l)
		}
	})
}

// A rate limit spaces what the send queue sends, and a query tells it. The
// acknowledgement timer does not run out meanwhile.
func TestRateLimit_IsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, _ := twoNodes(t, abi.TypeRC)
		const size = 4 << 20
		src, skey := a.region(size, 0, mrAll)
		dst, dkey := b.region(size, 0, mrAll)
		const kbps = 8 << 10 // a MiB a second, but for the decimal kilo
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1<<25 | 1, State: 3, RateLimit: kbps, ID: pa.id})
		if q := a.query(pa.id); q.rate != kbps {
			t.Errorf("a query tells a limit of %d, want %d", q.rate, kbps)
		}
		begin := time.Now()
		pa.postSend(pa.send(abi.OpWrite, sge{src, size, skey}).remote(dst, dkey))
		for {
			a.settle()
			if c, ok := a.poll(pa.scq); ok {
				if c.Error {
					t.Fatalf("status %d", c.StatusLength)
				}
				break
			}
			time.Sleep(time.Millisecond)
		}
		// The last of 16 packets need not wait for itself.
		want := time.Duration(size-size/16) * 8 * time.Millisecond / kbps
		if d := time.Since(begin); d < want-11*time.Millisecond || d > want+2*time.Millisecond {
			t.Errorf("%d bytes took %v, want %v", size, d, want)
		}
		if n := a.metric("tx_rdma_ack_timeout"); n != 0 {
			t.Errorf("%d timeouts", n)
		}
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1<<25 | 1, State: 3, ID: pa.id})
		begin = time.Now()
		pa.postSend(pa.send(abi.OpWrite, sge{src, size, skey}).remote(dst, dkey))
		a.expect(pa.scq, msnCQE(2, pa.id))
		if d := time.Since(begin); d != 0 {
			t.Errorf("without a limit %d bytes took %v", size, d)
		}
		u := a.createQP(qpOptions{typ: abi.TypeUC})
		if st := a.status(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1<<25 | maskInitRC, State: 1, RateLimit: 1, ID: u.id}); st != abi.AdminBadAttr {
			t.Errorf("a rate limit for UC: %v", st)
		}
	})
}

// A packet that was lost may be sent again only when the rate limit lets it: until
// then no acknowledgement can come, and none is waited for.
func TestRateLimit_WaitingToSendAgainCostsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCounted(t)
		const size, kbps = 256 << 10, 1 << 10 // 2 s
		src, skey := c.a.region(size, 0, mrAll)
		dst, dkey := c.b.region(size, 0, mrAll)
		want := c.a.fill(src, size, 5)
		c.a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1<<25 | 1, State: 3, RateLimit: kbps, ID: c.pa.id})
		before := [2]tally{c.a.counters(), c.b.counters()}
		c.lose(0, func(p *packet.Packet) bool { return p.Op.IsRequest() })
		c.pa.postSend(c.pa.send(abi.OpWrite, sge{src, size, skey}).remote(dst, dkey))
		time.Sleep(10 * second)
		c.a.expect(c.pa.scq, msnCQE(1, c.pa.id))
		if !bytes.Equal(c.b.ram.Read(dst, size), want) {
			t.Error("the payload differs")
		}
		if got, want := c.a.errorCounters(before[0]), (tally{"tx_rdma_ack_timeout": 1, "tx_rdma_retx_pkts": 1, "tx_rdma_retx_bytes": size}); !maps.Equal(got, want) {
			t.Errorf("counters of the requester %v, want %v", got, want)
		}
		if got := c.b.errorCounters(before[1]); len(got) > 0 {
			t.Errorf("counters of the responder %v, want none", got)
		}
	})
}

// The limit is one of the send queue: what a peer reads is not held back by it.
func TestRateLimit_LeavesAnswersAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		const size = 4 << 20
		src, skey := a.region(size, 0, mrAll)
		dst, dkey := b.region(size, 0, mrAll)
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1<<25 | 1, State: 3, RateLimit: 1, ID: pa.id})
		begin := time.Now()
		pb.postSend(pb.send(abi.OpRead, sge{dst, size, dkey}).remote(src, skey))
		b.expect(pb.scq, msnCQE(1, pb.id))
		if d := time.Since(begin); d != 0 {
			t.Errorf("a READ from a QP with a limit took %v", d)
		}
	})
}

// The flags that no mask bit guards are those of every MODIFY_QP: privileges
// come and go with them, and a query tells them.
func TestAdmin_ModifyTakesTheUnguardedFlags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		const all = abi.QPSendSpec | abi.QPRecvSpec | abi.QPRemotePrivileged | abi.QPPrivileged
		pa, pb := a.createQP(qpOptions{flags: all}), b.createQP(qpOptions{flags: all})
		pa.connect(pb)
		pb.connect(pa)
		if q := a.query(pa.id); q.flags != all|allRights {
			t.Errorf("flags %#x, want %#x", q.flags, all|allRights)
		}
		at, there := a.ram.Alloc(4096), b.ram.Alloc(4096)
		pa.postSend(pa.send(abi.OpWrite, sge{at, 8, 0}).remote(there, 0))
		a.expect(pa.scq, msnCQE(1, pa.id))
		// Without its privilege the QP has no key 0 any more.
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 3, Flags: abi.QPSendSpec, ID: pa.id})
		if q := a.query(pa.id); q.flags != abi.QPSendSpec|allRights {
			t.Errorf("flags %#x, want %#x", q.flags, abi.QPSendSpec|allRights)
		}
		pa.postSend(pa.send(abi.OpWrite, sge{at, 8, 0}).remote(there, 0))
		a.expect(pa.scq, msnErr(2, pa.id, qp.LocalProtErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		for _, flags := range []uint16{abi.QPSendCMB, abi.QPRecvCMB, abi.QPSendPB, abi.QPRecvPB} {
			if st := b.status(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 3, Flags: flags, ID: pb.id}); st != abi.AdminBadAttr {
				t.Errorf("flags %#x: %v", flags, st)
			}
		}
	})
}

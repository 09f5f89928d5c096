// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// Failures that devices of this class are known for, one test each, on the
// whole engine with guest memory, rings and interrupts. docs/regressions.md
// lists them together with those of the parts.

func TestRegression_InterruptWhileMaskedIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		p := n.createQP(qpOptions{})
		p.connect(p)
		at, key := n.region(4096, 0, mrAll)
		vec := n.eqs[2].vec
		n.isr(n.eqs[2])
		for i := range 5 {
			n.intrWrite(vec, 4, 1)
			before := n.interrupts(vec)
			n.arm(p.scq, abi.RingArm)
			p.postSend(p.send(abi.OpWrite, sge{at, 8, key}).remote(at+64, key))
			n.settle()
			if got := n.interrupts(vec); got != before {
				t.Fatalf("round %d: a masked vector was raised", i)
			}
			n.intrWrite(vec, 4, 0)
			if got := n.interrupts(vec); got != before+1 {
				t.Fatalf("round %d: %d interrupts at the unmask, want 1", i, got-before)
			}
			if e := n.isr(n.eqs[2]); len(e) != 1 || e[0].QID != p.scq.id {
				t.Fatalf("round %d: events %+v", i, e)
			}
			n.expect(p.scq, msnCQE(uint32(i)+1, p.id))
		}
	})
}

func TestRegression_ArmOfANonEmptyQueueFiresAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		p := n.createQP(qpOptions{})
		p.connect(p)
		at, key := n.region(4096, 0, mrAll)
		for i := range 5 {
			p.postSend(p.send(abi.OpWrite, sge{at, 8, key}).remote(at+64, key))
			n.settle()
			n.isr(n.eqs[2])
			n.arm(p.scq, abi.RingArm) // the completion is there, and was not read
			if e := n.isr(n.eqs[2]); len(e) != 1 || e[0].QID != p.scq.id {
				t.Fatalf("round %d: events %+v, want one of queue %d", i, e, p.scq.id)
			}
			n.expect(p.scq, msnCQE(uint32(i)+1, p.id))
			n.arm(p.scq, abi.RingArm) // read to the end
			if e := n.isr(n.eqs[2]); len(e) != 0 {
				t.Fatalf("round %d: an empty queue fired: %+v", i, e)
			}
		}
	})
}

// Key 0 stands for all of guest memory. A peer may use it only if the kernel
// made the QP so, and its own processes never.
func TestRegression_KeyZeroFromTheWireIsRefused(t *testing.T) {
	for _, flags := range []uint32{0, abi.QPPrivileged, abi.QPSendSpec | abi.QPRecvSpec | abi.QPPrivileged} {
		for _, op := range []uint8{abi.OpWrite, abi.OpRead, abi.OpAtomicFA} {
			bubble(t, func(t *testing.T) {
				f := newFabric()
				a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
				a.probe()
				b.probe()
				pa, pb := a.createQP(qpOptions{}), b.createQP(qpOptions{flags: flags})
				pa.connect(pb)
				pb.connect(pa)
				src, skey := a.region(4096, 0, mrAll)
				own := a.fill(src, 64, 9)
				secret := b.ram.Alloc(4096)
				want := b.fill(secret, 4096, 5)
				w := pa.send(op, sge{src, 8, skey})
				if op == abi.OpAtomicFA {
					w = pa.send(op).u8(abi.WQENumSGE, 1).u64(abi.AtomicSGE, src).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, skey)
					w.u64(abi.AtomicOperand, 1)
				}
				pa.postSend(w.remote(secret, 0))
				a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteAccErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				if !bytes.Equal(b.ram.Read(secret, 4096), want) {
					t.Error("memory of the peer has changed")
				}
				if !bytes.Equal(a.ram.Read(src, 64), own) {
					t.Error("memory of the peer was read")
				}
				if b.metric("rdma_fault_not_privileged") != 1 {
					t.Error("not counted as a use of key 0")
				}
			})
		}
	}
}

// A bad element in the middle of a list makes all of it fail: what follows it
// must not move to its place, and nothing is written.
func TestRegression_BadElementShiftsNothing(t *testing.T) {
	bad := []struct {
		name string
		e    func(at uint64, key uint32) sge
	}{
		{"key", func(at uint64, key uint32) sge { return sge{at + 128, 64, key + 1} }},
		{"range", func(at uint64, key uint32) sge { return sge{at + 4090, 64, key} }},
		{"wrap", func(_ uint64, key uint32) sge { return sge{math.MaxUint64 - 10, 64, key} }},
	}
	for _, c := range bad {
		t.Run("send/"+c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, abi.TypeRC)
				src, skey := a.region(4096, 0, mrAll)
				a.fill(src, 4096, 1)
				dst, dkey := b.region(4096, 0, mrAll)
				pb.postRecv(1, sge{dst, 4096, dkey})
				pa.postSend(pa.send(abi.OpSend, sge{src, 64, skey}, c.e(src, skey), sge{src + 256, 64, skey}))
				a.expect(pa.scq, msnErr(1, pa.id, qp.LocalProtErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				b.expect(pb.rcq)
				if !bytes.Equal(b.ram.Read(dst, 4096), make([]byte, 4096)) {
					t.Error("bytes arrived")
				}
			})
		})
		t.Run("receive/"+c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b, pa, pb := twoNodes(t, abi.TypeRC)
				src, skey := a.region(4096, 0, mrAll)
				a.fill(src, 4096, 1)
				dst, dkey := b.region(4096, 0, mrAll)
				pb.postRecv(7, sge{dst, 64, dkey}, c.e(dst, dkey), sge{dst + 256, 64, dkey})
				pa.postSend(pa.send(abi.OpSend, sge{src, 192, skey}))
				a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteOperErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
				b.expect(pb.rcq, recvErr(7, pb.id, qp.LocalProtErr), recvErr(0, pb.id, qp.Flushed), npgErr(0, pb.id, qp.Flushed))
				if !bytes.Equal(b.ram.Read(dst, 4096), make([]byte, 4096)) {
					t.Error("bytes were written")
				}
			})
		})
	}
}

// What a peer asks for beyond a region of one page is refused as a whole: no
// byte behind the page is read or written, also where addresses end.
func TestRegression_PeerReachesNothingBeyondAOnePageRegion(t *testing.T) {
	for _, va := range []uint64{0, math.MaxUint64 - 4095} { // 0: the address of the memory itself
		for _, op := range []uint8{abi.OpWrite, abi.OpRead} {
			for _, c := range []struct{ off, n uint64 }{{0, 4097}, {4095, 2}, {4096, 1}, {4000, 8192}} {
				bubble(t, func(t *testing.T) {
					a, b, pa, pb := twoNodes(t, abi.TypeRC)
					src, skey := a.region(16<<10, 0, mrAll)
					own := a.fill(src, 16<<10, 9)
					page := b.ram.Alloc(16 << 10)
					want := b.fill(page, 16<<10, 5)
					base := va
					if base == 0 {
						base = page
					}
					key := b.id()<<8 | 0x11
					b.must(abi.AdminCreateMR, &abi.CreateMR{VA: base, Length: 4096, ID: key, MapCount: 1, DMA: page, Flags: mrAll})
					pa.postSend(pa.send(op, sge{src, uint32(c.n), skey}).remote(base+c.off, key))
					a.expect(pa.scq, msnErr(1, pa.id, qp.RemoteAccErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
					if !bytes.Equal(b.ram.Read(page, 16<<10), want) || !bytes.Equal(a.ram.Read(src, 16<<10), own) {
						t.Errorf("operation %d of %d bytes at +%d: memory has changed", op, c.n, c.off)
					}
					_ = pb
				})
			}
		}
	}
}

// The whole length of a list has more than 32 bits: a message must be judged
// by it, not by what is left of it.
func TestRegression_ListLongerThan32Bits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		data := a.fill(src, 128, 3)
		dst, dkey := b.region(4096, 0, mrAll)
		// 2^32 bytes and 64: in 32 bits the message would not fit.
		pb.postRecv(1, sge{dst, 64, dkey}, sge{dst + 64, math.MaxUint32, dkey}, sge{dst, 1, dkey})
		pa.postSend(pa.send(abi.OpSend, sge{src, 128, skey}))
		b.expect(pb.rcq, recvCQE(1, pa.id, 0, "", 128, pb.id))
		if !bytes.Equal(b.ram.Read(dst, 128), data) {
			t.Error("other bytes arrived")
		}
		// On the send side four times 2^30 and 8 would be a message of 8 bytes.
		w := pa.send(abi.OpSend, sge{src, 1 << 30, skey}, sge{src, 1 << 30, skey}, sge{src, 1 << 30, skey}, sge{src, 1 << 30, skey}, sge{src, 8, skey})
		pa.postSend(w.u32(abi.PayloadLen, 8))
		a.expect(pa.scq, msnCQE(1, pa.id), msnErr(2, pa.id, qp.LocalLenErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
	})
}

// A program that connects, registers, transfers and closes, again and again,
// leaves no region, queue pair or address handle behind.
func TestRegression_ConnectLoopsLeakNoRegion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		qa, qb := a.createCQ(8, 0), b.createCQ(8, 0)
		start := [2]rdma.Objects{a.engine.Objects(), b.engine.Objects()}
		for i := range 300 {
			pa, pb := a.createQP(qpOptions{scq: qa}), b.createQP(qpOptions{scq: qb})
			pa.connect(pb)
			pb.connect(pa)
			src, skey := a.region(4096, 0, mrAll)
			dst, dkey := b.region(4096, 0, mrAll)
			pa.postSend(pa.send(abi.OpWrite, sge{src, 64, skey}).remote(dst, dkey))
			a.expect(qa, msnCQEColour(1, pa.id, qa))
			a.consumed(qa)
			pa.destroy()
			pb.destroy()
			a.must(abi.AdminDestroyMR, &abi.Destroy{ID: skey})
			b.must(abi.AdminDestroyMR, &abi.Destroy{ID: dkey})
			a.ram.Free(src, 4096)
			b.ram.Free(dst, 4096)
			if now := [2]rdma.Objects{a.engine.Objects(), b.engine.Objects()}; now != start {
				t.Fatalf("after connection %d there is %+v, at first it was %+v", i, now, start)
			}
		}
	})
}

// msnCQEColour is msnCQE with the colour of the queue's next entry.
func msnCQEColour(msn, id uint32, q *compRing) string {
	s := msnCQE(msn, id)
	if q.cons>>q.depth&1 != 0 {
		return s[:len(s)-1] + "0"
	}
	return s
}

// The memory of a completion ring may be cut anywhere: an entry that lies
// across the border arrives whole, and its colour last.
func TestRegression_CompletionAcrossAPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		border := n.lost() // where two windows of guest memory meet
		for _, back := range []uint64{4, 16, 28} {
			q := n.createCQAt(border-3*abi.CQELen-back, 3, 0)
			p := n.createQP(qpOptions{scq: q})
			p.connect(p)
			at, key := n.region(4096, 0, mrAll)
			for i := range uint32(20) {
				p.postSend(p.send(abi.OpWrite, sge{at, 8, key}).remote(at+64, key))
				n.expect(q, msnCQEColour(i+1, p.id, q))
				n.consumed(q)
			}
			p.destroy()
		}
	})
}

// A thousand queue pairs whose peer has died fail at the same moment into one
// completion queue: each tells its failed request and two flushes, in order,
// and none is lost although the queue is smaller than the storm.
func TestRegression_FlushStormOfAThousandQueuePairs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{ram: 128 << 20}), newNode(t, f, 2, options{ram: 128 << 20})
		a.probe()
		b.probe()
		const pairs = 1000
		q := a.createCQ(10, 0)
		peer := b.createQP(qpOptions{})
		src, skey := a.region(4096, 0, mrAll)
		state := make(map[uint32]int)
		for range pairs {
			p := a.createQP(qpOptions{scq: q})
			p.toInit()
			p.toRTR(peer)
			p.toRTSWith(14, 1, 7)
			for range 10 {
				p.postSend(p.send(abi.OpSend, sge{src, 8, skey}))
				p.postRecv(1, sge{src, 8, skey})
			}
			state[p.id] = 0
		}
		time.Sleep(10 * second)
		for range 3 * pairs {
			a.settle()
			c, ok := a.poll(q)
			if !ok {
				t.Fatal("completions are missing")
			}
			a.consumed(q)
			step := state[c.QID]
			good := [...]bool{
				c.Type == abi.CQESendMSN && c.MSN == 1 && c.StatusLength == uint32(qp.RetryExceeded),
				c.Type == abi.CQESendNPG && c.StatusLength == uint32(qp.Flushed),
				c.Type == abi.CQERecv && c.StatusLength == uint32(qp.Flushed),
			}
			if !c.Error || step > 2 || !good[step] {
				t.Fatalf("completion %d of QP %d: %+v", step, c.QID, c)
			}
			state[c.QID]++
		}
		a.expect(q)
		for id, n := range state {
			if n != 3 {
				t.Errorf("QP %d told %d completions, want 3", id, n)
			}
		}
		if lost := a.metric("rdma_completions_lost"); lost != 0 {
			t.Errorf("%d completions were lost", lost)
		}
	})
}

// Queues of 32,768 entries, filled to the last slot with one doorbell each,
// empty in order.
func TestRegression_QueuesOf32768Entries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		n := newNode(t, f, 1, options{ram: 64 << 20})
		n.probe()
		const depth, total = 15, 1<<15 - 1
		sends, recvs := n.createCQ(16, 0), n.createCQ(16, 0)
		p := n.createQP(qpOptions{depth: depth, scq: sends, rcq: recvs})
		p.connect(p)
		at, key := n.region(4096, 0, mrAll)
		sq, rq := make([]byte, total*64), make([]byte, total*64)
		for i := range total {
			w := p.send(abi.OpSend, sge{at, 4, key}).u64(0, uint64(i))
			r := newWork(6).list(sge{at + 2048, 4, key})
			r.b[0], r.b[1] = byte(i), byte(i>>8)
			copy(sq[i*64:], w.b)
			copy(rq[i*64:], r.b)
		}
		n.ram.Write(p.sq, sq)
		n.ram.Write(p.rq, rq)
		n.ring(0, rdma.SlotRQ, abi.Doorbell{Index: total, QID: p.id})
		n.ring(0, rdma.SlotSQ, abi.Doorbell{Index: total, QID: p.id})
		n.settle()
		for i := range uint32(total) {
			if c, ok := n.poll(sends); !ok || c.Error || c.MSN != i+1 {
				t.Fatalf("send %d: %+v, %v", i, c, ok)
			}
			if c, ok := n.poll(recvs); !ok || c.Error || c.WQEID != uint64(i) {
				t.Fatalf("receive %d: %+v, %v", i, c, ok)
			}
		}
		n.expect(sends)
		n.expect(recvs)
	})
}

// Every ring goes round several times: entries, colours and indices fit.
func TestRegression_EveryRingWraps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		// Depths of 4 and 8 entries; the admin queue has 512, its CQ 256, the EQ 1024.
		pa := a.createQP(qpOptions{depth: 2, scq: a.createCQ(3, 0)})
		pb := b.createQP(qpOptions{depth: 2, scq: b.createCQ(3, 0)})
		pa.connect(pb)
		pb.connect(pa)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		const rounds = 2500
		b.isr(b.eqs[2])
		events := 0
		for i := range uint32(rounds) {
			b.arm(pb.rcq, abi.RingArm)
			pb.postRecv(uint64(i%4), sge{dst, 64, dkey})
			a.ram.Store64(src, uint64(i))
			pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
			a.settle()
			if c, ok := a.poll(pa.scq); !ok || c.Error || c.MSN != i+1 {
				t.Fatalf("send %d: %+v, %v", i, c, ok)
			}
			a.consumed(pa.scq)
			if c, ok := b.poll(pb.rcq); !ok || c.Error || c.WQEID != uint64(i%4) || b.ram.Load64(dst) != uint64(i) {
				t.Fatalf("receive %d: %+v, %v", i, c, ok)
			}
			for _, e := range b.isr(b.eqs[2]) {
				if e.Type != abi.EventCQ || e.QID != pb.rcq.id {
					t.Fatalf("round %d: event %+v", i, e)
				}
				events++
			}
			if i%2 == 0 {
				b.must(abi.AdminNoop, nil)
			}
		}
		if events != rounds {
			t.Errorf("%d events for %d arms", events, rounds)
		}
		if b.eqs[2].cons>>b.eqs[2].depth < 2 || b.acq.cons>>b.acq.depth < 2 || pa.scq.cons>>3 < 2 {
			t.Errorf("a ring did not go round twice: EQ at %d, admin CQ at %d", b.eqs[2].cons, b.acq.cons)
		}
	})
}

// Work posted to a queue pair in ERR is the driver's to flush: the device sends
// nothing, tells of the flush once more so that a consumer that was about to stop
// polling comes back, and works again after RESET.
func TestRegression_PostsInErrorAreFlushedUntilReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 6, ID: pa.id})
		a.expect(pa.scq, npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
		a.expect(pa.scq, npgErr(0, pa.id, qp.Flushed))
		pa.postRecv(1, sge{src, 8, skey})
		a.expect(pa.scq, recvErr(0, pa.id, qp.Flushed))
		a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 6, ID: pa.id})
		a.expect(pa.scq) // nothing was posted meanwhile
		const posts = 20
		for range posts {
			pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
			pa.postRecv(1, sge{src, 8, skey})
		}
		a.settle()
		told := map[string]int{}
		for b := a.entry(pa.scq); b != nil; b = a.entry(pa.scq) {
			told[hex.EncodeToString(b)]++
		}
		sends := told[strings.ReplaceAll(npgErr(0, pa.id, qp.Flushed), " ", "")]
		recvs := told[strings.ReplaceAll(recvErr(0, pa.id, qp.Flushed), " ", "")]
		if len(told) != 2 || sends < 1 || sends > posts || recvs < 1 || recvs > posts {
			t.Errorf("%d sends and %d receives posted in ERR were told of with %v", posts, posts, told)
		}
		if got := b.metric("rx_rdma_ucast_pkts"); got != 0 {
			t.Errorf("%d packets of a queue pair in ERR arrived", got)
		}
		for _, p := range []*pair{pa, pb} {
			p.n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: p.id})
			p.sqAt, p.rqAt = 0, 0
		}
		pa.connect(pb)
		pb.connect(pa)
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
		a.expect(pa.scq, msnCQE(1, pa.id))
	})
}

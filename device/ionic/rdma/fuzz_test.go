// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// Any bytes in the admin ring complete as one command each, and the queue goes
// on working.
func FuzzAdmin(f *testing.F) {
	seed := func(op uint8, b body) {
		var cmd [abi.MaxAdminBytes]byte
		abi.PutAdminHeader(cmd[:], op, lengths[op])
		b.Put(cmd[:])
		f.Add(cmd[:])
	}
	ring := abi.RingDesc{CQ: 5, DepthLog2: 6, StrideLog2: 6, MapCount: 1, DMA: 0x1_0000_0000}
	seed(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 6, StrideLog2: 5, ID: 5, MapCount: 1, DMA: 0x1_0000_0000})
	seed(abi.AdminCreateQP, &abi.CreateQP{ID: 6, SQ: ring, RQ: ring})
	seed(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitRC, State: 1, ID: 6})
	seed(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskRTRRC, State: 2, PMTU: 10, TemplateLen: 42, DMA: 0x1_0000_0000, ID: 6})
	seed(abi.AdminQueryQP, &abi.QueryQP{SQDMA: 0x1_0000_0000, RQDMA: 0x1_0000_1000, ID: 6})
	seed(abi.AdminCreateMR, &abi.CreateMR{VA: 0x1000, Length: 8192, ID: 7 << 8, MapCount: 3, DMA: 0x1_0000_0000, PageSizeLog2: 12})
	seed(abi.AdminCreateAH, &abi.CreateAH{DMA: 0x1_0000_0000, Length: 42, ID: 8})
	seed(abi.AdminStatsHeaders, &abi.Stats{DMA: 0x1_0000_0000, Length: 4096})
	seed(abi.AdminQPStatsVals, &abi.Stats{DMA: 0x1_0000_0000, Length: 4096, ID: 6})
	seed(abi.AdminDestroyQP, &abi.Destroy{ID: 6})
	seed(abi.AdminDestroyCQ, &abi.Destroy{ID: 5})
	n := newNode(f, newFabric(), 1, options{})
	n.probe()
	f.Fuzz(func(t *testing.T, cmd []byte) {
		n.t = t
		if len(cmd) > abi.MaxAdminBytes {
			cmd = cmd[:abi.MaxAdminBytes]
		}
		b := make([]byte, (len(cmd)/64+1)*64)
		copy(b, cmd)
		// A command of the fuzzer may overwrite the rings themselves; then a
		// new life shows that the engine is not hurt.
		n.postRaw(b)
		n.ringAdmin()
		if !n.await(100 * time.Millisecond) {
			for _, q := range n.eqs {
				n.ram.Free(q.at, 4096)
			}
			n.ram.Free(n.acq.at, 8192)
			n.ram.Free(n.aq, 32<<10)
			n.probe()
			first := n.aqAt
			n.post(abi.AdminNoop, nil)
			n.ringAdmin()
			if !n.await(time.Minute) {
				t.Fatalf("the admin queue is dead after %x (at %d)", cmd, first)
			}
		}
	})
}

// await consumes completions until the device has taken the whole ring.
func (n *node) await(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		if c, ok := n.poll(n.acq); ok {
			n.consumed(n.acq)
			var used uint32 = 1
			if op, l := abi.AdminHeader(n.ram.Read(n.aq+uint64(c.CmdIndex&511)*64, 4)); op == c.CmdOp {
				used = abi.AdminStrides(l)
			}
			left := (n.aqAt - uint32(c.CmdIndex)) & 511
			if used >= left {
				return true
			}
			continue
		}
		if time.Now().After(deadline) {
			return false
		}
		runtime.Gosched()
	}
}

// Any value at any place of the doorbell page does no harm.
func FuzzDoorbell(f *testing.F) {
	f.Add(uint32(0), uint8(rdma.SlotSQ), uint64(0x0000_0000_1100_0003))
	f.Add(uint32(0), uint8(rdma.SlotCQ), uint64(0x0000_0000_1101_0001))
	f.Add(uint32(1), uint8(rdma.SlotAQ), ^uint64(0))
	n := newNode(f, newFabric(), 1, options{})
	n.probe()
	r := real{n}
	q := &compRing{id: 17, at: n.ram.Alloc(8192), depth: 8}
	r.admin(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 8, StrideLog2: 5, ID: 17, MapCount: 1, DMA: q.at})
	at := n.ram.Alloc(8192)
	ring := abi.RingDesc{CQ: 17, DepthLog2: 6, StrideLog2: 6, MapCount: 1, DMA: at}
	r.admin(abi.AdminCreateQP, &abi.CreateQP{ID: 17, SQ: ring, RQ: ring})
	r.admin(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitRC, State: 1, ID: 17})
	f.Fuzz(func(t *testing.T, pid uint32, slot uint8, v uint64) {
		n.engine.Doorbell(pid, slot, v)
		n.engine.Unmasking(int(v & 63))
	})
}

// Any bytes as send and receive work change no memory but that of the region,
// and the queue pair can be used again afterwards.
func FuzzWork(f *testing.F) {
	n := newNode(f, newFabric(), 1, options{})
	n.probe()
	r := real{n}
	const size = 8192
	canary := n.ram.Alloc(4096)
	at := n.ram.Alloc(size)
	key := uint32(30<<8 | 7)
	r.admin(abi.AdminCreateMR, &abi.CreateMR{VA: at, Length: size, ID: key, MapCount: 1, DMA: at, Flags: mrAll | abi.MRBind})
	r.admin(abi.AdminCreateMR, &abi.CreateMR{ID: 31 << 8, Flags: abi.MRUserKey | abi.MRWindow})
	r.admin(abi.AdminCreateMR, &abi.CreateMR{ID: 32 << 8, Flags: abi.MRUserKey | abi.MRInvalidate})
	q := &compRing{id: 17, at: n.ram.Alloc(32 << 10), depth: 10}
	r.admin(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 10, StrideLog2: 5, ID: 17, MapCount: 1, DMA: q.at})
	p := &pair{n: n, id: 20, scq: q, rcq: q, depth: 6, stride: 7}
	p.sq, p.rq = n.ram.Alloc(8192), n.ram.Alloc(8192)
	r.admin(abi.AdminCreateQP, p.create(qpOptions{}))
	tmpl := n.ram.Alloc(64)
	n.ram.Write(tmpl, n.template(n))

	good := func(w *work) []byte { return w.b }
	f.Add(good(p.send(abi.OpSend, sge{at, 100, key})), good(newWork(7).list(sge{at + 4096, 4096, key})))
	f.Add(good(p.send(abi.OpWrite, sge{at, 10, key}, sge{at, 10, key}, sge{at, 10, key}).remote(at+4096, key)), good(newWork(7)))
	f.Add(good(p.send(abi.OpRead, sge{at, 100, key}).remote(at+size-99, key)), good(newWork(7)))
	f.Add(good(p.send(abi.OpBindMW).u32(abi.WQEImm, 31<<8).u64(abi.BindVA, at).u64(abi.BindLength, 64).u32(abi.BindParent, key)), good(newWork(7)))
	f.Add(good(p.send(abi.OpRegMR).u32(abi.WQEImm, 32<<8).u64(abi.RegDMA, at).u32(abi.RegMapCount, 3).u64(abi.RegLength, 4096)), good(newWork(7)))
	f.Add(good(p.send(abi.OpAtomicFA).remote(at+8, key).u8(abi.WQENumSGE, 1).u64(abi.AtomicSGE, at).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, key)), good(newWork(7)))
	f.Fuzz(func(t *testing.T, send, recv []byte) {
		n.t = t
		for _, m := range []*abi.ModifyQP{
			{Mask: 1, State: 0, ID: 20},
			{Mask: maskInitRC, State: 1, Flags: allRights, ID: 20},
			{Mask: maskRTRRC, State: 2, PMTU: 10, QKeyDestQPN: 20, RSQDepth: 5, AH: 20, TemplateLen: 42, DMA: tmpl, ID: 20},
			{Mask: maskRTSRC, State: 3, Timeout: 1, RetryCnt: 0, RNRRetry: 0, RRQDepth: 4, ID: 20},
		} {
			if st := r.admin(abi.AdminModifyQP, m); st != abi.AdminOK {
				t.Fatalf("modify to %d: %v", m.State, st)
			}
		}
		for _, ok := n.poll(q); ok; _, ok = n.poll(q) {
		}
		n.consumed(q)
		ring := func(at uint64, b []byte) {
			e := make([]byte, 128)
			copy(e, b)
			n.ram.Write(at, e)
		}
		ring(p.rq, recv)
		ring(p.sq, send)
		ring(p.sq+128, p.send(abi.OpSend).b)
		before := [][]byte{n.ram.Read(canary, 4096), n.ram.Read(at+size, 4096), n.ram.Read(p.sq, 8192), n.ram.Read(p.rq, 8192)}
		n.ring(0, rdma.SlotRQ, abi.Doorbell{Index: 2, QID: 20})
		n.ring(0, rdma.SlotSQ, abi.Doorbell{Index: 2, QID: 20})
		done := false
		for deadline := time.Now().Add(time.Minute); !done; {
			c, ok := n.poll(q)
			// The second message, an error, or a flush: then it is over.
			done = ok && (c.Error || c.Type == abi.CQESendMSN && c.MSN == 2 || c.Type == abi.CQESendMSN && send != nil && len(send) > 8 && send[8] >= abi.OpRegMR)
			if time.Now().After(deadline) {
				t.Fatalf("no end of %x", send)
			}
			if !ok {
				runtime.Gosched()
			}
		}
		after := [][]byte{n.ram.Read(canary, 4096), n.ram.Read(at+size, 4096), n.ram.Read(p.sq, 8192), n.ram.Read(p.rq, 8192)}
		for i := range before {
			if !bytes.Equal(before[i], after[i]) {
				t.Fatalf("area %d changed", i)
			}
		}
	})
}

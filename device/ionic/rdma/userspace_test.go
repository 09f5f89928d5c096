// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// scattered allocates count pages that are nowhere near each other and returns
// them with the address of their table.
func (n *node) scattered(count int) (pages []uint64, table uint64) {
	for i := range count {
		p := n.ram.Alloc(2 * 4096)
		if i%2 == 0 {
			p += 4096
		}
		pages = append([]uint64{p}, pages...)
	}
	return pages, n.ram.Table(pages...)
}

// ibv_rc_pingpong of two guests: everything is described by page tables and
// rung on a user page.
func TestUserspace_Pingpong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		const pid = 1
		type end struct {
			*node
			p   *pair
			buf []uint64
			key uint32
			rq  []uint64
		}
		var ends [2]*end
		for i := range ends {
			n := newNode(t, f, byte(i+1), options{})
			n.probe()
			e := &end{node: n, key: uint32(1<<8 | 7)}
			// reg_mr of 4096 bytes that start inside a page.
			var table uint64
			e.buf, table = n.scattered(2)
			n.must(abi.AdminCreateMR, &abi.CreateMR{VA: 0x7fff0000_0010, Length: 4096, ID: e.key, MapCount: 2, DMA: table, Flags: abi.MRLocalWrite, PageSizeLog2: 12})
			n.ram.Write(table, make([]byte, 16))
			// create_cq(501): two device CQs of 1024 entries in 8 pages.
			var cqs [2]*compRing
			for u := range cqs {
				pages, table := n.scattered(8)
				cqs[u] = &compRing{id: uint32(2 + u*8), pid: pid, depth: 10, page: func(off uint64) uint64 { return pages[off/4096] + off%4096 }}
				n.must(abi.AdminCreateCQ, &abi.CreateCQ{EQ: uint32(2 + u), DepthLog2: 10, StrideLog2: 5, PageSizeLog2: 12, ID: cqs[u].id, MapCount: 8, DMA: table, DBID: pid})
				n.ram.Write(table, make([]byte, 64))
			}
			// create_qp: 64 sends in one page, 512 receives in eight.
			e.p = &pair{n: n, id: 2, pid: pid, scq: cqs[0], rcq: cqs[0], depth: 6, stride: 6, sq: n.ram.Alloc(4096)}
			e.rq, table = n.scattered(8)
			n.must(abi.AdminCreateQP, &abi.CreateQP{
				Flags: 0x300, ID: 2, DBID: pid,
				SQ: abi.RingDesc{CQ: 2, DepthLog2: 6, StrideLog2: 6, PageSizeLog2: 12, MapCount: 1, DMA: e.p.sq},
				RQ: abi.RingDesc{CQ: 2, DepthLog2: 9, StrideLog2: 6, PageSizeLog2: 12, MapCount: 8, DMA: table},
			})
			n.ram.Write(table, make([]byte, 64))
			ends[i] = e
		}
		for i, e := range ends {
			e.p.connect(ends[1-i].p)
			for k := range uint64(500) {
				w := newWork(6).list(sge{0x7fff0000_0010, 4096, e.key}).u32(abi.PayloadLen, 0)
				binary.LittleEndian.PutUint64(w.b, k)
				e.ram.Write(e.rq[k/64]+k%64*64, w.b)
				e.ring(pid, rdma.SlotRQ, abi.Doorbell{Index: uint16(k + 1), QID: 2})
			}
		}
		read := func(e *end) []byte {
			return append(e.ram.Read(e.buf[0]+0x10, 4096-0x10), e.ram.Read(e.buf[1], 0x10)...)
		}
		for k := range uint64(400) {
			from, to := ends[k%2], ends[1-k%2]
			data := bytes.Repeat([]byte{byte(k + 1)}, 4096)
			from.ram.Write(from.buf[0]+0x10, data[:4096-0x10])
			from.ram.Write(from.buf[1], data[:0x10])
			from.p.postSend(from.p.send(abi.OpSend, sge{0x7fff0000_0010, 4096, from.key}))
			from.settle()
			if c, ok := from.poll(from.p.scq); !ok || c.Type != abi.CQESendMSN || c.MSN != uint32(k/2+1) || c.Error {
				t.Fatalf("send %d: %+v, %v", k, c, ok)
			}
			if c, ok := to.poll(to.p.rcq); !ok || c.Type != abi.CQERecv || c.WQEID != k/2 || c.StatusLength != 4096 {
				t.Fatalf("receive %d: %+v, %v", k, c, ok)
			}
			if !bytes.Equal(read(to), data) {
				t.Fatalf("message %d: other bytes", k)
			}
		}
		// Nobody armed; the queues of a user fire once on their own.
		for i, e := range ends {
			if ev := e.isr(e.eqs[2]); len(ev) == 0 || ev[len(ev)-1].QID != 2 {
				t.Errorf("end %d: events %+v", i, ev)
			}
			e.must(abi.AdminDestroyQP, &abi.Destroy{ID: 2})
			e.must(abi.AdminDestroyCQ, &abi.Destroy{ID: 10})
			e.must(abi.AdminDestroyCQ, &abi.Destroy{ID: 2})
			e.must(abi.AdminDestroyMR, &abi.Destroy{ID: e.key})
			if o := e.engine.Objects(); o != (rdma.Objects{EQs: 4, CQs: 1}) {
				t.Errorf("left: %+v", o)
			}
		}
	})
}

// Windows of both types, bound and taken away by work requests, with a peer
// that uses them.
func TestUserspace_MemoryWindows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(8192, 0, mrAll|abi.MRBind)
		w1, w2 := b.id(), b.id()
		b.must(abi.AdminCreateMR, &abi.CreateMR{ID: w1<<8 | 1, Flags: abi.MRUserKey | abi.MRWindow})
		b.must(abi.AdminCreateMR, &abi.CreateMR{ID: w2<<8 | 1, Flags: abi.MRUserKey | abi.MRWindow | abi.MRInvalidate})
		data := a.fill(src, 100, 3)
		bind := func(w uint32, key uint8, access uint16, va, n uint64) *work {
			return pb.send(abi.OpBindMW).u8(abi.WQENumSGE, key).u32(abi.WQEImm, w<<8|1).
				u64(abi.BindVA, va).u64(abi.BindLength, n).u32(abi.BindParent, dkey).u16(abi.BindAccess, access)
		}
		pb.postSend(bind(w1, 5, abi.MRWindow|abi.MRRemoteWrite, dst+100, 200))
		b.expect(pb.scq, npgCQE(0, pb.id))
		pa.postSend(pa.send(abi.OpWrite, sge{src, 100, skey}).remote(dst+100, w1<<8|5))
		a.expect(pa.scq, msnCQE(1, pa.id))
		if !bytes.Equal(b.ram.Read(dst+100, 100), data) {
			t.Fatal("other bytes through the window")
		}
		pb.postSend(bind(w2, 9, abi.MRWindow|abi.MRInvalidate|abi.MRRemoteRead|abi.MRZeroBased, dst, 4096))
		b.expect(pb.scq, npgCQE(1, pb.id))
		pa.postSend(pa.send(abi.OpRead, sge{src + 1000, 100, skey}).remote(100, w2<<8|9))
		a.expect(pa.scq, msnCQE(2, pa.id))
		if !bytes.Equal(a.ram.Read(src+1000, 100), data) {
			t.Fatal("other bytes out of the zero based window")
		}
		// The peer takes the key away with its message.
		pb.postRecv(4, sge{dst + 4096, 64, dkey})
		pa.postSend(pa.send(abi.OpSendInv, sge{src, 8, skey}).u32(abi.WQEImm, w2<<8|9))
		a.expect(pa.scq, msnCQE(3, pa.id))
		b.settle()
		if c, ok := b.poll(pb.rcq); !ok || c.SrcQPNOp>>abi.RecvOpShift != uint32(qp.RecvSendInv) || binary.BigEndian.Uint32(c.Imm[:]) != w2<<8|9 {
			t.Fatalf("%+v, %v", c, ok)
		}
		pa.postSend(pa.send(abi.OpRead, sge{src, 8, skey}).remote(0, w2<<8|9))
		time.Sleep(second)
		a.expect(pa.scq, msnErr(4, pa.id, qp.RemoteAccErr), npgErr(0, pa.id, qp.Flushed), recvErr(0, pa.id, qp.Flushed))
		if got := b.metric("rdma_fault_invalid_key"); got != 1 {
			t.Errorf("%d refusals of an invalid key", got)
		}
	})
}

func (n *node) metric(name string) (v uint64) {
	n.engine.Counters(func(s string, x uint64) {
		if s == name {
			v = x
		}
	})
	return v
}

// Everything the engine refuses or loses is counted under a name of its own.
func TestCounters_NameEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		names := make(map[string]bool)
		n.engine.Counters(func(name string, v uint64) {
			if names[name] || name == "" {
				t.Errorf("name %q", name)
			}
			names[name] = true
			if v != 0 {
				t.Errorf("%s starts with %d", name, v)
			}
		})
		if len(names) < 70 {
			t.Errorf("%d counters", len(names))
		}
		n.status(abi.AdminDebug, nil)
		n.command(abi.QueueCommand{Opcode: 54})
		n.engine.Doorbell(0, rdma.SlotSQ, abi.Doorbell{QID: 4711}.Value())
		n.engine.Doorbell(0, 99, 0)
		q := n.createCQ(1, 0)
		p := n.createQP(qpOptions{scq: q})
		p.toInit()
		n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 6, ID: p.id}) // two flush completions, room for one
		for name, want := range map[string]uint64{
			"rdma_admin_errors": 1, "rdma_lif_command_errors": 1, "rdma_bad_doorbells": 2, "rdma_completions_waited": 1,
		} {
			if got := n.metric(name); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
)

func newProbed(t testing.TB) *node {
	n := newNode(t, newFabric(), 1, options{})
	n.probe()
	return n
}

// The ring wraps in front of, inside and behind the one command that takes two
// strides.
func TestAdmin_TwoStridesAtTheWrap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		c := n.createCQ(8, 0)
		for n.aqAt != 505 {
			n.must(abi.AdminNoop, nil)
		}
		for i := range 1000 {
			p := n.createQP(qpOptions{id: 50, scq: c})
			if i%3 == 0 {
				n.must(abi.AdminNoop, nil)
			}
			p.destroy()
		}
	})
}

// Many commands rung at once complete one by one, in order; a full CQ holds
// completions back.
func TestAdmin_CompletesInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		first := n.aqAt
		const total = 500
		for i := range total {
			op := uint8(abi.AdminNoop)
			if i%7 == 3 {
				op = abi.AdminDebug
			}
			n.post(op, nil)
		}
		n.ringAdmin()
		got := 0
		for got < total {
			n.settle()
			progress := false
			for c, ok := n.poll(n.acq); ok; c, ok = n.poll(n.acq) {
				progress = true
				if uint32(c.CmdIndex) != (first+uint32(got))&511 || c.Error != (got%7 == 3) {
					t.Fatalf("completion %d: %+v", got, c)
				}
				got++
			}
			if !progress {
				t.Fatalf("stuck after %d", got)
			}
			n.consumed(n.acq)
		}
	})
}

// What the device does not offer, and what is not a command, completes with
// the right status.
func TestAdmin_BadCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		for _, op := range []uint8{abi.AdminReserved7, abi.AdminDebug, abi.AdminQueryAH, abi.AdminModifyDCQCN, abi.NumAdminOps, 255} {
			if st := n.status(op, nil); st != abi.AdminBadCmd {
				t.Errorf("%s: %v", abi.AdminOpName(op), st)
			}
		}
		// Bodies that are too short.
		for op, want := range lengths {
			if op == abi.AdminQueryAH {
				continue
			}
			for _, short := range []uint16{0, want - 1} {
				var b [128]byte
				abi.PutAdminHeader(b[:], op, short)
				n.postRaw(b[:abi.AdminStrides(short)*64])
				n.ringAdmin()
				n.settle()
				if c, ok := n.poll(n.acq); !ok || abi.AdminStatus(c.StatusLength) != abi.AdminBadCmd || c.CmdOp != op {
					t.Errorf("%s of %d bytes: %+v, %v", abi.AdminOpName(op), short, c, ok)
				}
			}
		}
		// A length that passes the producer.
		var b [64]byte
		abi.PutAdminHeader(b[:], abi.AdminCreateQP, abi.CreateQPLen)
		n.postRaw(b[:])
		n.ringAdmin()
		n.settle()
		if c, ok := n.poll(n.acq); !ok || abi.AdminStatus(c.StatusLength) != abi.AdminBadCmd {
			t.Errorf("half a command: %+v, %v", c, ok)
		}
		n.must(abi.AdminNoop, nil)
	})
}

// Stale bytes behind a command are not read.
func TestAdmin_StaleBytesBehindACommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		at := n.ram.Alloc(4096)
		b := bytes.Repeat([]byte{0xff}, 64)
		(&abi.CreateMR{VA: at, Length: 4096, ID: 7 << 8, MapCount: 1, DMA: at}).Put(b)
		abi.PutAdminHeader(b, abi.AdminCreateMR, abi.CreateMRLen)
		n.postRaw(b)
		n.ringAdmin()
		n.settle()
		if c, ok := n.poll(n.acq); !ok || c.Error {
			t.Fatalf("%+v, %v", c, ok)
		}
	})
}

func TestAdmin_CQRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		at := n.ram.Alloc(64 << 10)
		good := abi.CreateCQ{EQ: 2, DepthLog2: 8, StrideLog2: 5, ID: 40, MapCount: 1, DMA: at}
		n.must(abi.AdminCreateCQ, &good)
		for name, c := range map[string]struct {
			change func(c *abi.CreateCQ)
			want   abi.AdminStatus
		}{
			"id in use":       {func(c *abi.CreateCQ) { c.ID = 40 }, abi.AdminBadIndex},
			"id out of range": {func(c *abi.CreateCQ) { c.ID = 1 << 20 }, abi.AdminBadIndex},
			"no such EQ":      {func(c *abi.CreateCQ) { c.EQ = 20 }, abi.AdminBadIndex},
			"EQ out of range": {func(c *abi.CreateCQ) { c.EQ = 1 << 30 }, abi.AdminBadIndex},
			"stride":          {func(c *abi.CreateCQ) { c.StrideLog2 = 6 }, abi.AdminBadAttr},
			"depth":           {func(c *abi.CreateCQ) { c.DepthLog2 = 17 }, abi.AdminBadAttr},
			"depth 0":         {func(c *abi.CreateCQ) { c.DepthLog2 = 0 }, abi.AdminBadAttr},
			"no memory":       {func(c *abi.CreateCQ) { c.MapCount = 0 }, abi.AdminBadAttr},
			"not mapped":      {func(c *abi.CreateCQ) { c.DMA = 0x1000 }, abi.AdminBadAttr},
			"misaligned":      {func(c *abi.CreateCQ) { c.DMA += 2 }, abi.AdminBadAttr},
			"table":           {func(c *abi.CreateCQ) { c.MapCount, c.PageSizeLog2, c.DMA = 2, 12, 0x1000 }, abi.AdminBadAttr},
			"table too short": {func(c *abi.CreateCQ) { c.MapCount, c.PageSizeLog2, c.DepthLog2 = 2, 12, 10 }, abi.AdminBadAttr},
		} {
			bad := good
			bad.ID = 41
			c.change(&bad)
			if st := n.status(abi.AdminCreateCQ, &bad); st != c.want {
				t.Errorf("%s: %v, want %v", name, st, c.want)
			}
		}
		if st := n.status(abi.AdminDestroyCQ, &abi.Destroy{ID: 41}); st != abi.AdminBadIndex {
			t.Errorf("destroyed what was never made: %v", st)
		}
		if st := n.status(abi.AdminDestroyCQ, &abi.Destroy{ID: 0}); st != abi.AdminBadState {
			t.Errorf("destroyed the CQ of the admin queue: %v", st)
		}
		q := &compRing{id: 40, at: at, depth: 8}
		p := n.createQP(qpOptions{scq: q})
		if st := n.status(abi.AdminDestroyCQ, &abi.Destroy{ID: 40}); st != abi.AdminBadState {
			t.Errorf("destroyed the CQ of a QP: %v", st)
		}
		p.destroy()
		n.must(abi.AdminDestroyCQ, &abi.Destroy{ID: 40})
		n.must(abi.AdminCreateCQ, &good)
	})
}

func TestAdmin_QPRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		p := n.createQP(qpOptions{})
		good := *p.create(qpOptions{})
		for name, c := range map[string]struct {
			change func(c *abi.CreateQP)
			want   abi.AdminStatus
		}{
			"id in use":       {func(c *abi.CreateQP) { c.ID = p.id }, abi.AdminBadIndex},
			"id 0 is SMI":     {func(c *abi.CreateQP) { c.ID = 0 }, abi.AdminBadIndex},
			"id out of range": {func(c *abi.CreateQP) { c.ID = 16384 }, abi.AdminBadIndex},
			"RD":              {func(c *abi.CreateQP) { c.Type = 2 }, abi.AdminBadType},
			"SRQ":             {func(c *abi.CreateQP) { c.Type = 4 }, abi.AdminBadType},
			"GSI of type RC":  {func(c *abi.CreateQP) { c.ID = 1 }, abi.AdminBadType},
			"CMB":             {func(c *abi.CreateQP) { c.Flags = abi.QPSendCMB }, abi.AdminBadAttr},
			"unknown flag":    {func(c *abi.CreateQP) { c.Flags = 1 << 20 }, abi.AdminBadAttr},
			"send CQ":         {func(c *abi.CreateQP) { c.SQ.CQ = 999 }, abi.AdminBadIndex},
			"receive CQ":      {func(c *abi.CreateQP) { c.RQ.CQ = 999 }, abi.AdminBadIndex},
			"SQ depth":        {func(c *abi.CreateQP) { c.SQ.DepthLog2 = 17 }, abi.AdminBadAttr},
			"SQ depth 0":      {func(c *abi.CreateQP) { c.SQ.DepthLog2 = 0 }, abi.AdminBadAttr},
			"RQ stride":       {func(c *abi.CreateQP) { c.RQ.StrideLog2 = 10 }, abi.AdminBadAttr},
			"SQ stride":       {func(c *abi.CreateQP) { c.SQ.StrideLog2 = 5 }, abi.AdminBadAttr},
			"SQ not mapped":   {func(c *abi.CreateQP) { c.SQ.DMA = 0x1000 }, abi.AdminBadAttr},
			"RQ not mapped":   {func(c *abi.CreateQP) { c.RQ.DMA = testram.Base + 64<<20 - 64 }, abi.AdminBadAttr},
			"RQ no memory":    {func(c *abi.CreateQP) { c.RQ.MapCount = 0 }, abi.AdminBadAttr},
		} {
			bad := good
			bad.ID = 77
			c.change(&bad)
			if st := n.status(abi.AdminCreateQP, &bad); st != c.want {
				t.Errorf("%s: %v, want %v", name, st, c.want)
			}
		}
		for _, op := range []uint8{abi.AdminDestroyQP, abi.AdminModifyQP, abi.AdminQueryQP, abi.AdminQPStatsVals} {
			var b body
			switch op {
			case abi.AdminDestroyQP:
				b = &abi.Destroy{ID: 77}
			case abi.AdminModifyQP:
				b = &abi.ModifyQP{ID: 77}
			case abi.AdminQueryQP:
				b = &abi.QueryQP{ID: 77}
			default:
				b = &abi.Stats{ID: 77}
			}
			if st := n.status(op, b); st != abi.AdminBadIndex {
				t.Errorf("%s of an unknown QP: %v", abi.AdminOpName(op), st)
			}
		}
	})
}

// MODIFY_QP takes only what its mask names: the kernel leaves garbage in the
// rest, user space zeroes.
func TestAdmin_ModifyUsesOnlyMaskedFields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		p := n.createQP(qpOptions{})
		garbage := func() abi.ModifyQP {
			return abi.ModifyQP{
				Flags: 0x100f, RQPSN: 0xdeadbeef, SQPSN: 0xdeadbeef, QKeyDestQPN: 0xdeadbeef, RateLimit: 0xdeadbeef,
				PMTU: 0xff, RetryCnt: 15, RNRRetry: 15, RNRTimer: 0xff, Timeout: 0xff, RSQDepth: 0xff, RRQDepth: 0xff, PKey: 0xffff,
				AH: 0xffffff, TemplateLen: 0xff, PCP: 0xff, DSCP: 0xff, State: 15, CurState: 15, DMA: 0xdeadbeefdeadbeef, ID: p.id,
			}
		}
		tmpl := n.template(n)
		at := n.ram.Alloc(4096)
		n.ram.Write(at, tmpl)

		m := garbage()
		m.Mask, m.State, m.Flags = maskInitRC, 1, abi.QPRemoteWrite
		n.must(abi.AdminModifyQP, &m)
		m = garbage()
		m.Mask, m.State = maskRTRRC, 2
		m.PMTU, m.RQPSN, m.QKeyDestQPN, m.RNRTimer, m.RSQDepth, m.AH, m.TemplateLen, m.DMA = 11, 0x010203, p.id, 12, 5, 30, 42, at
		n.must(abi.AdminModifyQP, &m)
		m = garbage()
		m.Mask, m.State = maskRTSRC, 3
		m.SQPSN, m.Timeout, m.RetryCnt, m.RNRRetry, m.RRQDepth = 0x040506, 14, 3, 6, 4
		n.must(abi.AdminModifyQP, &m)
		// A change without state, in the middle of garbage.
		m = garbage()
		m.Mask, m.RNRTimer = 0x8000, 7
		n.must(abi.AdminModifyQP, &m)

		buf := n.ram.Alloc(3 * 4096)
		n.must(abi.AdminQueryQP, &abi.QueryQP{HeaderDMA: buf + 8192, SQDMA: buf, RQDMA: buf + 4096, ID: p.id})
		var sq abi.QuerySQ
		var rq abi.QueryRQ
		sq.Get(n.ram.Read(buf, 64))
		rq.Get(n.ram.Read(buf+4096, 64))
		if want := (abi.QuerySQ{RNRTimer: 7, Timeout: 14, Flags: abi.QPRemoteWrite, QKeyDestQPN: p.id, RQPSN: 0x010203}); sq != want {
			t.Errorf("send side\n got %+v\nwant %+v", sq, want)
		}
		if want := (abi.QueryRQ{State: 3, PMTU: 11, RetryCnt: 3, RNRRetry: 6, RRQDepth: 5, RSQDepth: 5, SQPSN: 0x040506, Flags: abi.QPRemoteWrite}); rq != want {
			t.Errorf("receive side\n got %+v\nwant %+v", rq, want)
		}
		if got := n.ram.Read(buf+8192, 42); !bytes.Equal(got, tmpl) {
			t.Errorf("template %x", got)
		}
		for _, b := range [][]byte{n.ram.Read(buf+abi.QuerySQLen, 4096-abi.QuerySQLen), n.ram.Read(buf+4096+abi.QueryRQLen, 4096-abi.QueryRQLen), n.ram.Read(buf+8192+42, 4096-42)} {
			if !bytes.Equal(b, make([]byte, len(b))) {
				t.Error("wrote beyond the result")
			}
		}
	})
}

func TestAdmin_ModifyRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		p := n.createQP(qpOptions{})
		at := n.ram.Alloc(4096)
		n.ram.Write(at, n.template(n))
		if st := n.status(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 3, ID: p.id}); st != abi.AdminBadState {
			t.Errorf("RESET to RTS: %v", st)
		}
		if st := n.status(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 9, ID: p.id}); st != abi.AdminBadState {
			t.Errorf("to nowhere: %v", st)
		}
		p.toInit()
		good := abi.ModifyQP{Mask: maskRTRRC, State: 2, PMTU: 10, AH: 30, TemplateLen: 42, DMA: at, ID: p.id}
		for name, c := range map[string]struct {
			change func(m *abi.ModifyQP)
			want   abi.AdminStatus
		}{
			"path MTU":            {func(m *abi.ModifyQP) { m.PMTU = 13 }, abi.AdminBadAttr},
			"handle out of range": {func(m *abi.ModifyQP) { m.AH = 1 << 20 }, abi.AdminBadIndex},
			"template length":     {func(m *abi.ModifyQP) { m.TemplateLen = 41 }, abi.AdminBadAttr},
			"template not mapped": {func(m *abi.ModifyQP) { m.DMA = 0x1000 }, abi.AdminBadAttr},
			"no address vector":   {func(m *abi.ModifyQP) { m.Mask &^= 0x80 }, abi.AdminBadAttr},
		} {
			bad := good
			c.change(&bad)
			if st := n.status(abi.AdminModifyQP, &bad); st != c.want {
				t.Errorf("%s: %v, want %v", name, st, c.want)
			}
			if st := queryState(n, p.id); st != 1 {
				t.Fatalf("%s: state is %d", name, st)
			}
		}
		n.must(abi.AdminModifyQP, &good)
	})
}

// QUERY_QP of a QP that has no address vector must fail when one is asked
// for: after a success the driver reads one it never stored.
func TestAdmin_QueryOfMissingAddressVector(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		buf := n.ram.Alloc(3 * 4096)
		for typ, want := range map[uint8]abi.AdminStatus{abi.TypeRC: abi.AdminOK, abi.TypeUC: abi.AdminBadAttr, abi.TypeUD: abi.AdminBadAttr} {
			p := n.createQP(qpOptions{typ: typ})
			q := &abi.QueryQP{HeaderDMA: buf + 8192, SQDMA: buf, RQDMA: buf + 4096, ID: p.id}
			if st := n.status(abi.AdminQueryQP, q); st != want {
				t.Errorf("type %d: %v", typ, st)
			}
			q.HeaderDMA = 0
			n.must(abi.AdminQueryQP, q)
			if mtu := n.ram.Read(buf+4096, 1)[0] & 15; mtu < 8 || mtu > 12 {
				t.Errorf("type %d: MTU of 2^%d before one is set", typ, mtu)
			}
			q.SQDMA = 0x1000
			if st := n.status(abi.AdminQueryQP, q); st != abi.AdminBadAttr {
				t.Errorf("type %d, unmapped buffer: %v", typ, st)
			}
		}
	})
}

// After RESET the QP starts from nothing, on all rings, as its driver does.
func TestAdmin_ResetQPStartsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		for lap := range 4 {
			for i := range uint32(lap + 3) {
				pb.postRecv(uint64(i), sge{dst, 64, dkey})
				pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
				a.expect(pa.scq, msnCQE(i+1, pa.id))
				b.expect(pb.rcq, recvCQE(uint64(i), pa.id, 0, "", 8, pb.id))
			}
			pb.postRecv(9, sge{dst, 64, dkey}) // dropped by the reset
			for _, p := range []*pair{pa, pb} {
				p.n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: p.id})
				p.sqAt, p.rqAt = 0, 0
			}
			a.expect(pa.scq)
			b.expect(pb.rcq)
			pa.connect(pb)
			pb.connect(pa)
		}
	})
}

// Completions that a full CQ held back do not appear after RESET or DESTROY.
func TestAdmin_ResetDropsHeldCompletions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
		a.probe()
		b.probe()
		small := a.createCQ(1, 0)
		pa, pb := a.createQP(qpOptions{scq: small}), b.createQP(qpOptions{})
		other := a.createQP(qpOptions{scq: small})
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		for i, end := range []func(){
			func() { a.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: pa.id}) },
			func() { pa.destroy() },
		} {
			b.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 0, ID: pb.id})
			pa.sqAt = 0
			pa.connect(pb)
			pb.connect(pa)
			for range 10 {
				pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(dst, dkey))
			}
			a.settle()
			end()
			seen := 0
			for range 5 {
				for _, ok := a.poll(small); ok; _, ok = a.poll(small) {
					seen++
				}
				a.consumed(small)
				a.settle()
			}
			if seen != 1 {
				t.Fatalf("case %d: %d completions", i, seen)
			}
		}
		_ = other
	})
}

// A doorbell reaches only queues of its own process, and nothing breaks on any
// value.
func TestDoorbell_Isolation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		n := newNode(t, f, 1, options{})
		n.probe()
		p := n.createQP(qpOptions{pid: 3})
		p.connect(p)
		at, key := n.region(4096, 0, mrAll)
		p.pid = 4 // another process
		p.postRecv(1, sge{at, 64, key})
		p.postSend(p.send(abi.OpSend, sge{at, 8, key}))
		n.ring(4, rdma.SlotCQ, abi.Doorbell{Ring: abi.RingArm, QID: p.scq.id})
		n.expect(p.scq)
		p.pid = 3
		n.ring(3, rdma.SlotRQ, abi.Doorbell{Index: uint16(p.rqAt), QID: p.id})
		n.ring(3, rdma.SlotSQ, abi.Doorbell{Index: uint16(p.sqAt), QID: p.id})
		n.settle()
		if c, ok := n.poll(p.scq); !ok || c.Error {
			t.Fatalf("%+v, %v", c, ok)
		}
		r := rand.New(rand.NewSource(1))
		for range 20000 {
			v := abi.Doorbell{Index: uint16(r.Uint32()), Ring: uint8(r.Intn(8)), QID: r.Uint32() & 0xff}.Value()
			if r.Intn(10) == 0 {
				v = r.Uint64()
			}
			n.engine.Doorbell(uint32(r.Intn(5)), uint8(r.Intn(512)), v)
		}
		n.settle()
	})
}

// hw_counters: the list, its values, the LIF block and the QP's own view agree.
func TestStats_AllViewsAgree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(8192, 0, mrAll)
		dst, dkey := b.region(8192, 0, mrAll)
		for range 5 {
			pa.postSend(pa.send(abi.OpWrite, sge{src, 1000, skey}).remote(dst, dkey))
		}
		a.settle()
		all := a.counters()
		if len(all) < 50 {
			t.Errorf("%d counters", len(all))
		}
		if all["tx_rdma_ucast_bytes"] != 5000 || all["tx_rdma_ucast_pkts"] != 5 {
			t.Errorf("sent %d bytes in %d packets", all["tx_rdma_ucast_bytes"], all["tx_rdma_ucast_pkts"])
		}
		if got := b.counters(); got["rx_rdma_ucast_bytes"] != 5000 || got["rx_rdma_ucast_pkts"] != 5 {
			t.Errorf("received %d bytes in %d packets", got["rx_rdma_ucast_bytes"], got["rx_rdma_ucast_pkts"])
		}
		own := a.statistics(abi.AdminQPStatsHdrs, abi.AdminQPStatsVals, pa.id)
		if own["tx_rdma_ucast_bytes"] != 5000 {
			t.Errorf("the QP sent %d bytes", own["tx_rdma_ucast_bytes"])
		}
		block := bytes.Repeat([]byte{0xaa}, abi.LIFStatsLen)
		a.engine.StatsInto(block)
		if got := binary.LittleEndian.Uint64(block[384:]); got != 5000 {
			t.Errorf("LIF block: sent %d bytes", got)
		}
		if block[0] != 0xaa || block[383] != 0xaa || block[1023] != 0xaa {
			t.Error("StatsInto wrote outside its fields")
		}
		// A QP that goes takes nothing along.
		pa.destroy()
		if got := a.counters()["tx_rdma_ucast_bytes"]; got != 5000 {
			t.Errorf("%d bytes after the QP is gone", got)
		}
		if st := a.status(abi.AdminQPStatsVals, &abi.Stats{DMA: src, Length: 4096, ID: pa.id}); st != abi.AdminBadIndex {
			t.Errorf("statistics of a QP that is gone: %v", st)
		}
		if st := a.status(abi.AdminStatsValues, &abi.Stats{DMA: 0x1000, Length: 4096}); st != abi.AdminBadAttr {
			t.Errorf("unmapped buffer: %v", st)
		}
		// Only as much as the buffer takes.
		buf := a.ram.Alloc(4096)
		a.must(abi.AdminStatsHeaders, &abi.Stats{DMA: buf, Length: 100})
		if got := a.ram.Read(buf+100, 3996); !bytes.Equal(got, make([]byte, 3996)) {
			t.Error("wrote beyond the buffer")
		}
		// The driver's reset keeps the counters, the device's does not.
		a.probe()
		if got := a.counters()["tx_rdma_ucast_bytes"]; got != 5000 {
			t.Errorf("%d bytes after RDMA_RESET_LIF", got)
		}
		a.engine.Reset()
		a.probe()
		if got := a.counters()["tx_rdma_ucast_bytes"]; got != 0 {
			t.Errorf("%d bytes after a device reset", got)
		}
		_ = pb
	})
}

// The four LIF commands refuse what they cannot do.
func TestCommand_Refusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		at := n.ram.Alloc(64 << 10)
		for name, c := range map[string]struct {
			cmd  abi.QueueCommand
			want uint8
		}{
			"unknown":              {abi.QueueCommand{Opcode: 54}, abi.CmdEOpcode},
			"other LIF":            {abi.QueueCommand{Opcode: 51, LIF: 1, ID: 9, CID: 20, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdEInval},
			"EQ exists":            {abi.QueueCommand{Opcode: 51, ID: 0, CID: 20, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdEExist},
			"EQ id":                {abi.QueueCommand{Opcode: 51, ID: 32, CID: 20, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdEQID},
			"EQ vector":            {abi.QueueCommand{Opcode: 51, ID: 9, CID: 32, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdEInval},
			"EQ vector in use":     {abi.QueueCommand{Opcode: 51, ID: 9, CID: 5, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdEExist},
			"EQ stride":            {abi.QueueCommand{Opcode: 51, ID: 9, CID: 20, DepthLog2: 10, StrideLog2: 3, DMA: at}, abi.CmdEInval},
			"EQ not mapped":        {abi.QueueCommand{Opcode: 51, ID: 9, CID: 20, DepthLog2: 10, StrideLog2: 2, DMA: 0x1000}, abi.CmdEInval},
			"CQ exists":            {abi.QueueCommand{Opcode: 52, ID: 0, CID: 2, DepthLog2: 8, StrideLog2: 5, DMA: at}, abi.CmdEExist},
			"CQ without EQ":        {abi.QueueCommand{Opcode: 52, ID: 9, CID: 30, DepthLog2: 8, StrideLog2: 5, DMA: at}, abi.CmdEInval},
			"AQ exists":            {abi.QueueCommand{Opcode: 53, ID: 0, CID: 0, DepthLog2: 9, StrideLog2: 6, DMA: at}, abi.CmdEExist},
			"AQ id":                {abi.QueueCommand{Opcode: 53, ID: 1, CID: 0, DepthLog2: 9, StrideLog2: 6, DMA: at}, abi.CmdEQID},
			"version bits dropped": {abi.QueueCommand{Opcode: 51, ID: 11 | 5<<24, CID: 21, DepthLog2: 10, StrideLog2: 2, DMA: at}, abi.CmdOK},
		} {
			if st := n.command(c.cmd); st != c.want {
				t.Errorf("%s: status %d, want %d", name, st, c.want)
			}
		}
		n.mustCommand(abi.QueueCommand{Opcode: abi.CmdResetLIF})
		for name, c := range map[string]abi.QueueCommand{
			"AQ without CQ": {Opcode: 53, ID: 0, CID: 0, DepthLog2: 9, StrideLog2: 6, DMA: at},
			"AQ stride":     {Opcode: 53, ID: 0, CID: 0, DepthLog2: 9, StrideLog2: 7, DMA: at},
		} {
			if st := n.command(c); st != abi.CmdEInval {
				t.Errorf("%s: status %d", name, st)
			}
		}
		n.engine.Close()
		if st := n.command(abi.QueueCommand{Opcode: abi.CmdResetLIF}); st == abi.CmdOK {
			t.Error("a closed engine took a command")
		}
		n.engine.Close()
		n.engine.Reset()
		n.engine.Attach(n.ram.Space)
	})
}

func TestIdentity_IsConsistent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newFabric(), 1, options{})
		b := make([]byte, abi.IdentityLen)
		n.engine.Identity(b)
		var id abi.Identity
		id.Get(b)
		if id.SQ.Count != 16384 || id.CQ.Count != 32768 || id.MRs != 131072 || id.AHs != 65536 || id.EQ.Count != 32 || id.AQ.Count != 1 {
			t.Errorf("%+v", id)
		}
		if id.Version != 1 || id.QPOpcodes <= 10 || id.AdminOpcodes != 19 || id.MaxStride != 9 || id.UDMAShift != 3 || id.StatsType != 3 {
			t.Errorf("%+v", id)
		}
		if id.SQ.Base|id.RQ.Base|id.CQ.Base|id.EQ.Base != 0 {
			t.Error("a queue id base that the driver ignores")
		}
	})
}

func TestLimits_AreChecked(t *testing.T) {
	for _, l := range []rdma.Limits{{QPs: 3000}, {QPs: 8}, {CQs: 100}, {MRs: 1 << 25}, {AHs: 1 << 25}, {AQs: 5}, {EQs: 2000}} {
		if _, err := rdma.New(rdma.Config{Limits: l, Interrupts: interrupts{}, Link: newFabric()}); err == nil {
			t.Errorf("%+v: taken", l)
		}
	}
	if _, err := rdma.New(rdma.Config{Opcodes: 3, Interrupts: interrupts{}, Link: newFabric()}); err == nil {
		t.Error("opcodes of version 3 are taken")
	}
	if _, err := rdma.New(rdma.Config{}); err == nil {
		t.Error("an engine without a link")
	}
}

type interrupts struct{}

func (interrupts) Len() int      { return 4 }
func (interrupts) Post(int, int) {}
func (interrupts) Reset(int)     {}

// Memory the guest takes away under the device is an error of the work.
func TestMemory_TakenAwayUnderTraffic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		pa.postSend(pa.send(abi.OpWrite, sge{src, 8, skey}).remote(0x5000, 1))
		b.ram.Space.UnmapAll()
		b.settle()
		pb.n.ring(0, rdma.SlotSQ, abi.Doorbell{Index: 3, QID: pb.id})
		pb.n.ring(0, rdma.SlotRQ, abi.Doorbell{Index: 3, QID: pb.id})
		pa.postSend(pa.send(abi.OpSend, sge{src, 8, skey}))
		pb.n.ring(0, rdma.SlotAQ, abi.Doorbell{Index: 400})
		a.settle()
		b.engine.Reset()
	})
}

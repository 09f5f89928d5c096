// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// What a guest may have at once, and more.
const (
	manyQPs = 10_000
	manyMRs = 100_000
	manyAHs = 10_000
)

// What the identity promises is really there at the same time, works to the
// last id, and an idle engine is small.
func TestCapacity_AllThatIsAdvertised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		runtime.GC()
		var before, idle, full runtime.MemStats
		runtime.ReadMemStats(&before)
		n := newProbed(t)
		runtime.ReadMemStats(&idle)
		if size := int64(idle.HeapAlloc) - int64(before.HeapAlloc); size > 2<<20 {
			t.Errorf("an idle engine takes %d KiB", size>>10)
		}
		n.populate(n.drainAdmin, manyQPs, manyMRs, manyAHs)
		runtime.ReadMemStats(&full)
		t.Logf("%d QPs and CQs, %d MRs and %d AHs take %d MiB", manyQPs, manyMRs, manyAHs, (full.HeapAlloc-idle.HeapAlloc)>>20)
		want := rdma.Objects{EQs: 4, CQs: 1 + manyQPs, QPs: manyQPs, MRs: manyMRs, AHs: manyAHs}
		if got := n.engine.Objects(); got != want {
			t.Errorf("the engine has %+v, want %+v", got, want)
		}
		// The last queue pair sends through the last region and, as the last
		// handle's user, to itself.
		p := n.createQP(qpOptions{id: firstMany + manyQPs, scq: n.createCQ(8, 0)})
		p.connect(p)
		at, key := n.manyPage, uint32(firstMany+manyMRs-1)<<8
		data := n.fill(at, 64, 9)
		p.postSend(p.send(abi.OpWrite, sge{at, 64, key}).remote(at+1024, key))
		n.expect(p.scq, msnCQE(1, p.id))
		if !bytes.Equal(n.ram.Read(at+1024, 64), data) {
			t.Error("other bytes arrived")
		}
		d := n.datagramQP(qpOptions{}, 7)
		d.postRecv(1, sge{at, 256, key})
		d.postSend(d.sendTo(firstMany+manyAHs-1, d.id, 7, sge{at + 1024, 64, key}))
		n.settle()
		if c, ok := n.poll(d.rcq); !ok || c.Error {
			t.Errorf("a datagram through the last address handle: %+v, %v", c, ok)
		}
		n.mustCommand(abi.QueueCommand{Opcode: abi.CmdResetLIF})
		if got := n.engine.Objects(); got != (rdma.Objects{}) {
			t.Errorf("after the reset the engine has %+v", got)
		}
	})
}

// firstMany is the first id of what populate makes.
const firstMany = 1000

// populate makes many objects, all with one page of memory: queue pairs with a
// CQ each, regions, address handles. drain rings the admin queue and waits.
func (n *node) populate(drain func(), qps, mrs, ahs uint32) {
	page := n.ram.Alloc(4096)
	n.manyPage = page
	tmpl := n.template(n)
	at := n.ram.Alloc(64)
	n.ram.Write(at, tmpl)
	posted := 0
	post := func(op uint8, b body) {
		n.post(op, b)
		if posted++; posted%100 == 0 {
			drain()
		}
	}
	for i := range qps {
		post(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 7, StrideLog2: 5, ID: firstMany + i, MapCount: 1, DMA: page})
	}
	drain()
	for i := range qps {
		ring := abi.RingDesc{CQ: firstMany + i, DepthLog2: 6, StrideLog2: 6, MapCount: 1, DMA: page}
		post(abi.AdminCreateQP, &abi.CreateQP{ID: firstMany + i, SQ: ring, RQ: ring})
	}
	for i := range mrs {
		post(abi.AdminCreateMR, &abi.CreateMR{VA: page, Length: 4096, ID: (firstMany + i) << 8, MapCount: 1, DMA: page, Flags: mrAll})
	}
	for i := range ahs {
		post(abi.AdminCreateAH, &abi.CreateAH{DMA: at, Length: uint32(len(tmpl)), ID: firstMany + i})
	}
	drain()
}

// drain is drainAdmin in real time.
func (n real) drain() {
	n.ringAdmin()
	idle := time.Now()
	for pending := (n.aqAt - n.acqSeen) & 511; pending > 0; {
		c, ok := n.poll(n.acq)
		if !ok {
			if time.Since(idle) > time.Minute {
				n.t.Fatal("the admin queue stands still")
			}
			runtime.Gosched()
			continue
		}
		if c.Error {
			n.t.Fatalf("%s: status %d", abi.AdminOpName(c.CmdOp), c.StatusLength)
		}
		n.consumed(n.acq)
		used := uint32(1)
		if c.CmdOp == abi.AdminCreateQP {
			used = 2
		}
		n.acqSeen = (uint32(c.CmdIndex) + used) & 511
		pending = (n.aqAt - n.acqSeen) & 511
	}
}

// measured are operations that look objects up, on a pair whose first node is
// populated.
func measured(p *benchPair, qps, mrs uint32) map[string]func() {
	i := uint32(0)
	next := func(n uint32) uint32 {
		i = i*1664525 + 1013904223 // all over the table
		return firstMany + i>>8%n
	}
	var cqe [abi.CQELen]byte
	index := uint16(0)
	return map[string]func(){
		"QP doorbell": func() { p.a.engine.Doorbell(0, rdma.SlotRQ, abi.Doorbell{QID: next(qps)}.Value()) },
		"CQ doorbell": func() { p.a.engine.Doorbell(0, rdma.SlotCQ, abi.Doorbell{QID: next(qps)}.Value()) },
		"WRITE through any MR": func() {
			w := p.pa.send(abi.OpWrite, sge{p.a.manyPage, 8, next(mrs) << 8}).remote(p.dst, benchKey)
			p.a.ram.Write(p.pa.sq+uint64(index)*64, w.b)
			index = (index + 1) & (1<<benchDepth - 1)
			p.a.ring(0, rdma.SlotSQ, abi.Doorbell{Index: index, QID: p.pa.id})
			p.a.completion(p.pa.scq, &cqe)
			p.a.consumed(p.pa.scq)
			if cqe[31]&abi.CQEError != 0 {
				p.a.t.Fatalf("completion %x", cqe)
			}
		},
	}
}

func BenchmarkCapacity(b *testing.B) {
	for _, n := range []uint32{16, manyQPs} {
		p := newBenchPair(b)
		p.a.acqSeen = p.a.aqAt
		p.a.populate(real{p.a}.drain, n, 10*n, n)
		for name, f := range measured(p, n, 10*n) {
			b.Run(fmt.Sprintf("%s/of=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
	}
}

// A lookup costs the same among 16 and among 10,000: the best of many series on
// each, taken in turn so that a busy machine hits both, until one is good
// enough. A table that is searched would be a thousand times slower; a cache
// that misses is not.
func TestCapacity_LookupsTakeConstantTime(t *testing.T) {
	few, many := newBenchPair(t), newBenchPair(t)
	for _, p := range []*benchPair{few, many} {
		p.a.acqSeen = p.a.aqAt
	}
	few.a.populate(real{few.a}.drain, 16, 160, 16)
	many.a.populate(real{many.a}.drain, manyQPs, manyMRs, manyAHs)
	onFew, onMany := measured(few, 16, 160), measured(many, manyQPs, manyMRs)
	best := func(f func(), least time.Duration) time.Duration {
		begin := time.Now()
		for range 200 {
			f()
		}
		return min(least, time.Since(begin))
	}
	for name := range onFew {
		a, b := time.Hour, time.Hour
		slow := true
		for i := 0; slow && i < 200; i++ {
			a, b = best(onFew[name], a), best(onMany[name], b)
			slow = i < 5 || b > 10*a+50*time.Microsecond
		}
		t.Logf("%s: %v among 16, %v among %d", name, a/200, b/200, manyQPs)
		if slow {
			t.Errorf("%s: %v among %d, %v among 16", name, b/200, manyQPs, a/200)
		}
	}
}

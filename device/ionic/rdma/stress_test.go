// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// Ten thousand queue pairs and their regions come and go; nothing of them is
// left, neither in the engine nor in its budget of page table entries.
func TestObjects_ComeAndGoWithoutLeak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		q := n.createCQ(8, 0)
		page := n.ram.Alloc(4096)
		// Rings and regions described by tables that are not contiguous.
		table := n.ram.Table(page, page, page, page)
		ring := abi.RingDesc{CQ: q.id, DepthLog2: 8, StrideLog2: 6, PageSizeLog2: 12, MapCount: 4, DMA: table}
		round := func(from, to uint32) {
			for id := from; id < to; id++ {
				n.must(abi.AdminCreateQP, &abi.CreateQP{ID: id, SQ: ring, RQ: ring})
				n.must(abi.AdminCreateMR, &abi.CreateMR{VA: 0, Length: 4 * 4096, ID: id << 8, MapCount: 4, DMA: table, PageSizeLog2: 12})
			}
			for id := from; id < to; id++ {
				n.must(abi.AdminDestroyQP, &abi.Destroy{ID: id})
				n.must(abi.AdminDestroyMR, &abi.Destroy{ID: id << 8})
			}
		}
		round(100, 200)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			round(200, 1200)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2<<20 {
			t.Errorf("the heap grew by %d KiB", grown>>10)
		}
		n.must(abi.AdminDestroyCQ, &abi.Destroy{ID: q.id})
	})
}

// drainAdmin rings and waits for all completions.
func (n *node) drainAdmin() {
	n.t.Helper()
	n.ringAdmin()
	for last := false; !last; {
		n.settle()
		last = true
		for c, ok := n.poll(n.acq); ok; c, ok = n.poll(n.acq) {
			if c.Error {
				n.t.Fatalf("%s: status %d", abi.AdminOpName(c.CmdOp), c.StatusLength)
			}
			last = false
		}
		n.consumed(n.acq)
	}
}

// real is a node that runs on the real clock: its guest waits by looking.
type real struct{ *node }

// admin executes a command, waiting in real time.
func (n real) admin(op uint8, b body) abi.AdminStatus {
	n.post(op, b)
	n.ringAdmin()
	for deadline := time.Now().Add(time.Minute); ; {
		if c, ok := n.poll(n.acq); ok {
			n.consumed(n.acq)
			return abi.AdminStatus(c.StatusLength)
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s does not complete", abi.AdminOpName(op))
		}
		runtime.Gosched()
	}
}

// Regions, queue pairs and completion queues are destroyed while peers write
// through them from several goroutines. After a command has completed its
// memory does not change any more.
func TestDestroy_UnderTraffic(t *testing.T) {
	f := newFabric()
	var a, b *node
	var pairs [3][2]*pair
	var src, dst uint64
	var skey uint32
	// Setting up needs the clock of a bubble only to wait for commands.
	waiting := func(n *node) real { return real{n} }
	a, b = newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
	a.probe()
	b.probe()
	ra, rb := waiting(a), waiting(b)
	must := func(n real, op uint8, c body) {
		t.Helper()
		if st := n.admin(op, c); st != abi.AdminOK {
			t.Fatalf("%s: %v", abi.AdminOpName(op), st)
		}
	}
	const size = 32 << 10
	src, dst = a.ram.Alloc(size), b.ram.Alloc(size)
	skey = 500 << 8
	must(ra, abi.AdminCreateMR, &abi.CreateMR{VA: src, Length: size, ID: skey, MapCount: 1, DMA: src, Flags: mrAll})
	sink, sinkKey := a.ram.Alloc(size), uint32(501<<8)
	must(ra, abi.AdminCreateMR, &abi.CreateMR{VA: sink, Length: size, ID: sinkKey, MapCount: 1, DMA: sink, Flags: mrAll})
	makeCQ := func(n real, id uint32) *compRing {
		q := &compRing{id: id, at: n.ram.Alloc(32 << 10), depth: 10}
		must(n, abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 10, StrideLog2: 5, ID: id, MapCount: 1, DMA: q.at})
		return q
	}
	connect := func(n real, p, peer *pair) {
		at := n.ram.Alloc(64)
		tmpl := n.template(peer.n)
		n.ram.Write(at, tmpl)
		must(n, abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitRC, State: 1, Flags: allRights, ID: p.id})
		must(n, abi.AdminModifyQP, &abi.ModifyQP{Mask: maskRTRRC, State: 2, PMTU: 10, QKeyDestQPN: peer.id, RSQDepth: 5, AH: p.id, TemplateLen: uint8(len(tmpl)), DMA: at, ID: p.id})
		must(n, abi.AdminModifyQP, &abi.ModifyQP{Mask: maskRTSRC, State: 3, Timeout: 10, RetryCnt: 1, RRQDepth: 4, ID: p.id})
		n.ram.Free(at, 64)
	}
	acq, bcq := makeCQ(ra, 40), makeCQ(rb, 41)
	makePair := func(n real, id uint32, q *compRing) *pair {
		p := &pair{n: n.node, id: id, scq: q, rcq: q, depth: 8, stride: 6}
		p.sq, p.rq = n.ram.Alloc(16<<10), n.ram.Alloc(16<<10)
		return p
	}
	for i := range pairs {
		pairs[i] = [2]*pair{makePair(ra, 60+uint32(i), acq), makePair(rb, 80+uint32(i), bcq)}
	}
	a.fill(src, size, 1)
	// For two seconds, and on a busy machine until something has landed.
	begin := time.Now()
	rounds, landed := 0, 0
	over := func() bool {
		if landed == 0 {
			return time.Since(begin) > time.Minute
		}
		return time.Since(begin) > 2*time.Second
	}
	for round := 0; !over() && round < 200; round++ {
		rounds++
		dkey := uint32(600+round)<<8 | uint32(round&0xff)
		must(rb, abi.AdminCreateMR, &abi.CreateMR{VA: dst, Length: size, ID: dkey, MapCount: 1, DMA: dst, Flags: mrAll})
		for i := range pairs {
			pa, pb := pairs[i][0], pairs[i][1]
			pa.sqAt, pb.sqAt = 0, 0
			must(ra, abi.AdminCreateQP, pa.create(qpOptions{}))
			must(rb, abi.AdminCreateQP, pb.create(qpOptions{}))
		}
		for i := range pairs {
			connect(ra, pairs[i][0], pairs[i][1])
			connect(rb, pairs[i][1], pairs[i][0])
		}
		var wg sync.WaitGroup
		var stop atomic.Bool
		for i := range pairs {
			wg.Add(1)
			go func() {
				defer wg.Done()
				p := pairs[i][0]
				for k := 0; k < 200 && !stop.Load(); k++ {
					w := p.send(abi.OpWrite, sge{src, size, skey})
					if i == 2 {
						w = p.send(abi.OpRead, sge{sink, size, sinkKey})
					}
					p.postSend(w.remote(dst, dkey))
				}
			}()
		}
		for b.ram.Load64(dst+size-8) == 0 && !over() {
			runtime.Gosched()
		}
		if b.ram.Load64(dst+size-8) != 0 {
			landed++
		}
		// The region goes under the writers.
		must(rb, abi.AdminDestroyMR, &abi.Destroy{ID: dkey})
		b.ram.Write(dst, make([]byte, size))
		for range 100 {
			runtime.Gosched()
		}
		if !bytes.Equal(b.ram.Read(dst, size), make([]byte, size)) {
			t.Fatal("the region was written after it was destroyed")
		}
		// The queue pairs go in any state.
		for i := range pairs {
			must(rb, abi.AdminDestroyQP, &abi.Destroy{ID: pairs[i][1].id})
		}
		for i := range pairs {
			must(ra, abi.AdminDestroyQP, &abi.Destroy{ID: pairs[i][0].id})
		}
		stop.Store(true)
		wg.Wait()
		must(ra, abi.AdminDestroyCQ, &abi.Destroy{ID: acq.id})
		ring := a.ram.Read(acq.at, 32<<10)
		for range 100 {
			runtime.Gosched()
		}
		if !bytes.Equal(ring, a.ram.Read(acq.at, 32<<10)) {
			t.Fatal("the CQ was written after it was destroyed")
		}
		a.ram.Free(acq.at, 32<<10)
		*acq = *makeCQ(ra, 40)
	}
	if landed == 0 {
		t.Fatal("nothing was ever written")
	}
	t.Logf("%d rounds, data landed in %d", rounds, landed)
}

// Resets in the middle of everything: doorbells, packets, commands, timers.
func TestReset_UnderTraffic(t *testing.T) {
	f := newFabric()
	a, b := newNode(t, f, 1, options{}), newNode(t, f, 2, options{})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := uint32(0); !stop.Load(); i++ {
				slot := []uint8{rdma.SlotSQ, rdma.SlotRQ, rdma.SlotCQ, rdma.SlotAQ}[i%4]
				a.engine.Doorbell(0, slot, abi.Doorbell{Index: uint16(i), Ring: uint8(i % 3), QID: 17 + i%8}.Value())
				a.engine.Unmasking(int(i % 16))
				if g == 0 {
					var block [abi.LIFStatsLen]byte
					a.engine.StatsInto(block[:])
					a.engine.Writable(nil)
				}
				runtime.Gosched()
			}
		}()
	}
	b.probe()
	rb := real{b}
	for i := range 100 {
		a.probe()
		ra := real{a}
		at := a.ram.Alloc(64 << 10)
		if i%2 == 0 {
			for id := uint32(17); id < 25; id++ {
				ra.admin(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 8, StrideLog2: 5, ID: id, MapCount: 1, DMA: at})
				ring := abi.RingDesc{CQ: id, DepthLog2: 8, StrideLog2: 6, MapCount: 1, DMA: at}
				ra.admin(abi.AdminCreateQP, &abi.CreateQP{ID: id, SQ: ring, RQ: ring})
				ra.admin(abi.AdminModifyQP, &abi.ModifyQP{Mask: maskInitRC, State: 1, ID: id})
			}
		}
		rb.admin(abi.AdminNoop, nil)
		a.engine.Reset()
		before := a.ram.Read(at, 64<<10)
		for range 50 {
			runtime.Gosched()
		}
		if !bytes.Equal(before, a.ram.Read(at, 64<<10)) {
			t.Fatal("memory changed after the reset")
		}
		a.ram.Free(at, 64<<10)
		for _, q := range a.eqs {
			a.ram.Free(q.at, 4096)
		}
		a.ram.Free(a.acq.at, 8192)
		a.ram.Free(a.aq, 32<<10)
	}
	stop.Store(true)
	wg.Wait()
}

// Atomics of two nodes and of the guest's own processor on one word: every
// addition counts.
func TestAtomics_UnderContention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		self := b.createQP(qpOptions{stride: 8})
		self.connect(self)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		const each = 500
		add := func(p *pair, from uint64, key uint32) {
			w := p.send(abi.OpAtomicFA).remote(dst, dkey).u64(abi.AtomicOperand, 1)
			w.u8(abi.WQENumSGE, 1).u64(abi.AtomicSGE, from).u32(abi.AtomicSGE+8, 8).u32(abi.AtomicSGE+12, key)
			p.postSend(w)
		}
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each * 10 {
				if _, err := b.ram.Space.AddUint64(dst, 1); err != nil {
					t.Error(err)
				}
			}
		}()
		for range each / 10 {
			for range 10 {
				add(pa, src, skey)
				add(self, dst+64, dkey)
			}
			a.settle()
			for _, ok := a.poll(pa.scq); ok; _, ok = a.poll(pa.scq) {
			}
			for _, ok := b.poll(self.scq); ok; _, ok = b.poll(self.scq) {
			}
			a.consumed(pa.scq)
			b.consumed(self.scq)
		}
		wg.Wait()
		if got := b.ram.Load64(dst); got != each*12 {
			t.Errorf("%d additions count as %d", each*12, got)
		}
		_ = pb
	})
}

// Thousands of events on one EQ from more CQs than it has entries: each is
// told once, none overwritten.
func TestEvents_MoreQueuesThanEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newProbed(t)
		at := n.ram.Alloc(4096)
		p := n.createQP(qpOptions{scq: n.createCQ(8, 0)})
		p.connect(p)
		const queues = 1500
		for i := range uint32(queues) {
			n.post(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 3, DepthLog2: 1, StrideLog2: 5, ID: 1000 + i, MapCount: 1, DMA: at + uint64(i%64)*64})
			ring := abi.RingDesc{CQ: 1000 + i, DepthLog2: 6, StrideLog2: 6, MapCount: 1, DMA: p.sq}
			n.post(abi.AdminCreateQP, &abi.CreateQP{ID: 1000 + i, SQ: ring, RQ: ring})
			if i%64 == 63 {
				n.drainAdmin()
			}
		}
		n.drainAdmin()
		n.intrWrite(8, 4, 1) // nobody handles EQ 3
		for i := range uint32(queues) {
			n.ring(0, rdma.SlotCQ, abi.Doorbell{Ring: abi.RingArm, QID: 1000 + i})
			n.post(abi.AdminModifyQP, &abi.ModifyQP{Mask: 1, State: 6, ID: 1000 + i})
			if i%64 == 63 {
				n.drainAdmin()
			}
		}
		n.drainAdmin()
		if w, l := n.metric("rdma_events_waited"), n.metric("rdma_events_lost"); w != queues-1023 || l != 0 {
			t.Errorf("%d events waited and %d are lost, want %d and 0", w, l, queues-1023)
		}
		seen := make(map[uint32]int)
		n.intrWrite(8, 4, 0)
		for range 10 {
			for _, e := range n.isr(n.eqs[3]) {
				seen[e.QID]++
			}
		}
		for i := range uint32(queues) {
			if seen[1000+i] != 1 {
				t.Fatalf("CQ %d: %d events", 1000+i, seen[1000+i])
			}
		}
	})
}

// What is posted with one doorbell is all executed, up to a full ring of the
// largest depth.
func TestConnected_DeepestRing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		n := newNode(t, f, 1, options{ram: 64 << 20})
		n.probe()
		q := n.createCQ(16, 0)
		p := n.createQP(qpOptions{depth: 16, scq: q})
		p.connect(p)
		at, key := n.region(4096, 0, mrAll)
		w := p.send(abi.OpWrite, sge{at, 8, key}).remote(at+64, key)
		const total = 65535
		all := make([]byte, total*64)
		for i := range total {
			binary.LittleEndian.PutUint64(w.b, uint64(i))
			copy(all[i*64:], w.b)
		}
		n.ram.Write(p.sq, all)
		n.ring(0, rdma.SlotSQ, abi.Doorbell{Index: total, QID: p.id})
		n.settle()
		for i := range uint32(total) {
			c, ok := n.poll(q)
			if !ok || c.MSN != i+1 || c.Error {
				t.Fatalf("completion %d: %+v, %v", i, c, ok)
			}
		}
	})
}

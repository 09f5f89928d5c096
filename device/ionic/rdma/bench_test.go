// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// The NIC takes the engine as its RDMA half.
var (
	_ ionic.RDMA     = (*rdma.Engine)(nil)
	_ ionic.Unmasker = (*rdma.Engine)(nil)
)

// benchPair is a connected pair on two nodes in real time.
type benchPair struct {
	a, b   *node
	pa, pb *pair
	src    uint64
	dst    uint64
}

const (
	benchKey   = 500 << 8
	benchDepth = 10
	benchSize  = 1 << 20
)

func newBenchPair(b testing.TB) *benchPair {
	f := newFabric()
	p := &benchPair{a: newNode(b, f, 1, options{}), b: newNode(b, f, 2, options{})}
	var ends [2]*pair
	for i, n := range []*node{p.a, p.b} {
		n.probe()
		r := real{n}
		q := &compRing{id: 17, at: n.ram.Alloc(64 << 10), depth: 11}
		r.admin(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 11, StrideLog2: 5, ID: 17, MapCount: 1, DMA: q.at})
		e := &pair{n: n, id: uint32(20 + i), scq: q, rcq: q, depth: benchDepth, stride: 6}
		e.sq, e.rq = n.ram.Alloc(64<<10), n.ram.Alloc(64<<10)
		r.admin(abi.AdminCreateQP, e.create(qpOptions{}))
		ends[i] = e
	}
	p.pa, p.pb = ends[0], ends[1]
	for i, n := range []*node{p.a, p.b} {
		r := real{n}
		peer := ends[1-i]
		tmpl := n.ram.Alloc(64)
		n.ram.Write(tmpl, n.template(peer.n))
		for _, m := range []*abi.ModifyQP{
			{Mask: maskInitRC, State: 1, Flags: allRights, ID: ends[i].id},
			{Mask: maskRTRRC, State: 2, PMTU: 12, QKeyDestQPN: peer.id, RSQDepth: 5, AH: 20, TemplateLen: 42, DMA: tmpl, ID: ends[i].id},
			{Mask: maskRTSRC, State: 3, Timeout: 18, RetryCnt: 7, RNRRetry: 7, RRQDepth: 4, ID: ends[i].id},
		} {
			if st := r.admin(abi.AdminModifyQP, m); st != abi.AdminOK {
				b.Fatal(st)
			}
		}
		at := n.ram.Alloc(benchSize)
		r.admin(abi.AdminCreateMR, &abi.CreateMR{VA: at, Length: benchSize, ID: benchKey, MapCount: 1, DMA: at, Flags: mrAll})
		if i == 0 {
			p.src = at
		} else {
			p.dst = at
		}
	}
	return p
}

// fillRing writes the same work to every entry of the SQ.
func (p *benchPair) fillRing(w *work) {
	for i := range uint64(1 << benchDepth) {
		binary.LittleEndian.PutUint64(w.b, i)
		p.pa.n.ram.Write(p.pa.sq+i*64, w.b)
	}
}

// completion waits for one CQE, without garbage.
func (n *node) completion(q *compRing, b *[abi.CQELen]byte) {
	off := uint64(q.cons&(1<<q.depth-1)) * abi.CQELen
	for n.ram.Load32(q.at+off+28)>>24&1 != ^(q.cons>>q.depth)&1 {
		runtime.Gosched()
	}
	n.ram.ReadInto(b[:], q.at+off)
	q.cons++
}

func benchmark(b *testing.B, batch int, w func(p *benchPair) *work, bytes int) {
	p := newBenchPair(b)
	p.fillRing(w(p))
	var cqe [abi.CQELen]byte
	index := uint16(0)
	one := func() {
		index = (index + uint16(batch)) & (1<<benchDepth - 1)
		p.a.ring(0, rdma.SlotSQ, abi.Doorbell{Index: index, QID: p.pa.id})
		for range batch {
			p.a.completion(p.pa.scq, &cqe)
		}
		p.a.consumed(p.pa.scq)
		if cqe[31]&abi.CQEError != 0 {
			b.Fatalf("completion %x", cqe)
		}
	}
	for range 100 {
		one()
	}
	b.SetBytes(int64(bytes * batch))
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		one()
	}
	b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds(), "msg/s")
}

func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ batch, size int }{{1, 8}, {1, 4096}, {64, 8}, {64, 4096}, {8, 64 << 10}, {2, 1 << 20}} {
		b.Run(fmt.Sprintf("batch=%d/size=%d", c.batch, c.size), func(b *testing.B) {
			benchmark(b, c.batch, func(p *benchPair) *work {
				return p.pa.send(abi.OpWrite, sge{p.src, uint32(c.size), benchKey}).remote(p.dst, benchKey)
			}, c.size)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	benchmark(b, 1, func(p *benchPair) *work {
		return p.pa.send(abi.OpRead, sge{p.src, 4096, benchKey}).remote(p.dst, benchKey)
	}, 4096)
}

// A doorbell for a queue pair that has nothing to do: decode, record, hand
// over.
func BenchmarkDoorbell(b *testing.B) {
	p := newBenchPair(b)
	v := abi.Doorbell{QID: p.pa.id}.Value()
	b.ReportAllocs()
	for b.Loop() {
		p.a.engine.Doorbell(0, rdma.SlotSQ, v)
	}
}

func BenchmarkDoorbellRQ(b *testing.B) {
	p := newBenchPair(b)
	v := abi.Doorbell{QID: p.pb.id}.Value()
	b.ReportAllocs()
	for b.Loop() {
		p.b.engine.Doorbell(0, rdma.SlotRQ, v)
	}
}

func BenchmarkArm(b *testing.B) {
	p := newBenchPair(b)
	v := abi.Doorbell{Ring: abi.RingArm, QID: p.pa.scq.id}.Value()
	b.ReportAllocs()
	for b.Loop() {
		p.a.engine.Doorbell(0, rdma.SlotCQ, v)
	}
}

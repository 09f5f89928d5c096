// SPDX-License-Identifier: Apache-2.0

// The race detector's time is not that of the tables.
//go:build !race

package rdma_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

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

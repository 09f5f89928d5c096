// SPDX-License-Identifier: Apache-2.0

package eq

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
)

const vec = 3

// guest is the driver's side of an event queue: its ring, its interrupt block.
type guest struct {
	ram    *testram.RAM
	bank   *intr.Bank
	q      *Queue
	raised atomic.Int64
	cons   uint64
	depth  uint8
}

func newGuest(t testing.TB, depth uint8) *guest {
	g := &guest{ram: testram.New(t, 1<<20), bank: intr.New(8), depth: depth}
	g.bank.SetOpen(true)
	g.bank.SetSignal(func(v int) {
		if v != vec {
			t.Errorf("vector %d was raised", v)
		}
		g.raised.Add(1)
	})
	g.write(4, 1)
	g.write(12, 1)
	var err error
	g.q, err = New(Config{ID: 2, Vector: vec, DepthLog2: depth, Base: g.ram.Alloc(4 << depth), Memory: g.ram.Space, Interrupt: g.bank, Totals: new(Totals)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// write stores to the interrupt block as the NIC does.
func (g *guest) write(reg uint64, v uint32) {
	if g.q != nil && (reg == 4 && v == 0 || reg == 8 && v&0x10000 != 0) {
		g.q.Unmasking()
	}
	g.bank.Write(vec*32+reg, v)
}

func (g *guest) next() (abi.EQE, bool) {
	at := g.q.Base + g.cons&(1<<g.depth-1)*4
	e, color := abi.DecodeEQE(bits.ReverseBytes32(g.ram.Load32(at)))
	if uint64(color) != ^(g.cons>>g.depth)&1 {
		return e, false
	}
	g.cons++
	return e, true
}

// handle reads up to budget events; the vector is unmasked when the ring was
// found empty.
func (g *guest) handle(budget int) (events []abi.EQE) {
	for range budget {
		e, ok := g.next()
		if !ok {
			g.write(8, 0x10000)
			return events
		}
		events = append(events, e)
	}
	g.write(8, uint32(budget))
	return events
}

func notify(id uint32) abi.EQE { return abi.EQE{QID: id} }

func TestPost_InterruptsAndChangesColour(t *testing.T) {
	g := newGuest(t, 2)
	g.write(4, 0)
	for i := range uint32(30) {
		g.q.Post(notify(i), nil)
		if got := g.raised.Load(); got != int64(i+1) {
			t.Fatalf("event %d: %d interrupts", i, got)
		}
		if e := g.handle(10); len(e) != 1 || e[0].QID != i {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if g.q.Totals.Waited.Load() != 0 || g.q.Totals.Lost.Load() != 0 {
		t.Fatalf("%d waited, %d lost", g.q.Totals.Waited.Load(), g.q.Totals.Lost.Load())
	}
}

// An event that is written while the vector is masked interrupts when it is
// opened.
func TestPost_WhileMasked(t *testing.T) {
	g := newGuest(t, 4)
	g.q.Post(notify(1), nil)
	if g.raised.Load() != 0 {
		t.Fatal("a masked vector was raised")
	}
	g.write(4, 0)
	if g.raised.Load() != 1 {
		t.Fatal("the event did not interrupt when the vector was opened")
	}
	g.q.Post(notify(2), nil) // the handler runs: masked
	if e := g.handle(1); len(e) != 1 || g.raised.Load() != 1 {
		t.Fatalf("%+v, %d interrupts", e, g.raised.Load())
	}
	if e := g.handle(10); len(e) != 1 || e[0].QID != 2 {
		t.Fatalf("second event: %+v", e)
	}
}

// However many events come, none overwrites one that is not read, none is
// lost, and the order holds.
func TestPost_HoldsBackWhatWouldOverwrite(t *testing.T) {
	for _, budget := range []int{1, 2, 3, 1000} {
		g := newGuest(t, 3) // 7 unread events fit
		g.write(4, 0)
		const total = 100
		for i := range uint32(total) {
			g.q.Post(notify(i), nil)
		}
		if g.q.Totals.Waited.Load() != total-7 {
			t.Fatalf("%d events waited", g.q.Totals.Waited.Load())
		}
		want, last := uint32(0), int64(0)
		for want < total {
			if n := g.raised.Load(); n == last && want > 0 && budget == 1000 {
				t.Fatalf("no interrupt after %d events", want)
			} else {
				last = n
			}
			e := g.handle(budget)
			for _, e := range e {
				if e.QID != want {
					t.Fatalf("budget %d: event %d instead of %d", budget, e.QID, want)
				}
				want++
			}
		}
		if e, ok := g.next(); ok {
			t.Fatalf("event %+v after the last", e)
		}
		if g.q.Totals.Lost.Load() != 0 {
			t.Fatalf("%d lost", g.q.Totals.Lost.Load())
		}
		// The queue is as good as new.
		g.handle(10)
		n := g.raised.Load()
		g.q.Post(notify(7), nil)
		if g.raised.Load() != n+1 {
			t.Fatal("the next event does not interrupt")
		}
	}
}

// A notification that waits stands for all later ones of its queue.
func TestPost_OneWaitingNotificationForEachQueue(t *testing.T) {
	g := newGuest(t, 1) // one unread event fits
	g.write(4, 0)
	var a, b atomic.Bool
	g.q.Post(notify(9), nil)
	for range 1000 {
		g.q.Post(notify(1), &a)
		g.q.Post(notify(2), &b)
	}
	if g.q.Totals.Waited.Load() != 2 || !a.Load() || !b.Load() {
		t.Fatalf("%d events wait", g.q.Totals.Waited.Load())
	}
	var got []uint32
	for range 10 {
		for _, e := range g.handle(10) {
			got = append(got, e.QID)
		}
	}
	if len(got) != 3 || got[0] != 9 || got[1] != 1 || got[2] != 2 || a.Load() || b.Load() {
		t.Fatalf("events of %v", got)
	}
}

func TestPost_BoundOfWaitingEvents(t *testing.T) {
	g := newGuest(t, 1)
	for range maxHeld + 10 {
		g.q.Post(notify(1), nil)
	}
	if g.q.Totals.Waited.Load() != maxHeld || g.q.Totals.Lost.Load() != 9 {
		t.Fatalf("%d waited, %d lost", g.q.Totals.Waited.Load(), g.q.Totals.Lost.Load())
	}
}

func TestStop_EndsAllWritesAndInterrupts(t *testing.T) {
	g := newGuest(t, 2)
	g.write(4, 0)
	for i := range uint32(6) {
		g.q.Post(notify(i), nil)
	}
	g.q.Stop()
	g.bank.Reset(vec)
	before, n := g.ram.Read(g.q.Base, 16), g.raised.Load()
	g.q.Post(notify(7), nil)
	g.handle(100)
	if string(before) != string(g.ram.Read(g.q.Base, 16)) || g.raised.Load() != n {
		t.Fatal("written or raised after Stop")
	}
}

// Losing the ring's memory loses events, nothing else.
func TestPost_RingNotMapped(t *testing.T) {
	g := newGuest(t, 2)
	g.write(4, 0)
	g.ram.Space.UnmapAll()
	g.q.Post(notify(1), nil)
	if g.q.Totals.Lost.Load() != 1 || g.raised.Load() != 0 {
		t.Fatalf("%d lost, %d interrupts", g.q.Totals.Lost.Load(), g.raised.Load())
	}
}

func TestNew_RefusesBadRings(t *testing.T) {
	ram := testram.New(t, 1<<20)
	for name, c := range map[string]Config{
		"no depth":    {DepthLog2: 0, Base: testram.Base},
		"too deep":    {DepthLog2: 17, Base: testram.Base},
		"misaligned":  {DepthLog2: 4, Base: testram.Base + 2},
		"not mapped":  {DepthLog2: 4, Base: 0x1000},
		"partly gone": {DepthLog2: 4, Base: testram.Base + 1<<20 - 32},
	} {
		c.Memory = ram.Space
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Many writers and a guest that handles interrupts at the same time: every
// event arrives once.
func TestPost_ManyWriters(t *testing.T) {
	g := newGuest(t, 3)
	g.write(4, 0)
	const writers, each = 4, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				g.q.Post(abi.EQE{QID: uint32(w)<<16 | uint32(i)}, nil)
			}
		}()
	}
	var next [writers]uint32
	for n := 0; n < writers*each; {
		for _, e := range g.handle(1000) {
			w, i := e.QID>>16, e.QID&0xffff
			if next[w] != i {
				t.Fatalf("writer %d: event %d instead of %d", w, i, next[w])
			}
			next[w]++
			n++
		}
	}
	wg.Wait()
	if g.q.Totals.Lost.Load() != 0 {
		t.Fatalf("%d lost", g.q.Totals.Lost.Load())
	}
}

func BenchmarkPost(b *testing.B) {
	g := newGuest(b, 10)
	g.write(4, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.q.Post(notify(1), nil)
		if i%64 == 0 {
			g.write(8, 0x10000)
		}
	}
}

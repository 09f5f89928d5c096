// SPDX-License-Identifier: Apache-2.0

package cq

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/eq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

const page = testram.Page

type nobody struct{}

func (nobody) Post(int, int) {}

// guest is the driver's side of a completion queue and its event queue.
type guest struct {
	ram    *testram.RAM
	q      *Queue
	eq     *eq.Queue
	eqCons uint64
	cons   uint64
	arms   uint16
	drains atomic.Int64
	room   atomic.Int64
	totals Totals
	budget *pbl.Budget
}

const eqDepth = 10

func newGuest(t testing.TB, c Config, ring func(g *guest) pbl.Map) *guest {
	g := &guest{ram: testram.New(t, 8<<20), budget: pbl.NewBudget(1 << 16)}
	g.room.Store(1 << 20)
	var err error
	if g.eq, err = eq.New(eq.Config{DepthLog2: eqDepth, Base: g.ram.Alloc(4 << eqDepth), Memory: g.ram.Space, Interrupt: nobody{}, Totals: new(eq.Totals)}); err != nil {
		t.Fatal(err)
	}
	if ring != nil {
		c.Ring = ring(g)
	} else {
		c.Ring.Contiguous(g.ram.Alloc(abi.CQELen << c.DepthLog2))
	}
	c.ID, c.Memory, c.Events, c.Room, c.Totals = 34, g.ram.Space, g.eq, &g.room, &g.totals
	c.Drain = func() { g.drains.Add(1) }
	if g.q, err = New(c); err != nil {
		t.Fatal(err)
	}
	return g
}

// poll returns the next completion the guest sees.
func (g *guest) poll() (c abi.CQE, ok bool) {
	off := g.cons & g.q.mask * abi.CQELen
	at, _ := g.q.Ring.Run(off+abi.CQETail, 4)
	if uint64(g.ram.Load32(at)>>24&1) != ^(g.cons>>g.q.DepthLog2)&1 {
		return c, false
	}
	var b [abi.CQELen]byte
	if err := g.q.Ring.ReadAt(g.ram.Space, b[:], off); err != nil {
		panic(err)
	}
	c.Get(b[:])
	g.cons++
	return c, true
}

// events returns how many notifications and errors arrived since the last
// call.
func (g *guest) events() (notify, failed int) {
	for ; ; g.eqCons++ {
		e, color := abi.DecodeEQE(bits.ReverseBytes32(g.ram.Load32(g.eq.Base + g.eqCons&(1<<eqDepth-1)*4)))
		switch {
		case uint64(color) != ^(g.eqCons>>eqDepth)&1:
			return notify, failed
		case e.Code == abi.EventCQNotify:
			notify++
		case e.Code == abi.EventCQError:
			failed++
		}
	}
}

func (g *guest) ring(ring uint8, index uint64) {
	g.q.Doorbell(abi.Doorbell{Index: uint16(index & g.q.mask), Ring: ring, QID: 34})
}

func (g *guest) consumed() { g.ring(abi.RingIndex, g.cons) }

func (g *guest) arm(ring uint8) {
	g.consumed()
	g.arms++
	g.ring(ring, uint64(g.arms))
}

func msn(i uint32) *abi.CQE { return &abi.CQE{Type: abi.CQESendMSN, QID: 20, MSN: i} }

// The ring, as it is in memory, over several laps.
func TestPost_ColourFlipsWithEachLap(t *testing.T) {
	for _, depth := range []uint8{1, 2, 4} {
		g := newGuest(t, Config{DepthLog2: depth}, nil)
		for i := range uint32(1 << (depth + 3)) {
			if _, ok := g.poll(); ok {
				t.Fatalf("depth %d: a completion before number %d", depth, i)
			}
			g.q.Post(msn(i), false)
			c, ok := g.poll()
			if !ok || c.MSN != i || c.QID != 20 {
				t.Fatalf("depth %d: completion %d is %+v, %v", depth, i, c, ok)
			}
			g.consumed()
		}
		if n, _ := g.events(); n != 0 {
			t.Fatalf("depth %d: %d events of a queue that was never armed", depth, n)
		}
	}
}

func TestPost_HoldsBackWhileFull(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil) // three fit
	for i := range uint32(50) {
		if !g.q.Post(msn(i), false) {
			t.Fatalf("completion %d was dropped", i)
		}
	}
	if s := g.q.Stats(); s.Written != 3 || s.Waited != 47 || s.Lost != 0 {
		t.Fatalf("%+v", s)
	}
	if g.room.Load() != 1<<20-47 {
		t.Fatalf("room of %d", g.room.Load())
	}
	next := uint32(0)
	for next < 50 {
		c, ok := g.poll()
		if ok {
			if c.MSN != next {
				t.Fatalf("completion %d instead of %d", c.MSN, next)
			}
			next++
			continue
		}
		n := g.drains.Load()
		g.consumed()
		if g.drains.Load() != n+1 {
			t.Fatalf("no drain after %d completions", next)
		}
		g.q.Drain()
	}
	n := g.drains.Load()
	g.consumed()
	if g.drains.Load() != n {
		t.Fatal("an empty queue was drained")
	}
	if g.room.Load() != 1<<20 {
		t.Fatalf("room of %d is not given back", g.room.Load())
	}
	if g.q.Post(msn(50), false); g.q.Stats().Written != 51 {
		t.Fatal("the queue does not go on")
	}
}

// Waiting completions do not exist yet: they fire when they reach the ring.
func TestArm_HeldBackCompletionsFireWhenWritten(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 1}, nil) // one fits
	g.q.Post(msn(0), false)
	g.q.Post(msn(1), true)
	if _, ok := g.poll(); !ok {
		t.Fatal("nothing")
	}
	g.arm(abi.RingArm)
	if n, _ := g.events(); n != 0 {
		t.Fatal("fired for a completion that waits")
	}
	g.q.Drain()
	if n, _ := g.events(); n != 1 {
		t.Fatal("did not fire when it was written")
	}
}

// Every combination of arm, kind of completion and order.
func TestArm_Rules(t *testing.T) {
	const before, after = true, false
	for _, c := range []struct {
		name   string
		dbid   uint16
		ring   uint8 // 0: not armed
		first  bool  // completion before the arm
		read   bool  // and read, before the arm
		urgent bool
		want   int
	}{
		{"not armed", 0, 0, after, false, true, 0},
		{"any, then plain", 0, abi.RingArm, after, false, false, 1},
		{"any, then urgent", 0, abi.RingArm, after, false, true, 1},
		{"solicited, then plain", 0, abi.RingSolicited, after, false, false, 0},
		{"solicited, then urgent", 0, abi.RingSolicited, after, false, true, 1},
		{"plain unread, then any", 0, abi.RingArm, before, false, false, 1},
		{"plain read, then any", 0, abi.RingArm, before, true, false, 0},
		{"plain unread, then solicited", 0, abi.RingSolicited, before, false, false, 0},
		{"urgent unread, then solicited", 0, abi.RingSolicited, before, false, true, 1},
		{"urgent read, then solicited", 0, abi.RingSolicited, before, true, true, 0},
		{"user queue fires once unarmed", 1, 0, after, false, false, 1},
	} {
		g := newGuest(t, Config{DepthLog2: 4, DBID: c.dbid}, nil)
		if c.first {
			g.q.Post(msn(0), c.urgent)
		}
		if c.read {
			g.poll()
		}
		if c.ring != 0 {
			g.arm(c.ring)
		}
		if !c.first {
			g.q.Post(msn(0), c.urgent)
		}
		if n, _ := g.events(); n != c.want {
			t.Errorf("%s: %d events, want %d", c.name, n, c.want)
		}
		// One arm, one event.
		g.q.Post(msn(1), c.urgent)
		more, _ := g.events()
		if c.want == 1 && more != 0 {
			t.Errorf("%s: fired again", c.name)
		}
	}
}

// An unread urgent completion counts even when plain ones follow, and not any
// more once it is read.
func TestArm_SolicitedLooksAtAllUnread(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 4}, nil)
	for lap := range 10 {
		g.q.Post(msn(0), false)
		g.q.Post(msn(1), true)
		g.q.Post(msn(2), false)
		g.poll()
		g.arm(abi.RingSolicited)
		if n, _ := g.events(); n != 1 {
			t.Fatalf("lap %d: %d events with an urgent completion unread", lap, n)
		}
		g.poll()
		g.arm(abi.RingSolicited)
		if n, _ := g.events(); n != 0 {
			t.Fatalf("lap %d: %d events with a plain completion unread", lap, n)
		}
		g.q.Post(msn(3), true)
		if n, _ := g.events(); n != 1 {
			t.Fatalf("lap %d: the arm was lost", lap)
		}
		g.poll()
		g.poll()
		g.consumed()
	}
}

func TestArm_BothFiresOnceAndClearsBoth(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 4}, nil)
	g.arm(abi.RingArm)
	g.arm(abi.RingSolicited)
	g.q.Post(msn(0), true)
	g.q.Post(msn(1), true)
	if n, _ := g.events(); n != 1 {
		t.Fatalf("%d events", n)
	}
}

func TestDoorbell_UnknownRing(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 4}, nil)
	for ring := uint8(3); ring < 8; ring++ {
		if g.q.Doorbell(abi.Doorbell{Ring: ring}) {
			t.Errorf("ring %d was taken", ring)
		}
	}
}

// Entries that lie across a page border, of pages anywhere, are whole.
func TestPost_EntryAcrossPages(t *testing.T) {
	table := func(g *guest) (m pbl.Map) {
		p := g.ram.Alloc(8 * page)
		// Page addresses 16 bytes off: every 128th entry has its halves in
		// two pages that are far from each other.
		at := g.ram.Table(p+5*page+16, p+16, p+3*page+16)
		if err := m.Load(g.ram.Space, g.budget, 3, at, 12, 2*page); err != nil {
			t.Fatal(err)
		}
		return m
	}
	contiguous := func(g *guest) (m pbl.Map) {
		// Across the border of two guest memory windows.
		m.Contiguous(testram.Base + g.ram.Size/2 - 100*abi.CQELen - 12)
		return m
	}
	for name, ring := range map[string]func(*guest) pbl.Map{"table": table, "windows": contiguous} {
		g := newGuest(t, Config{DepthLog2: 8}, ring)
		for i := range uint32(1000) {
			g.q.Post(&abi.CQE{Type: abi.CQERecv, QID: 20, WQEID: uint64(i), StatusLength: i, Imm: [4]byte{1, 2, 3, byte(i)}}, false)
			c, ok := g.poll()
			if !ok || c.WQEID != uint64(i) || c.StatusLength != i || c.Imm[3] != byte(i) {
				t.Fatalf("%s: completion %d is %+v", name, i, c)
			}
			g.consumed()
		}
	}
}

// After a QP is reset or gone nothing of it may appear.
func TestPurge_RemovesWaitingCompletionsOfOneQueue(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	for i := range uint32(30) {
		g.q.Post(&abi.CQE{Type: abi.CQESendMSN, QID: 20 + i%2, MSN: i}, false)
	}
	g.q.Purge(21)
	if g.room.Load() != 1<<20-13 {
		t.Fatalf("room of %d", g.room.Load())
	}
	var got []uint32
	for range 30 {
		for c, ok := g.poll(); ok; c, ok = g.poll() {
			got = append(got, c.MSN)
		}
		g.consumed()
		g.q.Drain()
	}
	// The first three were in the ring before.
	want := []uint32{0, 1, 2}
	for i := uint32(4); i < 30; i += 2 {
		want = append(want, i)
	}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v", got)
		}
	}
	g.q.Purge(99)
}

// Too many waiting completions are an error the guest hears of, once.
func TestPost_OverflowIsReported(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	g.room.Store(10)
	for i := range uint32(13) {
		if !g.q.Post(msn(i), false) {
			t.Fatalf("completion %d was dropped", i)
		}
	}
	ring := g.ram.Read(g.ringBase(), 128)
	for range 5 {
		if g.q.Post(msn(99), true) {
			t.Fatal("a completion was taken after the overflow")
		}
	}
	if n, failed := g.events(); n != 0 || failed != 1 {
		t.Fatalf("%d notifications, %d errors", n, failed)
	}
	g.consumed()
	g.arm(abi.RingArm)
	g.q.Drain()
	if string(ring) != string(g.ram.Read(g.ringBase(), 128)) {
		t.Fatal("written after the overflow")
	}
	if n, failed := g.events(); n != 0 || failed != 0 {
		t.Fatalf("then %d notifications, %d errors", n, failed)
	}
	if g.totals.Waited.Load() != 10 || g.totals.Lost.Load() != 15 || g.totals.Overflows.Load() != 1 {
		t.Fatalf("%d waited, %d lost, %d overflows", g.totals.Waited.Load(), g.totals.Lost.Load(), g.totals.Overflows.Load())
	}
	if g.room.Load() != 10 || g.q.Stats().Lost != 15 {
		t.Fatalf("room of %d, %+v", g.room.Load(), g.q.Stats())
	}
}

func (g *guest) ringBase() uint64 {
	at, _ := g.q.Ring.Run(0, 1)
	return at
}

func TestPost_RingGone(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, func(g *guest) (m pbl.Map) {
		m.Contiguous(testram.Base + g.ram.Size/2)
		return m
	})
	if err := g.ram.Space.Unmap(testram.Base+g.ram.Size/2, g.ram.Size/2); err != nil {
		t.Fatal(err)
	}
	if g.q.Post(msn(1), false) || g.q.Post(msn(2), false) {
		t.Fatal("written to nowhere")
	}
	if _, failed := g.events(); failed != 1 || g.q.Stats().Lost != 2 {
		t.Fatalf("%d errors, %+v", failed, g.q.Stats())
	}
}

func TestStop_EndsAllWrites(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	g.arm(abi.RingArm)
	for i := range uint32(10) {
		g.q.Post(msn(i), false)
	}
	g.events()
	g.q.Stop()
	before := g.ram.Read(g.ringBase(), 128)
	g.q.Post(msn(11), true)
	g.poll()
	g.arm(abi.RingArm)
	g.q.Drain()
	if n, failed := g.events(); n+failed != 0 || string(before) != string(g.ram.Read(g.ringBase(), 128)) || g.room.Load() != 1<<20 {
		t.Fatal("written after Stop, or room lost")
	}
}

func TestNew_RefusesBadRings(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	for name, c := range map[string]struct {
		depth uint8
		base  uint64
	}{
		"no depth":   {0, testram.Base},
		"too deep":   {17, testram.Base},
		"misaligned": {4, testram.Base + 2},
		"not mapped": {4, 0x1000},
	} {
		config := Config{DepthLog2: c.depth, Memory: g.ram.Space, Events: g.eq, Room: &g.room}
		config.Ring.Contiguous(c.base)
		if _, err := New(config); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Writers, a guest that polls, sleeps and arms, and drains, all at once: no
// completion is lost or doubled, and the guest never sleeps for ever.
func TestPost_NoLostWakeup(t *testing.T) {
	const writers, each = 3, 3000
	g := newGuest(t, Config{DepthLog2: 4}, nil)
	wake := make(chan struct{}, 1)
	g.q.Config.Drain = func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Add(1)
	go func() {
		defer background.Done()
		for {
			select {
			case <-wake:
				g.q.Drain()
			case <-stop:
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				g.q.Post(&abi.CQE{Type: abi.CQESendMSN, QID: uint32(w), MSN: uint32(i)}, i%2 == 0)
			}
		}()
	}
	var next [writers]uint32
	for n := 0; n < writers*each; {
		c, ok := g.poll()
		if ok {
			if c.MSN != next[c.QID] {
				t.Fatalf("queue %d: completion %d instead of %d", c.QID, c.MSN, next[c.QID])
			}
			next[c.QID]++
			n++
			continue
		}
		// Sleep: only an event may end it. The event queue is read the way
		// the driver does, so that it never fills up.
		g.arm(abi.RingArm)
		for got := 0; got == 0; got, _ = g.events() {
			g.eq.Unmasking()
		}
	}
	wg.Wait()
	close(stop)
	background.Wait()
}

func TestFIFO_RemovesInTheMiddle(t *testing.T) {
	var f fifo
	for i := range uint64(100) {
		binary.LittleEndian.PutUint64(f.push(i%3 == 0)[:], i)
		if i%4 == 3 {
			f.pop()
		}
	}
	n := f.remove(func(b *[abi.CQELen]byte) bool { return b[0]%2 == 1 })
	if n != 38 || f.len() != 37 {
		t.Fatalf("%d removed, %d left", n, f.len())
	}
	for i := uint64(26); f.len() > 0; i += 2 {
		h := f.pop()
		if v := binary.LittleEndian.Uint64(h.b[:]); v != i || h.urgent != (i%3 == 0) {
			t.Fatalf("entry %d instead of %d", v, i)
		}
	}
}

func BenchmarkPost(b *testing.B) {
	g := newGuest(b, Config{DepthLog2: 10}, nil)
	c := msn(1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.q.Post(c, false)
		if i&255 == 255 {
			g.ring(abi.RingIndex, uint64(i)+1)
		}
	}
}

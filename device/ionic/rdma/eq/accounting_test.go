// SPDX-License-Identifier: Apache-2.0

package eq

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// counts fails the test unless so many events have waited and were lost.
func (g *guest) counts(t *testing.T, when string, waited, lost uint64) {
	t.Helper()
	if w, l := g.q.Totals.Waited.Load(), g.q.Totals.Lost.Load(); w != waited || l != lost {
		t.Fatalf("%s: %d events waited and %d are lost, want %d and %d", when, w, l, waited, lost)
	}
}

// take reads exactly the events from first to last, which must be there.
func (g *guest) take(t *testing.T, first, last uint32) {
	t.Helper()
	for want := first; want <= last; want++ {
		if e, ok := g.next(); !ok || e.QID != want {
			t.Fatalf("read event %d (%v), want %d", e.QID, ok, want)
		}
	}
}

func (g *guest) post(first, last uint32) {
	for id := first; id <= last; id++ {
		g.q.Post(notify(id), nil)
	}
}

// What comes between the guest's last look at the ring and its unmask is not
// read: the unmask makes room only for what the interrupt before told of.
func TestUnmasking_FreesOnlyWhatTheInterruptTold(t *testing.T) {
	g := newGuest(t, 3) // 7 unread events fit
	g.write(4, 0)
	g.post(0, 0)
	g.take(t, 0, 0)
	if e, ok := g.next(); ok {
		t.Fatalf("event %+v in an empty ring", e)
	}
	// The guest has found the ring empty and is about to unmask.
	g.post(1, 6)
	g.counts(t, "the ring is just full", 0, 0)
	g.post(7, 8)
	g.counts(t, "two more", 2, 0)
	g.write(8, 0x10000)
	if n := g.raised.Load(); n != 2 {
		t.Fatalf("%d interrupts, want one for the first event and one for the others", n)
	}
	g.post(9, 9)
	g.counts(t, "one of the two went into the ring, so the next one waits too", 3, 0)
	g.take(t, 1, 7)
	if e, ok := g.next(); ok {
		t.Fatalf("event %+v was written before there was room for it", e)
	}
	g.write(8, 0x10000)
	g.take(t, 8, 9)
	g.counts(t, "all are read", 3, 0)
	g.write(8, 0x10000)
	g.post(10, 16)
	g.counts(t, "the whole ring is free again", 3, 0)
	g.take(t, 10, 16)
}

// An event that finds the vector open is told by its interrupt, and so is read
// when the guest unmasks next: it does not take up the ring for longer.
func TestPost_ToldByItsOwnInterruptIsFreedByTheNextUnmask(t *testing.T) {
	g := newGuest(t, 1) // one unread event fits
	g.write(4, 0)
	for i := range uint32(8) {
		g.post(i, i)
		if n := g.raised.Load(); n != int64(i+1) {
			t.Fatalf("event %d: %d interrupts", i, n)
		}
		g.take(t, i, i)
		g.write(8, 0x10000)
	}
	g.counts(t, "one at a time", 0, 0)
	// More than one before the unmask: the second waits, and interrupts itself.
	g.post(8, 9)
	g.counts(t, "two at a time", 1, 0)
	g.take(t, 8, 8)
	g.write(8, 0x10000)
	if n := g.raised.Load(); n != 10 {
		t.Fatalf("%d interrupts after 10 events", n)
	}
	g.take(t, 9, 9)
	g.write(8, 0x10000)
	g.post(10, 10)
	g.counts(t, "after all", 1, 0)
	g.take(t, 10, 10)
}

// What came after the interrupt of an unmask is not told by it, although the
// vector was open for an event just before.
func TestUnmasking_DoesNotTakeWhatComesAfterItsInterruptForTold(t *testing.T) {
	g := newGuest(t, 3) // 7 unread events fit
	g.write(4, 0)
	g.post(0, 0)
	g.take(t, 0, 0)
	g.post(1, 1)
	g.write(8, 0x10000) // interrupts at once, for event 1
	g.take(t, 1, 1)
	g.post(2, 2) // after the guest's last look
	g.write(8, 0x10000)
	g.post(3, 8)
	g.counts(t, "events 2 to 8 are unread", 0, 0)
	g.post(9, 9)
	g.counts(t, "an eighth unread event", 1, 0)
	g.take(t, 2, 8)
}

// The bound is one of the events that wait, not of those that have waited.
func TestPost_BoundCountsOnlyWhatWaitsNow(t *testing.T) {
	g := newGuest(t, 1) // one unread event fits
	g.write(4, 0)
	g.post(0, maxHeld)
	g.counts(t, "as many wait as may", maxHeld, 0)
	const more = 100
	for i := range uint32(more) {
		g.take(t, i, i)
		g.write(8, 0x10000)
		g.post(maxHeld+1+i, maxHeld+1+i)
	}
	g.counts(t, "one comes for each that is read", maxHeld+more, 0)
	g.post(0, 0)
	g.counts(t, "one too many", maxHeld+more, 1)
}

// A guest that is always a little behind costs no more memory the longer it is.
func TestPost_WaitingEventsUseTheirMemoryAgain(t *testing.T) {
	g := newGuest(t, 1) // one unread event fits
	g.write(4, 0)
	const behind = 100
	g.post(0, behind)
	for i := range uint32(20000) {
		g.take(t, i, i)
		g.write(8, 0x10000)
		g.post(behind+1+i, behind+1+i)
		if n := len(g.q.held) - g.q.first; n != behind {
			t.Fatalf("after %d events %d wait, want %d", i, n, behind)
		}
	}
	if n := cap(g.q.held); n > 8*behind {
		t.Errorf("room for %d events is kept while %d wait", n, behind)
	}
}

// Events that waited and then found no memory are lost, each counted, and those
// of completion queues may be posted again.
func TestUnmasking_CountsWaitingEventsThatFindNoMemory(t *testing.T) {
	g := newGuest(t, 1)
	g.write(4, 0)
	g.post(0, 0)
	var posted atomic.Bool
	g.q.Post(notify(1), &posted)
	g.post(2, 3)
	g.counts(t, "ring full", 3, 0)
	g.take(t, 0, 0)
	g.ram.Space.UnmapAll()
	g.write(8, 0x10000)
	g.counts(t, "memory gone", 3, 3)
	if posted.Load() {
		t.Error("the queue of a lost notification takes it for posted")
	}
	if n := g.raised.Load(); n != 1 {
		t.Errorf("%d interrupts, want that of the event that was written", n)
	}
}

// A guest that runs its handler for interrupts only, and unmasks later than it
// reads, misses nothing whatever comes in between: no event is overwritten, none
// stays behind when all is quiet.
func TestPost_GuestThatRunsOnlyWhenInterrupted(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newGuest(t, uint8(1+r.IntN(4)))
		g.write(4, 0)
		posted, read, handled := uint32(0), uint32(0), int64(0)
		some := func() {
			n := uint32(r.IntN(6))
			for range n {
				g.q.Post(abi.EQE{QID: posted}, nil)
				posted++
			}
		}
		handle := func() {
			for {
				e, ok := g.next()
				if !ok {
					break
				}
				if e.QID != read {
					t.Fatalf("seed %d: event %d instead of %d", seed, e.QID, read)
				}
				read++
				if r.IntN(8) == 0 {
					some()
				}
			}
			some()
			handled = g.raised.Load()
			g.write(8, 0x10000)
		}
		for range 100 {
			some()
			if g.raised.Load() > handled {
				handle()
			}
		}
		// Nothing new comes; the interrupts alone must bring out the rest.
		some = func() {}
		for g.raised.Load() > handled {
			handle()
		}
		if read != posted {
			t.Fatalf("seed %d: %d of %d events were read, and no interrupt is due", seed, read, posted)
		}
		g.counts(t, "at the end", g.q.Totals.Waited.Load(), 0)
	}
}

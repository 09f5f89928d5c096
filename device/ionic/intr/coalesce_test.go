// SPDX-License-Identifier: Apache-2.0

package intr

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	longest  = 63
	interim  = longest * CoalesceUnit
	coalLeft = 16
	vec      = 2
)

// coalesced runs f with a vector that has been polled just now and coalesces for
// coalInit units.
func coalesced(t *testing.T, coalInitVal uint32, f func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.write(vec, maskAssert, 1)
		b.write(vec, coalInit, coalInitVal)
		b.write(vec, mask, 0)
		b.write(vec, credits, unmask|resetCoal)
		f(t, b)
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range b.vectors {
			if b.vectors[i].timer.Stop() {
				t.Errorf("the timer of vector %d runs though it has no work", i)
			}
		}
	})
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestCoalesce_OneInterruptForAllOfAnInterval(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		for round := range int64(10) {
			for range 100 {
				b.Post(vec, 1)
			}
			if got := b.read(vec, coalLeft); got != longest {
				t.Fatalf("%d units are left, want all %d", got, longest)
			}
			after(interim - 1)
			b.want(t, vec, round)
			if got := b.read(vec, coalLeft); got != 1 {
				t.Fatalf("%d units are left, want the last one", got)
			}
			after(1)
			b.want(t, vec, round+1)
			b.write(vec, credits, 100|unmask|resetCoal)
			b.want(t, vec, round+1)
		}
	})
}

func TestCoalesce_ASilentVectorAssertsAtOnce(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		after(interim)
		b.Post(vec, 1)
		b.want(t, vec, 1)
	})
}

// Up to the driver's default nothing waits; more than the driver can ask for is
// the most that it can.
func TestCoalesce_Intervals(t *testing.T) {
	for val, want := range map[uint32]time.Duration{
		0: 0, 1: 0, 2: 2 * CoalesceUnit, 63: interim, 64: interim, 0xffffffff: interim,
	} {
		coalesced(t, val, func(t *testing.T, b *bench) {
			b.Post(vec, 1)
			if want > 0 {
				after(want - 1)
				b.want(t, vec, 0)
				after(1)
			}
			b.want(t, vec, 1)
			if got := b.read(vec, coalInit); got != val {
				t.Errorf("coal_init reads %#x, want %#x", got, val)
			}
		})
	}
}

// A vector whose driver never writes the register, as those of the admin queue and
// of event queues.
func TestCoalesce_OthersDoNotWait(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.write(1, mask, 0)
		b.write(1, credits, resetCoal)
		b.Post(1, 1)
		b.want(t, 1, 1)
	})
}

func TestCoalesce_MaskedWhileHeldAssertsAtTheUnmask(t *testing.T) {
	for name, open := range map[string]func(*bench){
		"by mask":    func(b *bench) { b.write(vec, mask, 0) },
		"by credits": func(b *bench) { b.write(vec, credits, unmask) },
	} {
		t.Run(name, func(t *testing.T) {
			coalesced(t, longest, func(t *testing.T, b *bench) {
				b.Post(vec, 1)
				b.write(vec, mask, 1)
				after(10 * interim)
				b.want(t, vec, 0)
				open(b)
				b.want(t, vec, 1)
			})
			coalesced(t, longest, func(t *testing.T, b *bench) {
				b.Post(vec, 1)
				b.write(vec, mask, 1)
				after(interim / 2)
				open(b)
				b.want(t, vec, 0)
				after(interim / 2)
				b.want(t, vec, 1)
			})
		})
	}
}

// The poll of 256 transmit completions leaves the rest to another interrupt, which
// comes although nothing new does.
func TestCoalesce_LeftOverCreditsAssertLater(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.Post(vec, 700)
		left, polls := 700, int64(0)
		for left > 0 {
			b.want(t, vec, polls)
			after(interim)
			polls++
			b.want(t, vec, polls)
			n := min(left, 256)
			left -= n
			b.write(vec, credits, uint32(n)|unmask|resetCoal)
		}
		after(10 * interim)
		b.want(t, vec, polls)
	})
}

// A poll that was started by something else returns the credits of what waits: the
// interrupt comes all the same.
func TestCoalesce_ReturnedWhileHeld(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.Post(vec, 5)
		b.write(vec, credits, 5|unmask|resetCoal)
		b.write(vec, credits, unmask|resetCoal)
		after(interim)
		b.want(t, vec, 1)
	})
}

func TestCoalesce_ResetForgetsWhatIsHeld(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.Post(vec, 1)
		after(interim / 2)
		b.ResetAll()
		b.write(vec, mask, 0)
		after(10 * interim)
		b.want(t, vec, 0)
		b.Post(vec, 1)
		b.want(t, vec, 1)
		if got := b.read(vec, coalLeft); got != 0 {
			t.Errorf("%d units are left after a reset", got)
		}
	})
}

func TestCoalesce_ClosedGateKeepsWhatIsHeld(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.Post(vec, 1)
		b.SetOpen(false)
		after(10 * interim)
		b.want(t, vec, 0)
		b.SetOpen(true)
		b.want(t, vec, 1)
	})
}

func TestCoalesce_ShortenedIntervalLetsGo(t *testing.T) {
	coalesced(t, longest, func(t *testing.T, b *bench) {
		b.Post(vec, 1)
		b.write(vec, coalInit, 1)
		b.want(t, vec, 1)
		b.write(vec, credits, 1|unmask|resetCoal)
		b.Post(vec, 1)
		b.want(t, vec, 2)
	})
}

func TestCoalesce_DoesNotAllocate(t *testing.T) {
	b := New(4)
	b.SetOpen(true)
	b.SetSignal(func(int) {})
	b.Write(vec*32+coalInit, longest)
	b.Write(vec*32+mask, 0)
	if n := testing.AllocsPerRun(1000, func() {
		b.Write(vec*32+credits, 1|unmask|resetCoal)
		b.Post(vec, 1)
		b.Post(vec, 1)
	}); n >= 1 {
		t.Fatalf("%v allocations per event", n)
	}
}

// Producers, the consumer and the timer at once: every event is found.
func TestConcurrent_NoEventIsLostWhileCoalescing(t *testing.T) {
	const producers, events, ringSize = 4, 5000, 2048
	b := New(1)
	b.SetOpen(true)
	wake := make(chan struct{}, producers*events)
	b.SetSignal(func(int) { wake <- struct{}{} })
	b.Write(maskAssert, 1)
	b.Write(coalInit, longest)
	b.Write(mask, 0)
	var ring, seen atomic.Int64
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for range events {
				for ring.Load()-seen.Load() >= ringSize {
					runtime.Gosched()
				}
				ring.Add(1)
				b.Post(0, 1)
			}
		})
	}
	for poll := 0; seen.Load() < producers*events; poll++ {
		<-wake
		if poll%8 == 0 { // as a queue that is stopped and started again
			b.Write(mask, 1)
			b.Write(mask, 0)
		}
		n := min(ring.Load()-seen.Load(), 256)
		seen.Add(n)
		b.Write(credits, uint32(n)|unmask|resetCoal)
	}
	wg.Wait()
}

// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// runner counts its runs and fails the test if two overlap.
type runner struct {
	t     testing.TB
	Actor Actor
	busy  atomic.Bool
	runs  atomic.Int64
	more  atomic.Int64 // runs that ask for another one
	do    func(now time.Time)
}

func (r *runner) Run(now time.Time) bool {
	if r.busy.Swap(true) {
		r.t.Error("an actor runs twice at the same time")
	}
	r.runs.Add(1)
	if r.do != nil {
		r.do(now)
	}
	r.busy.Store(false)
	return r.more.Add(-1) >= 0
}

func newRunner(t testing.TB, s *Scheduler, home uint32, urgent bool) *runner {
	r := &runner{t: t}
	r.Actor.Init(s, r, home, urgent)
	return r
}

func start(t testing.TB, n int) *Scheduler {
	s := New(n)
	t.Cleanup(s.Close)
	return s
}

func TestSchedule_RunsOnceForManyCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1)
		r := newRunner(t, s, 0, false)
		block := make(chan struct{})
		r.do = func(time.Time) { <-block }
		r.Actor.Schedule()
		synctest.Wait() // it runs
		for range 100 {
			r.Actor.Schedule()
		}
		close(block)
		synctest.Wait()
		if got := r.runs.Load(); got != 2 {
			t.Fatalf("%d runs for what came before and during the first", got)
		}
	})
}

func TestSchedule_MoreRunsAgainBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1)
		var order []string
		gate := newRunner(t, s, 0, false)
		open := make(chan struct{})
		gate.do = func(time.Time) { <-open }
		gate.Actor.Schedule()
		a, b := newRunner(t, s, 0, false), newRunner(t, s, 0, false)
		a.do = func(time.Time) { order = append(order, "a") }
		b.do = func(time.Time) { order = append(order, "b") }
		a.more.Store(2)
		synctest.Wait()
		a.Actor.Schedule()
		b.Actor.Schedule()
		close(open)
		synctest.Wait()
		if !slices.Equal(order, []string{"a", "b", "a", "a"}) {
			t.Fatalf("order %v", order)
		}
	})
}

// The GSI queue pair goes before any amount of data.
func TestSchedule_UrgentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 1)
		var order []int
		gate := newRunner(t, s, 0, false)
		open := make(chan struct{})
		gate.do = func(time.Time) { <-open }
		gate.Actor.Schedule()
		synctest.Wait()
		for i := range 5 {
			r := newRunner(t, s, 0, i == 4)
			r.do = func(time.Time) { order = append(order, i) }
			r.Actor.Schedule()
		}
		close(open)
		synctest.Wait()
		if !slices.Equal(order, []int{4, 0, 1, 2, 3}) {
			t.Fatalf("order %v", order)
		}
	})
}

// A worker that sleeps takes over the actors of one that is busy.
func TestSchedule_IdleWorkersHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 3)
		open := make(chan struct{})
		defer close(open)
		for range 2 {
			r := newRunner(t, s, 0, false)
			r.do = func(time.Time) { <-open }
			r.Actor.Schedule()
			synctest.Wait()
		}
		r := newRunner(t, s, 0, false)
		for i := range int64(10) {
			r.Actor.Schedule()
			synctest.Wait()
			if r.runs.Load() != i+1 {
				t.Fatal("the third actor does not run while two workers are busy")
			}
		}
	})
}

func TestWake_RunsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 2)
		r := newRunner(t, s, 0, false)
		var at []time.Duration
		begin := time.Now()
		r.do = func(now time.Time) { at = append(at, now.Sub(begin)) }
		ms := time.Millisecond
		r.Actor.Wake(begin.Add(10 * ms))
		time.Sleep(5 * ms)
		r.Actor.Wake(begin.Add(30 * ms)) // later: only noted
		time.Sleep(20 * ms)
		r.Actor.Wake(begin.Add(40 * ms))
		time.Sleep(10 * ms)
		r.Actor.Wake(begin.Add(37 * ms)) // earlier
		time.Sleep(30 * ms)
		r.Actor.Wake(begin.Add(80 * ms))
		r.Actor.Wake(time.Time{}) // taken back
		time.Sleep(100 * ms)
		r.Actor.Wake(begin) // past
		time.Sleep(ms)
		synctest.Wait()
		if !slices.Equal(at, []time.Duration{37 * ms, 165 * ms}) {
			t.Fatalf("ran at %v", at)
		}
	})
}

func TestWake_NotAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, 2)
		r := newRunner(t, s, 0, false)
		r.Actor.Wake(time.Now().Add(time.Millisecond))
		r.Actor.Stop()
		r.Actor.Wake(time.Now().Add(time.Millisecond))
		time.Sleep(time.Second)
		if r.runs.Load() != 0 {
			t.Fatal("a stopped actor woke up")
		}
	})
}

func TestClose_WaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		r := newRunner(t, s, 0, false)
		open := make(chan struct{})
		var finished atomic.Bool
		r.do = func(time.Time) { <-open; finished.Store(true) }
		r.Actor.Schedule()
		synctest.Wait()
		go func() { time.Sleep(time.Second); close(open) }()
		s.Close()
		if !finished.Load() {
			t.Fatal("closed under a running actor")
		}
		r.Actor.Schedule()
		synctest.Wait()
		if r.runs.Load() != 1 {
			t.Fatal("an actor ran after Close")
		}
		s.Close()
	})
}

// Every cause is followed by a run that begins after it, whatever runs at the
// same time.
func TestSchedule_NoCauseIsLost(t *testing.T) {
	s := start(t, 3)
	const actors, each = 8, 4000
	var wg sync.WaitGroup
	var seen [actors]atomic.Int64
	var posted [actors]atomic.Int64
	rs := make([]*runner, actors)
	for i := range rs {
		rs[i] = newRunner(t, s, uint32(i), i == 0)
		rs[i].do = func(time.Time) { seen[i].Store(posted[i].Load()) }
	}
	for g := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range each {
				i := (n*7 + g) % actors
				posted[i].Add(1)
				rs[i].Actor.Schedule()
				if n%64 == 0 {
					rs[i].Actor.Wake(time.Now().Add(time.Microsecond))
				}
			}
		}()
	}
	wg.Wait()
	deadline := time.Now().Add(time.Minute)
	for i := range seen {
		for seen[i].Load() != posted[i].Load() {
			if time.Now().After(deadline) {
				t.Fatalf("actor %d saw %d of %d causes", i, seen[i].Load(), posted[i].Load())
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func BenchmarkScheduleToRun(b *testing.B) {
	s := start(b, 2)
	r := newRunner(b, s, 0, false)
	r.more.Store(-1 << 60)
	ran := make(chan struct{}, 1)
	r.do = func(time.Time) { ran <- struct{}{} }
	b.ReportAllocs()
	for b.Loop() {
		r.Actor.Schedule()
		<-ran
	}
}

func BenchmarkScheduleRunning(b *testing.B) {
	s := start(b, 2)
	r := newRunner(b, s, 0, false)
	b.ReportAllocs()
	for b.Loop() {
		r.Actor.Schedule()
	}
}

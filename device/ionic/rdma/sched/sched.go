// SPDX-License-Identifier: Apache-2.0

// Package sched runs many small actors, the queue pairs of a device, on a few
// goroutines. An actor is run by one goroutine at a time.
//
//	         Schedule           worker takes it
//	+------+          +-------+                 +---------+
//	| idle |--------->| ready |---------------->| running |
//	+------+          +-------+                 +---------+
//	   ^                  ^ ran and has more       |   | Schedule
//	   | ran, nothing more|<-----------------------+   v
//	   +------------------|-----------------------+---------+
//	                      +-----------------------| again   |
//	                                              +---------+
//
// Every worker has a run queue of its own; an actor goes to the queue of its
// home worker, so that workers do not share a lock. A worker with nothing to
// do takes from the others before it sleeps. Urgent actors run before all
// others of a queue. Nothing here allocates, and nothing wakes up without
// cause.
package sched

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// States of an actor.
const (
	idle uint32 = iota
	ready
	running
	again
)

// Runner is what an actor does. Run is called by one goroutine at a time and
// returns true when it has more to do at once.
type Runner interface {
	Run(now time.Time) (more bool)
}

// Actor is a unit of work that can be scheduled. It must not be copied.
type Actor struct {
	s      *Scheduler
	run    Runner
	state  atomic.Uint32
	home   uint32
	urgent bool
	next   *Actor // in a run queue

	timer timer
}

// Init makes the actor ready for use on s. home spreads actors over workers.
func (a *Actor) Init(s *Scheduler, r Runner, home uint32, urgent bool) {
	a.s, a.run, a.home, a.urgent = s, r, home%uint32(len(s.workers)), urgent
}

// list is an intrusive first-in first-out list of actors.
type list struct{ head, tail *Actor }

func (l *list) push(a *Actor) {
	a.next = nil
	if l.tail == nil {
		l.head = a
	} else {
		l.tail.next = a
	}
	l.tail = a
}

func (l *list) pop() *Actor {
	a := l.head
	if a != nil {
		if l.head = a.next; l.head == nil {
			l.tail = nil
		}
		a.next = nil
	}
	return a
}

// worker is a goroutine with its run queue.
type worker struct {
	wake   chan struct{}
	parked atomic.Bool

	mu     sync.Mutex // guards all below
	urgent list
	normal list
	queued int

	_ [64]byte // neighbours are written by other processors
}

func (w *worker) push(a *Actor) {
	w.mu.Lock()
	if a.urgent {
		w.urgent.push(a)
	} else {
		w.normal.push(a)
	}
	w.queued++
	w.mu.Unlock()
}

// pop takes the next actor and tells whether there are more.
func (w *worker) pop() (a *Actor, more bool) {
	w.mu.Lock()
	if a = w.urgent.pop(); a == nil {
		a = w.normal.pop()
	}
	if a != nil {
		w.queued--
	}
	more = w.queued > 0
	w.mu.Unlock()
	return a, more
}

// Scheduler runs actors.
type Scheduler struct {
	workers []worker
	closed  atomic.Bool
	closing chan struct{}
	done    sync.WaitGroup
}

// New starts a scheduler with n workers; n 0 means one for each processor, at
// least two.
func New(n int) *Scheduler {
	if n <= 0 {
		n = max(2, runtime.GOMAXPROCS(0))
	}
	s := &Scheduler{workers: make([]worker, n), closing: make(chan struct{})}
	for i := range s.workers {
		s.workers[i].wake = make(chan struct{}, 1)
	}
	s.done.Add(n)
	for i := range s.workers {
		go s.loop(i)
	}
	return s
}

// Close ends the workers and waits for what runs. Actors that are ready do not
// run any more.
func (s *Scheduler) Close() {
	if !s.closed.Swap(true) {
		close(s.closing)
	}
	s.done.Wait()
}

// Schedule makes sure that the actor runs, or runs again if it is running. It
// never blocks.
func (a *Actor) Schedule() {
	for {
		switch st := a.state.Load(); st {
		case idle:
			if a.state.CompareAndSwap(idle, ready) {
				a.s.put(a)
				return
			}
		case running:
			if a.state.CompareAndSwap(running, again) {
				return
			}
		default: // ready or again: it will run and see what is new
			return
		}
	}
}

// put queues a ready actor and wakes somebody for it.
func (s *Scheduler) put(a *Actor) {
	w := &s.workers[a.home]
	w.push(a)
	if !w.rouse() {
		s.help() // the home worker is busy
	}
}

// help wakes a worker that sleeps, if there is one: some queue has an actor.
func (s *Scheduler) help() {
	for i := range s.workers {
		if s.workers[i].rouse() {
			return
		}
	}
}

// rouse wakes the worker if it sleeps.
func (w *worker) rouse() bool {
	if !w.parked.Load() || !w.parked.CompareAndSwap(true, false) {
		return false
	}
	w.wake <- struct{}{}
	return true
}

func (s *Scheduler) loop(i int) {
	defer s.done.Done()
	w := &s.workers[i]
	for {
		if a := s.take(i); a != nil {
			s.runOne(a)
			continue
		}
		// Announce the sleep, then look once more: whoever queues an actor
		// after this look sees the announcement.
		w.parked.Store(true)
		if a := s.take(i); a != nil {
			if !w.parked.CompareAndSwap(true, false) {
				<-w.wake // somebody has sent, or is about to
			}
			s.runOne(a)
			continue
		}
		select {
		case <-w.wake:
		case <-s.closing:
			return
		}
	}
}

// take finds an actor for worker i: its own first, then those of others.
func (s *Scheduler) take(i int) *Actor {
	if s.closed.Load() {
		return nil
	}
	n := len(s.workers)
	for k := range n {
		a, more := s.workers[(i+k)%n].pop()
		if a == nil {
			continue
		}
		if more {
			s.help()
		}
		return a
	}
	return nil
}

func (s *Scheduler) runOne(a *Actor) {
	a.state.Store(running)
	if !a.run.Run(time.Now()) && a.state.CompareAndSwap(running, idle) {
		return
	}
	a.state.Store(ready)
	s.workers[a.home].push(a)
}

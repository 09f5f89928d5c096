// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"sync"
	"time"
)

// timer is the alarm of an actor. It is moved with every message and expires
// almost never, so a later time is only noted: the timer that runs for the
// earlier one finds out when it fires.
type timer struct {
	mu    sync.Mutex  // guards all below
	t     *time.Timer // made at the first use
	runs  bool        // t will fire, at fires or about then
	fires time.Time
	due   time.Time // zero: no alarm
	dead  bool
}

// Wake makes the actor run at or soon after due, instead of when an earlier
// Wake asked; the zero time takes the request back.
func (a *Actor) Wake(due time.Time) {
	t := &a.timer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = due
	if due.IsZero() || t.dead || t.runs && !due.Before(t.fires) {
		return
	}
	t.set(a)
}

// set starts the timer for due.
func (t *timer) set(a *Actor) {
	d := time.Until(t.due)
	t.runs, t.fires = true, t.due
	if t.t == nil {
		t.t = time.AfterFunc(d, a.expire)
	} else {
		t.t.Reset(d)
	}
}

func (a *Actor) expire() {
	t := &a.timer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = false
	switch {
	case t.dead || t.due.IsZero():
	case time.Now().Before(t.due):
		t.set(a)
	default:
		t.due = time.Time{}
		a.Schedule()
	}
}

// Stop takes back any Wake for good.
func (a *Actor) Stop() {
	t := &a.timer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead, t.due = true, time.Time{}
	if t.t != nil {
		t.t.Stop()
	}
}

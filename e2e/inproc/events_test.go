// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var eventScenarios = []scenario{
	{name: "CQ/an event for each arm", run: armed},
	{name: "CQ/arming with completions already there fires at once", run: armedLate},
	{name: "CQ/solicited only", run: solicited},
	{name: "CQ/a flush wakes who sleeps", run: flushWakes},
}

// arm arms the queue the way a program does: ask, then poll once more.
func (e *end) arm(solicitedOnly bool) {
	e.t.Helper()
	e.cq.Arm(solicitedOnly)
	if e.ctx != e.guest.RDMA.Kernel() {
		e.quiet()
	}
}

func (e *end) awaitCQ() {
	e.t.Helper()
	if err := e.cq.Wait(patience); err != nil {
		e.t.Fatal(err)
	}
}

// firstEvent arms the queue before its first completion. A user's queue may be
// made armed; either way one event comes, and nothing is armed after it.
func (e *end) firstEvent(from, to *verbs.QP) {
	e.t.Helper()
	e.arm(false)
	ping(e.t, from, to, 0)
	e.awaitEvents(1)
	e.want(1)
}

// awaitEvents waits until the queue has raised n events in its life.
func (e *end) awaitEvents(n uint64) {
	e.t.Helper()
	for e.cq.Events() < n {
		e.awaitCQ()
	}
}

func ping(t testing.TB, qa, qb *verbs.QP, flags verbs.SendFlags) {
	t.Helper()
	must(t, qb.PostRecv(verbs.RecvWR{}))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: flags}))
}

func armed(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	b.firstEvent(qa, qb)
	arms := uint64(1)
	armedPing := func() {
		t.Helper()
		b.arm(false)
		arms++
		ping(t, qa, qb, 0)
		b.awaitEvents(arms)
		b.want(1)
	}
	for range 50 {
		armedPing()
	}
	for range 5 { // without arming
		ping(t, qa, qb, 0)
		b.want(1)
	}
	armedPing()
	time.Sleep(2 * time.Millisecond)
	if n := b.cq.Events(); n != arms {
		t.Errorf("%d events for %d arms", n, arms)
	}
}

func armedLate(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	b.firstEvent(qa, qb)
	for range 20 {
		ping(t, qa, qb, verbs.Signaled)
		a.want(1) // acknowledged: the receive completion is in the ring, unread
		before := b.cq.Events()
		b.cq.Arm(false)
		if b.ctx != b.guest.RDMA.Kernel() {
			// A post rings what the program asked for.
			must(t, qb.PostRecv(verbs.RecvWR{}))
		}
		b.awaitEvents(before + 1)
		b.want(1)
	}
}

func solicited(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	b.firstEvent(qa, qb)
	b.arm(true)
	before := b.cq.Events()
	ping(t, qa, qb, verbs.Signaled)
	a.want(1)
	b.want(1)
	time.Sleep(2 * time.Millisecond)
	if b.cq.Events() != before {
		t.Error("an unsolicited message raised an event")
	}
	ping(t, qa, qb, verbs.Solicited)
	b.awaitEvents(before + 1)
	b.want(1)
}

func flushWakes(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	b.firstEvent(qa, qb)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 4}))
	b.arm(true) // an error counts as solicited
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, SGEs: nil, RKey: 99, Flags: verbs.Inline | verbs.Signaled, Data: []byte{1}}))
	b.awaitEvents(2)
	flushed(t, b.poll(1), 4)
}

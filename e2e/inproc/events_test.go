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

// settle takes the event that a user's queue may raise without having been armed.
func (e *end) settle() {
	e.t.Helper()
	time.Sleep(2 * time.Millisecond)
	for e.cq.Wait(0) == nil {
	}
}

func ping(t *testing.T, qa, qb *verbs.QP, flags verbs.SendFlags) {
	t.Helper()
	must(t, qb.PostRecv(verbs.RecvWR{}))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: flags}))
}

func armed(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ping(t, qa, qb, 0)
	b.want(1)
	b.settle()
	for range 50 {
		b.arm(false)
		ping(t, qa, qb, 0)
		b.awaitCQ()
		b.want(1)
	}
	// Not armed: no event.
	before := b.cq.Events()
	ping(t, qa, qb, 0)
	b.want(1)
	time.Sleep(2 * time.Millisecond)
	if n := b.cq.Events(); n != before {
		t.Errorf("%d events of a queue that was not armed", n-before)
	}
}

func armedLate(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ping(t, qa, qb, verbs.Signaled)
	a.want(1)
	b.want(1)
	b.settle()
	for range 20 {
		ping(t, qa, qb, verbs.Signaled)
		a.want(1) // acknowledged: the receive completion is in the ring, unread
		before := b.cq.Events()
		b.cq.Arm(false)
		if b.ctx != b.guest.RDMA.Kernel() {
			// A post rings what the program asked for.
			must(t, qb.PostRecv(verbs.RecvWR{}))
		}
		for b.cq.Events() == before {
			b.awaitCQ()
		}
		b.want(1)
	}
}

func solicited(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ping(t, qa, qb, 0)
	b.want(1)
	b.settle()
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
	b.awaitCQ()
	b.want(1)
}

func flushWakes(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ping(t, qa, qb, 0)
	b.want(1)
	b.settle()
	must(t, qb.PostRecv(verbs.RecvWR{ID: 4}))
	b.arm(true) // an error counts as solicited
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, SGEs: nil, RKey: 99, Flags: verbs.Inline | verbs.Signaled, Data: []byte{1}}))
	b.awaitCQ()
	flushed(t, b.poll(1), 4)
}

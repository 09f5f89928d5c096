// SPDX-License-Identifier: Apache-2.0

package qp

import "time"

// Work that one Step does at most, for each of the four streams of packets
// (responses and requests, in and out), so that none starves another and a QP
// with much to do leaves the processor to others.
const (
	stepPackets = 64
	stepBytes   = 512 << 10
)

// budget is what is left of a stream's share.
type budget struct{ packets, bytes int }

func newBudget() budget { return budget{stepPackets, stepBytes} }

func (b *budget) spend(n int) { b.packets--; b.bytes -= n }

func (b *budget) spent() bool { return b.packets <= 0 || b.bytes <= 0 }

// Step does the work that is due: it executes what has arrived, sends what
// the guest has posted, and acts on timers that have expired at now. It is
// called after Deliver asked for it, after a send doorbell, after Modify, when
// the link has room again and at the time Wake asked for; a call without cause
// does no harm. It returns true when its share was used up and it must be
// called again.
func (q *QP) Step(now time.Time) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.now = now
	if !q.wakeAt.After(now) {
		q.wakeAt = time.Time{}
	}
	left := q.collect()
	held := false // a response waits for the link, and the requests behind it
	if q.receives() {
		if q.typ == UD {
			more = q.receiveDatagrams()
		} else {
			more = q.absorb()
			if q.serve() {
				more = true
			}
			held = q.resp.out != nil
		}
	}
	// The answers that have arrived count before the clock does.
	q.expire()
	if q.sends() && q.drive() {
		more = true
	}
	q.noteDrained()
	if q.state == SQE || q.state == Err {
		q.env.FlushAgain(q.state == Err)
	}
	if !q.receives() {
		q.farewell()
		if n := q.purge(false); n > 0 {
			q.env.Count(DropState, n)
		}
		more, left = false, false
	}
	q.noteShare()
	q.arm()
	q.report()
	return more || left && !held
}

// arm asks for a wake-up at the earliest time something is due. A wake-up
// that turns out to be early is cheaper than moving it with every message, so
// only an earlier time replaces one that is already asked for.
func (q *QP) arm() {
	due := q.due()
	if due.IsZero() || !q.wakeAt.IsZero() && !due.Before(q.wakeAt) {
		return
	}
	q.wakeAt = due
	q.env.Wake(due)
}

// report counts the traffic of this Step.
func (q *QP) report() {
	for _, c := range [...]struct {
		t               *traffic
		bytes, messages Counter
	}{{&q.tx, TxBytes, TxPackets}, {&q.rx, RxBytes, RxPackets}} {
		if c.t.bytes > 0 {
			q.env.Count(c.bytes, c.t.bytes)
		}
		if c.t.messages > 0 {
			q.env.Count(c.messages, c.t.messages)
		}
		*c.t = traffic{}
	}
}

// noteDrained raises the event of a finished drain, once per stay in SQD.
func (q *QP) noteDrained() {
	if q.state != SQD || q.drained || !q.idle() {
		return
	}
	q.drained = true
	if q.attr.SQDNotify {
		q.env.Event(EventSQDrained)
	}
}

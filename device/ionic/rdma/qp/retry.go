// SPDX-License-Identifier: Apache-2.0

package qp

import "time"

// AckTimeout is the local ACK timeout that an encoded value stands for:
// 4.096 us * 2^code. Code 0 means never and gives 0.
func AckTimeout(code uint8) time.Duration {
	if code &= 0x1f; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}

// rnrTimers are the waits of the 5-bit RNR NAK timer field, in units of 10 us.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
	16384, 24576, 32768, 49152,
}

// RNRTimer is the wait that a min_rnr_timer code stands for.
func RNRTimer(code uint8) time.Duration { return rnrTimers[code&0x1f] * 10 * time.Microsecond }

// rnrForever is the rnr_retry value that never gives up.
const rnrForever = 7

// startTimer starts the acknowledgement timer anew, for a new try.
func (q *QP) startTimer() {
	q.req.spared = 0
	q.setTimer()
}

// setTimer starts the acknowledgement timer anew. What the rate limit holds back
// from being sent again cannot be acknowledged: its time begins when it may leave.
func (q *QP) setTimer() {
	r := &q.req
	d := AckTimeout(q.attr.Timeout)
	if q.typ != RC || d == 0 {
		return
	}
	from := q.now
	if r.next < r.high && r.paceUntil.After(from) {
		from = r.paceUntil
	}
	r.deadline = from.Add(d)
	if q.pending != nil {
		_, r.linkMoved = q.pending()
	}
}

// expire acts on the timers that have run out.
func (q *QP) expire() {
	r := &q.req
	if q.typ != RC || !q.sends() {
		return
	}
	if !r.rnrUntil.IsZero() && !r.rnrUntil.After(q.now) {
		r.rnrUntil = time.Time{}
	}
	if r.deadline.IsZero() || r.deadline.After(q.now) {
		return
	}
	late := q.now.Sub(r.deadline)
	r.deadline = time.Time{}
	if r.unacked == r.high {
		return
	}
	if q.spare(late) {
		return
	}
	q.env.Count(ReqAckTimeout, 1)
	r.recovering = false
	if r.retries >= int(q.attr.RetryCnt) && q.now.Sub(r.progress) < q.silence() {
		q.resend()
		r.probing = true
		return
	}
	if q.retry() {
		r.probing = true
	}
}

// silence is how long a peer may say nothing before the guest is told, if its
// own (retry_cnt+1) times the timeout is less: four times that, which InfiniBand
// lets a channel adapter take, and silencePatience at the most. A lane that is
// dialled anew takes longer than a cable that is plugged in.
func (q *QP) silence() time.Duration {
	tries := time.Duration(q.attr.RetryCnt) + 1
	return min(4*tries*AckTimeout(q.attr.Timeout), silencePatience)
}

// spare starts an acknowledgement timer anew that ran out, late by so much, when
// the silence says nothing about the peer. Two things are no fault of the
// network and must not use up the guest's retries: this process had no CPU, and
// the answer may wait unread in a socket; or the way to the peer is busy with
// others and has not let go of our packets yet. The first is let pass a few
// times in a try, the second for a while. A link that stands still is no excuse:
// it is as silent as a peer.
func (q *QP) spare(late time.Duration) bool {
	r := &q.req
	if late > AckTimeout(q.attr.Timeout)/2 && r.spared < lateFires {
		r.spared++
		q.setTimer()
		return true
	}
	if q.pending == nil || q.now.Sub(r.progress) >= pendingPatience {
		return false
	}
	if held, moved := q.pending(); !held || moved == r.linkMoved {
		return false
	}
	q.setTimer()
	return true
}

// gap acts on the news that a packet or an answer was lost.
func (q *QP) gap(c Counter) {
	q.env.Count(c, 1)
	if q.req.recovering {
		return
	}
	if q.retry() {
		q.req.recovering = true
	}
}

// retry sends everything again from the oldest unacknowledged PSN on. It
// returns false when the guest's count is used up and the QP has failed.
func (q *QP) retry() bool {
	r := &q.req
	if r.retries >= int(q.attr.RetryCnt) {
		q.env.Count(ReqRetryExceeded, 1)
		q.failOldest(RetryExceeded)
		return false
	}
	r.retries++
	q.resend()
	return true
}

// resend sends everything again from the oldest unacknowledged PSN on.
func (q *QP) resend() {
	q.reposition(q.req.unacked)
	q.startTimer()
}

// notReady acts on an RNR NAK for the oldest unacknowledged packet.
func (q *QP) notReady(timer uint8) {
	r := &q.req
	if !r.rnrUntil.IsZero() {
		return // the same news again
	}
	q.env.Count(ReqRNRRetryErr, 1)
	if q.attr.RNRRetry != rnrForever && r.rnrRetries >= int(q.attr.RNRRetry) {
		q.failOldest(RNRRetryExceeded)
		return
	}
	r.rnrRetries++
	r.rnrUntil = q.now.Add(RNRTimer(timer))
	r.deadline = time.Time{}
	// The peer has answered: it is there, and it drops what follows.
	r.retries, r.recovering, r.probing = 0, false, false
	q.reposition(r.unacked)
}

// reposition makes psn, at or after the oldest unacknowledged one, the next to
// be sent.
func (q *QP) reposition(psn uint64) {
	r := &q.req
	r.unpark()
	i := r.ring.head
	for ; i != r.ring.tail; i++ {
		m := r.ring.at(i)
		if m.Op.local() {
			if !m.done {
				break
			}
		} else if psn < m.end {
			break
		}
	}
	r.cur, r.next, r.lastAck = i, psn, psn
}

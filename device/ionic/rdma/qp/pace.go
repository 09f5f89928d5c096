// SPDX-License-Identifier: Apache-2.0

package qp

import "time"

// paceCredit is how far sending may be behind the rate limit and still catch
// up: what a late timer has cost is not lost.
const paceCredit = 10 * time.Millisecond

// pace puts off the next packet after one of n bytes, so that the send queue
// keeps to the rate limit of the QP (kilobits a second; 0: none).
func (q *QP) pace(n int) {
	if q.attr.RateLimit == 0 {
		return
	}
	r := &q.req
	from := r.paceUntil
	if earliest := q.now.Add(-paceCredit); from.Before(earliest) {
		from = earliest
	}
	r.paceUntil = from.Add(paceTime(n, q.attr.RateLimit))
}

// paceTime is how long n bytes take at a rate in kilobits a second.
func paceTime(n int, kbps uint32) time.Duration {
	return time.Duration(uint64(n) * 8 * uint64(time.Millisecond) / uint64(kbps))
}

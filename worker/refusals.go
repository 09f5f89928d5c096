// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"time"
)

// refusalGap is the least time between two log lines about refused connections.
const refusalGap = time.Second

// refusals keeps whoever knocks at the fabric listener from filling the log.
type refusals struct {
	mu   sync.Mutex // guards what follows
	next time.Time
	held uint64 // refusals without a line since the last one
}

// say reports whether a refusal gets a line now, and how many had none since the
// last that did.
func (r *refusals) say(now time.Time) (held uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.held++
		return 0, false
	}
	held, r.held, r.next = r.held, 0, now.Add(refusalGap)
	return held, true
}

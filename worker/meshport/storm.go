// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"sync/atomic"
	"time"
)

// Frames for everybody, per second and at once. A peer's clock and bursts differ
// from ours, so twice as much is accepted of one as the guest may send.
const (
	floodRate     = 4096
	floodBurst    = 1024
	peerFloodRate = 2 * floodRate
)

// bucket bounds the rate of events without a lock: it holds the time at which all
// that was allowed is worked off at the given rate.
type bucket struct{ done atomic.Int64 }

// take reports whether one more event is allowed at now, in nanoseconds.
func (b *bucket) take(now int64, rate, burst int) bool {
	step := int64(time.Second) / int64(rate)
	for {
		done := b.done.Load()
		next := max(done, now) + step
		if next > now+step*int64(burst) {
			return false
		}
		if b.done.CompareAndSwap(done, next) {
			return true
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package intr

import "time"

const (
	// CoalesceUnit is the unit of coal_init, which the identity of the device tells
	// to the driver. It is the driver's default interval, and not much finer than
	// the timers of a host.
	CoalesceUnit = 64 * time.Microsecond
	// maxCoalesce is the largest coal_init, IONIC_INTR_CTRL_COAL_MAX. The driver
	// stays within; more counts as this.
	maxCoalesce = 0x3f
	// promptCoalesce is the largest coal_init that holds nothing back: that of the
	// default, which adaptive moderation does not exceed. To wait for a timer
	// would cost latency and spare next to no interrupt.
	promptCoalesce = 1
)

// interval is how long coal_init holds interrupts back; 0 is not at all.
func interval(coalInit uint32) time.Duration {
	if coalInit <= promptCoalesce {
		return 0
	}
	return time.Duration(min(coalInit, maxCoalesce)) * CoalesceUnit
}

// now is the time of the bank's clock.
func (b *Bank) now() time.Duration { return time.Since(b.start) }

// remaining is how long vector v holds interrupts back from now on.
func (b *Bank) remaining(v *vector) time.Duration {
	return max(time.Duration(v.until.Load())-b.now(), 0)
}

// decide tells what becomes of a state s that wants to assert: the state after
// it, whether the vector asserts now, and if not, after how long the timer has
// to look again (0: never, something else will).
//
// What is held back is fresh, so it survives a mask that is set meanwhile.
func (b *Bank) decide(v *vector, s uint32) (next uint32, fire bool, wait time.Duration) {
	if s&masked != 0 || !b.open.Load() {
		return s, false, 0
	}
	if s&coalescing != 0 {
		if s&held != 0 {
			return s, false, 0
		}
		if wait = b.remaining(v); wait > 0 {
			return s | held | fresh, false, wait
		}
	}
	return asserted(s), true, 0
}

// expire ends the wait of vector vec. It runs on the timer's goroutine.
func (b *Bank) expire(vec int) {
	v := &b.vectors[vec]
	v.quiet.Lock()
	defer v.quiet.Unlock()
	for {
		old := v.state.Load()
		if old&held == 0 {
			return // a reset came first
		}
		s := old &^ held
		fire := s&masked == 0 && b.open.Load()
		if fire {
			s = asserted(s)
		}
		if v.state.CompareAndSwap(old, s) {
			if fire {
				b.raise(vec)
			}
			return
		}
	}
}

// writeCoalInit stores the interval of vector vec. One that becomes short lets go
// of what is held back.
func (b *Bank) writeCoalInit(vec int, val uint32) {
	b.vectors[vec].coalInit.Store(val)
	b.update(vec, func(s uint32) (uint32, bool) {
		if interval(val) > 0 {
			return s | coalescing, false
		}
		return s &^ coalescing, s&held != 0
	})
}

// restart begins the interval of vector vec anew.
func (b *Bank) restart(vec int) {
	v := &b.vectors[vec]
	if d := interval(v.coalInit.Load()); d > 0 {
		v.until.Store(int64(b.now() + d))
	}
}

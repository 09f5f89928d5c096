// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"sync"
	"time"
)

// tscKHz is how fast the time stamp counter of an emulated guest is, measured once.
// The guest's kernel is told: it would measure the counter against timers that are
// emulated too, and on a busy machine the result is wrong by any factor, and with
// it every clock of the guest.
var tscKHz = sync.OnceValue(func() uint64 { return measureTSC(50 * time.Millisecond) })

// measureTSC returns the frequency of the counter in kHz, measured for a time.
func measureTSC(during time.Duration) uint64 {
	t0, c0 := readTSC()
	time.Sleep(during)
	t1, c1 := readTSC()
	return (c1 - c0) * uint64(time.Millisecond) / uint64(t1.Sub(t0))
}

// readTSC reads the clock and the counter at the same time: of several attempts
// the one that took least, so that none in which this thread was set aside counts.
func readTSC() (at time.Time, count uint64) {
	best := ^uint64(0)
	for range 100 {
		before := rdtsc()
		now := time.Now()
		after := rdtsc()
		if took := after - before; took < best {
			best, at, count = took, now, before+took/2
		}
	}
	return at, count
}

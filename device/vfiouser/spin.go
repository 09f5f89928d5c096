// SPDX-License-Identifier: Apache-2.0

package vfiouser

// spinRetry is how many times in a row the session parks at once, after a spin
// that was in vain, before it tries one again.
const spinRetry = 63

// spin decides how often the session tries to receive before it parks. A spin
// that catches the next request saves a wake-up. One that does not has held a
// CPU for nothing, and what the session handed over, a doorbell's work, may
// have waited for that CPU. So the session spins only as long as that pays, and
// samples from time to time whether it would.
type spin struct {
	tries int  // attempts of a spin, at most 1: never spin
	paid  bool // the latest spin caught a request
	skips int  // parks at once since
}

// start is called when there is nothing to receive; it returns the number of
// attempts to make in all before parking.
func (s *spin) start() int {
	if s.paid || s.skips >= spinRetry {
		s.skips = 0
		return s.tries
	}
	s.skips++
	return 1
}

// end tells whether the attempts beyond the first caught a request.
func (s *spin) end(caught bool) { s.paid = caught }

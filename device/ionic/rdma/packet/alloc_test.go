// SPDX-License-Identifier: Apache-2.0

// Under the race detector sync.Pool forgets entries on purpose.
//go:build !race

package packet

import "testing"

func TestGet_AllocatesNothingInTheSteadyState(t *testing.T) {
	for _, n := range []int{0, 64, 4096, MaxPayload} {
		Get(n).Release()
		if a := testing.AllocsPerRun(1000, func() { Get(n).Release() }); a > 0.1 {
			t.Errorf("%d bytes: %v allocations", n, a)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"runtime"
	"testing"
)

func TestProcs_LeavesHalfToTheGuest(t *testing.T) {
	for cpus, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 16: 8, 17: 8, 512: 8} {
		if got := procs(cpus); got != want {
			t.Errorf("%d CPUs: %d processors, want %d", cpus, got, want)
		}
	}
}

func TestLimitProcs_FollowsTheEnvironment(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.GOMAXPROCS(6)
	t.Setenv("GOMAXPROCS", "6")
	LimitProcs()
	if got := runtime.GOMAXPROCS(0); got != 6 {
		t.Errorf("%d processors although GOMAXPROCS=6 is set", got)
	}
	t.Setenv("GOMAXPROCS", "")
	LimitProcs()
	if got := runtime.GOMAXPROCS(0); got != 3 {
		t.Errorf("%d processors of 6, want 3", got)
	}
}

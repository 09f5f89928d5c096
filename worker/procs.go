// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"os"
	"runtime"
)

// mostProcs is where more parallelism stops paying: the queue pairs of one
// guest share a few connections, and what a message passes through is a chain,
// not a fan.
const mostProcs = 8

// LimitProcs makes the Go scheduler use half of the CPUs this process may use,
// at least one and at most mostProcs, unless the environment variable
// GOMAXPROCS says otherwise. The other half belongs to the vCPUs, which poll.
// A message passes through several goroutines that wait for each other; with a
// processor to spare for each of them every hand-over wakes a thread, which
// costs more than the work that it could do in parallel.
func LimitProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(procs(runtime.GOMAXPROCS(0)))
	}
}

// procs is the number of processors to use when cpus may be used.
func procs(cpus int) int { return min(max(cpus/2, 1), mostProcs) }

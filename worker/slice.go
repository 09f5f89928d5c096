// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// sliceWanted is the scheduling slice of the worker's threads. A guest that
// polls its completion queue keeps a CPU busy with vCPU threads; under the
// kernel's EEVDF scheduler a thread that asks for a shorter slice gets an
// earlier deadline, and so runs soon after a doorbell wakes it instead of
// after the vCPU's slice of several milliseconds. It is no priority: the
// worker's share of the CPU stays what it is.
const sliceWanted = 100 * time.Microsecond

// ShortenSlices asks the kernel for short scheduling slices for every thread of
// this process; threads made later inherit them. Kernels before 6.12 ignore or
// refuse the request: the worker then works as well, with more latency when
// CPUs are scarce.
func ShortenSlices() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("scheduling slice: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if err == nil && attr.Policy == unix.SCHED_NORMAL {
			attr.Runtime = uint64(sliceWanted)
			err = unix.SchedSetAttr(tid, attr, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // a thread may end meanwhile
			return fmt.Errorf("scheduling slice of thread %d: %w", tid, err)
		}
	}
	return nil
}

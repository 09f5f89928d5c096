// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of CPU time in /proc/PID/stat: USER_HZ, which is 100 on
// every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime reads the CPU time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses and may hold anything; user
	// and system time are the 12th and 13th after it.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	var sum time.Duration
	for _, v := range f[11:13] {
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}

// cpu is the CPU time that the workers have used so far.
func (s *stack) cpu() (sum time.Duration, err error) {
	for _, p := range s.workers {
		d, err := cpuTime(p.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measureIdle lets the workers alone with their guests and says what they use.
func (s *stack) measureIdle(ctx context.Context, d time.Duration) ([]idle, error) {
	before := make([]time.Duration, len(s.workers))
	var err error
	for i, p := range s.workers {
		if before[i], err = cpuTime(p.cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	took := time.Since(start)
	var out []idle
	for i, p := range s.workers {
		after, err := cpuTime(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		out = append(out, idle{fmt.Sprintf("worker %d", i+1), 100 * (after - before[i]).Seconds() / took.Seconds()})
	}
	return out, nil
}

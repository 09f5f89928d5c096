// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"os"
	"runtime/metrics"
	"time"

	"github.com/prometheus/procfs"
)

// Process is what the worker's process uses.
type Process struct {
	PID        int
	Started    time.Time
	CPU        time.Duration // user and system
	Resident   uint64        // bytes
	OpenFiles  uint64
	Threads    uint64
	Goroutines uint64
	Heap       uint64 // bytes of living objects and of garbage not swept yet
	GCs        uint64 // collections so far
}

// started is about when the process began.
var started = time.Now()

// runtimeSamples are read without stopping the program.
var runtimeSamples = [...]string{
	"/sched/goroutines:goroutines", "/memory/classes/heap/objects:bytes", "/gc/cycles/total:gc-cycles",
}

// take reads /proc/self and the runtime. What cannot be read stays zero: a
// snapshot without it is better than none.
func (p *Process) take() {
	p.PID, p.Started = os.Getpid(), started
	var s [len(runtimeSamples)]metrics.Sample
	for i := range s {
		s[i].Name = runtimeSamples[i]
	}
	metrics.Read(s[:])
	for i, to := range []*uint64{&p.Goroutines, &p.Heap, &p.GCs} {
		if s[i].Value.Kind() == metrics.KindUint64 {
			*to = s[i].Value.Uint64()
		}
	}
	self, err := procfs.Self()
	if err != nil {
		return
	}
	if st, err := self.Stat(); err == nil {
		p.CPU = time.Duration(st.CPUTime() * float64(time.Second))
		p.Resident = uint64(max(st.ResidentMemory(), 0))
		p.Threads = uint64(max(st.NumThreads, 0))
	}
	if n, err := self.FileDescriptorsLen(); err == nil {
		p.OpenFiles = uint64(n)
	}
}

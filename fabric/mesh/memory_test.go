// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric"
)

func TestIdle_ConnectionsGiveTheirMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		l1 := b.node(1, &station{}, nil)
		// The pulses of the two ends do not coincide: at each of them all that
		// the ping before has taken is back.
		l2 := b.node(2, &station{}, func(o *Options) { o.Timing.Ping = 2*time.Second + time.Millisecond })
		for flow := range uint32(40) {
			l1.Send(&fabric.Frame{Dst: 2, Flow: flow, Payload: make([]byte, fabric.MaxChunk)})
			time.Sleep(time.Millisecond)
		}
		busy := 0
		for _, ln := range *peerOf(l2, 1).lanes.Load() {
			p := ln.current().pool
			p.mu.Lock()
			if p.current != nil {
				busy++
			}
			p.mu.Unlock()
		}
		if busy == 0 {
			t.Error("no slab in use after large frames")
		}
		time.Sleep(10 * time.Second)
		for _, l := range []*Link{l1, l2} {
			for _, ln := range *peerOf(l, 3-l.opts.Self).lanes.Load() {
				c := ln.current()
				c.pool.mu.Lock()
				slabs := len(c.pool.owner) / slabHandles
				c.pool.mu.Unlock()
				ln.mu.Lock()
				batches := len(c.batches)
				ln.mu.Unlock()
				if slabs > 0 || batches > 1 {
					t.Errorf("node %d lane %d: %d slabs and %d batches kept", l.opts.Self, ln.index, slabs, batches)
				}
			}
		}
		_, _ = l1.Close(), l2.Close()
	})
}

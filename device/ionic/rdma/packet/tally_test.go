// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"sync/atomic"
	"testing"
)

func TestTally_CountsAPacketOnceUntilItIsReleased(t *testing.T) {
	var n atomic.Int64
	p, q := Get(64), Get(0)
	p.Tally(&n)
	p.Tally(&n) // offered to a full link again
	q.Tally(&n)
	if n.Load() != 2 {
		t.Fatalf("%d packets counted, want 2", n.Load())
	}
	p.Release()
	q.Release()
	if n.Load() != 0 {
		t.Fatalf("%d packets counted after all are released", n.Load())
	}
	r := Get(64) // perhaps the same memory
	r.Release()
	if n.Load() != 0 {
		t.Fatalf("a packet that nobody counts changed the count to %d", n.Load())
	}
}

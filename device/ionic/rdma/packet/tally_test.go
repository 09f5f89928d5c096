// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"sync/atomic"
	"testing"
)

func TestTally_CountsAPacketOnceUntilItIsReleased(t *testing.T) {
	var n Tally
	var moved atomic.Uint64
	n.Share(&moved)
	p, q := Get(64), Get(0)
	p.Tally(&n)
	p.Tally(&n) // offered to a full link again
	q.Tally(&n)
	if n.Held() != 2 || n.Moved() != 0 {
		t.Fatalf("%d packets counted, %d moved, want 2 and 0", n.Held(), n.Moved())
	}
	p.Release()
	q.Release()
	if n.Held() != 0 || n.Moved() != 2 {
		t.Fatalf("%d packets counted, %d moved, after both are released", n.Held(), n.Moved())
	}
	r := Get(64) // perhaps the same memory
	r.Release()
	if n.Held() != 0 || n.Moved() != 2 {
		t.Fatalf("a packet that nobody counts changed the counts to %d and %d", n.Held(), n.Moved())
	}
	var alone Tally
	s := Get(1)
	s.Tally(&alone)
	s.Release()
	if alone.Held() != 0 || alone.Moved() != 0 {
		t.Fatalf("without a shared counter: %d held, %d moved", alone.Held(), alone.Moved())
	}
}

// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/bits"
)

// idSet hands out the lowest free number of a range; it is not safe for
// concurrent use.
type idSet struct {
	next uint32
	top  uint32 // first number that is not in the range
	free []uint32
}

func (s *idSet) take() (uint32, error) {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id, nil
	}
	if s.next >= s.top {
		return 0, fmt.Errorf("verbs: all %d ids are in use", s.top)
	}
	s.next++
	return s.next - 1, nil
}

func (s *idSet) put(id uint32) { s.free = append(s.free, id) }

// queueIDs hands out ids of queues that live on one of two engines. The engine
// is bit number shift of the id: the top bit of the allocation index moves there.
//
//	index:  U | GGG | III        id:  GGG | U | III
type queueIDs struct {
	half  [numUDMA]idSet
	shift uint8
}

func newQueueIDs(count uint32, shift uint8, reserved uint32) *queueIDs {
	q := &queueIDs{shift: shift}
	q.half[0] = idSet{next: reserved, top: count / 2}
	q.half[1] = idSet{next: 0, top: count / 2}
	return q
}

func (q *queueIDs) take(udma int) (uint32, error) {
	i, err := q.half[udma].take()
	if err != nil {
		return 0, err
	}
	low := i & (1<<q.shift - 1)
	return (i&^low)<<1 | uint32(udma)<<q.shift | low, nil
}

func (q *queueIDs) put(id uint32) {
	low := id & (1<<q.shift - 1)
	udma := id >> q.shift & 1
	q.half[udma].put((id>>1)&^(1<<q.shift-1) | low)
}

// ceilLog2 returns the smallest l with 1<<l >= n.
func ceilLog2(n int) int {
	if n <= 1 {
		return 0
	}
	return bits.Len(uint(n - 1))
}

// SPDX-License-Identifier: Apache-2.0

package cq

import "github.com/ernic-dev/ernic/device/ionic/rdma/abi"

// held is a completion that waits for room.
type held struct {
	b      [abi.CQELen]byte
	urgent bool
}

// fifo is a queue of held completions. The zero value is empty.
type fifo struct {
	items []held
	first int
}

func (f *fifo) len() int { return len(f.items) - f.first }

// push appends an entry and returns its bytes to fill in.
func (f *fifo) push(urgent bool) *[abi.CQELen]byte {
	if f.first > 0 && f.first >= len(f.items)/2 {
		n := copy(f.items, f.items[f.first:])
		f.items, f.first = f.items[:n], 0
	}
	f.items = append(f.items, held{urgent: urgent})
	return &f.items[len(f.items)-1].b
}

// pop removes the oldest entry; there must be one.
func (f *fifo) pop() held {
	h := f.items[f.first]
	f.first++
	if f.first == len(f.items) {
		*f = fifo{}
	}
	return h
}

// remove drops the entries match wants gone and returns how many.
func (f *fifo) remove(match func(*[abi.CQELen]byte) bool) int {
	keep := f.items[:0]
	for i := f.first; i < len(f.items); i++ {
		if !match(&f.items[i].b) {
			keep = append(keep, f.items[i])
		}
	}
	n := f.len() - len(keep)
	f.items, f.first = keep, 0
	return n
}

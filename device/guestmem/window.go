// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	cacheLine = 64
	// A large window is shared by all queues of a device; its pins are spread
	// over pinShards cache lines chosen by page number, so that goroutines
	// working on different buffers do not bounce one line between cores.
	pinShards   = 16
	shardedFrom = 2 << 20 // bytes; smaller windows have one counter
	shardShift  = 12
)

type pinShard struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// window is one range of the IOVA space. All fields but the pins, dead and
// wake are constant once the window is in a table.
type window struct {
	first, last uint64         // inclusive
	base        unsafe.Pointer // host address of first; nil for a message window
	acc         Access         // rights we grant: asked rights that the file allows
	asked       Access         // rights the client named
	file        *file          // nil for a message window
	offset      uint64         // in the file

	dead atomic.Bool   // set once, after the window left the table
	wake chan struct{} // written before dead is set, read only after dead was seen

	pins []pinShard
	one  [1]pinShard
}

func (w *window) size() uint64 { return w.last - w.first + 1 } // a window never spans all 2^64 bytes

func (w *window) initPins() {
	if w.size() < shardedFrom || w.base == nil {
		w.pins = w.one[:]
		return
	}
	w.pins = make([]pinShard, pinShards)
}

// pin keeps the window's memory mapped until unpin. It returns nil if the
// window is already on its way out.
func (w *window) pin(iova uint64) *pinShard {
	p := &w.pins[(iova>>shardShift)&uint64(len(w.pins)-1)]
	p.n.Add(1)
	// The unmapper sets dead and then reads the counters; we count and then
	// read dead. One of the two sees the other.
	if w.dead.Load() {
		w.unpin(p)
		return nil
	}
	return p
}

func (w *window) unpin(p *pinShard) {
	if p.n.Add(-1) == 0 && w.dead.Load() {
		select {
		case w.wake <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
}

func (w *window) pinned() bool {
	for i := range w.pins {
		if w.pins[i].n.Load() != 0 {
			return true
		}
	}
	return false
}

// slice returns n bytes of host memory at iova. The caller holds a pin and has
// checked that the range lies in the window.
func (w *window) slice(iova, n uint64) []byte {
	return unsafe.Slice((*byte)(w.at(iova)), int(n))
}

func (w *window) at(iova uint64) unsafe.Pointer {
	return unsafe.Add(w.base, iova-w.first)
}

// drain waits until none of the dead windows is pinned, at most d; zero d
// means for ever. It returns the windows that still are.
func drain(ws []*window, wake <-chan struct{}, d time.Duration) []*window {
	var timeout <-chan time.Time
	for {
		busy := ws[:0:0]
		for _, w := range ws {
			if w.pinned() {
				busy = append(busy, w)
			}
		}
		if len(busy) == 0 {
			return nil
		}
		if timeout == nil && d > 0 {
			t := time.NewTimer(d)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case <-wake:
			ws = busy
		case <-timeout:
			return busy
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"sync"
	"sync/atomic"
)

// Payload size classes. Small messages must not pin a chunk each.
var classes = [...]int{512, 4 << 10, 32 << 10, MaxPayload}

var (
	packets = sync.Pool{New: func() any { return new(Packet) }}
	buffers [len(classes)]sync.Pool
)

// buffer boxes a slice so that it can go into a pool as a pointer.
type buffer struct{ b []byte }

// boxes keeps the boxes of buffers alive between uses so that returning a
// buffer to its pool does not allocate one.
var boxes = sync.Pool{New: func() any { return new(buffer) }}

// Get returns a zeroed packet whose Payload has n bytes, 0 <= n <= MaxPayload.
// The payload bytes are not cleared.
func Get(n int) *Packet {
	p := packets.Get().(*Packet)
	p.class = -1
	if n == 0 {
		return p
	}
	for i, size := range classes {
		if n > size {
			continue
		}
		p.class = int8(i)
		if v := buffers[i].Get(); v != nil {
			box := v.(*buffer)
			p.Payload = box.b[:n]
			box.b = nil
			boxes.Put(box)
		} else {
			p.Payload = make([]byte, n, size)
		}
		return p
	}
	panic("packet: payload larger than MaxPayload")
}

// Wrap returns a zeroed packet that carries payload, memory of owner. owner is
// released with the packet; it may be nil.
func Wrap(payload []byte, owner Releaser) *Packet {
	p := packets.Get().(*Packet)
	p.class = -1
	p.Payload = payload
	p.owner = owner
	return p
}

// Tally counts the packets that one sender has handed to a link, as long as
// they are not released. The zero value is ready for use.
type Tally struct {
	held  atomic.Int64
	moved atomic.Pointer[atomic.Uint64]
}

// Held is the number of packets that are not released.
func (t *Tally) Held() int64 { return t.held.Load() }

// Share makes the tally count, in a counter that many share, the packets that
// are released from now on.
func (t *Tally) Share(moved *atomic.Uint64) { t.moved.Store(moved) }

// Moved is what the shared counter counts, 0 without one.
func (t *Tally) Moved() uint64 {
	if n := t.moved.Load(); n != nil {
		return n.Load()
	}
	return 0
}

func (t *Tally) release() {
	t.held.Add(-1)
	if n := t.moved.Load(); n != nil {
		n.Add(1)
	}
}

// Tally makes t count the packet until it is released. Calls after the first
// do nothing.
func (p *Packet) Tally(t *Tally) {
	if p.tally == nil {
		p.tally = t
		t.held.Add(1)
	}
}

// Release ends the packet's life. It must be called exactly once.
func (p *Packet) Release() {
	if p.tally != nil {
		p.tally.release()
	}
	if p.owner != nil {
		p.owner.Release()
	} else if p.class >= 0 {
		box := boxes.Get().(*buffer)
		box.b = p.Payload[:0:cap(p.Payload)]
		buffers[p.class].Put(box)
	}
	*p = Packet{}
	packets.Put(p)
}

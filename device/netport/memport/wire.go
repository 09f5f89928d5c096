// SPDX-License-Identifier: Apache-2.0

// Package memport is a wire in memory with a [netport.Port] at each end: what
// one end sends the other receives. It is the twin of a TAP for tests, and joins
// two NICs in one process.
package memport

import (
	"sync"

	"github.com/ernic-dev/ernic/device/netport"
)

// Depth is the number of frames a queue of the wire holds before Send refuses.
const Depth = 512

// End is one end of the wire.
type End struct {
	name string
	in   []*queue // what this end receives
	out  []*queue // what the other end receives
}

// queue is a ring of frames whose buffers are kept, so that a warm wire does
// not allocate.
type queue struct {
	mu     sync.Mutex
	ready  sync.Cond
	ring   [Depth]slot
	head   int // next frame to receive
	n      int
	closed bool
}

// slot is one frame under way.
type slot struct {
	frame   []byte
	offload netport.Offload
}

// Pair returns the two ends of a wire with the given number of queues.
func Pair(name string, queues int) (a, b *End) {
	ab, ba := newQueues(queues), newQueues(queues)
	return &End{name: "mem:" + name + ":a", in: ba, out: ab},
		&End{name: "mem:" + name + ":b", in: ab, out: ba}
}

func newQueues(n int) []*queue {
	qs := make([]*queue, n)
	for i := range qs {
		qs[i] = &queue{}
		qs[i].ready.L = &qs[i].mu
	}
	return qs
}

// Name implements [netport.Port].
func (e *End) Name() string { return e.name }

// Queues implements [netport.Port].
func (e *End) Queues() int { return len(e.in) }

// Send implements [netport.Port].
func (e *End) Send(q int, frame []byte) error { return e.send(q, frame, netport.Offload{}) }

// Offloading is an end that is a [netport.Offloader].
type Offloading struct{ *End }

// SendOffload implements [netport.Offloader].
func (e Offloading) SendOffload(q int, frame []byte, o *netport.Offload) error {
	return e.send(q, frame, *o)
}

func (e *End) send(q int, frame []byte, o netport.Offload) error {
	k := e.out[q%len(e.out)]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return netport.ErrClosed
	}
	if k.n == Depth {
		return netport.ErrFull
	}
	s := &k.ring[(k.head+k.n)%Depth]
	s.frame, s.offload = append(s.frame[:0], frame...), o
	k.n++
	k.ready.Signal()
	return nil
}

// Receive implements [netport.Port].
func (e *End) Receive(q int, b *netport.Batch) (int, error) {
	k := e.in[q]
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.n == 0 {
		if k.closed {
			return 0, netport.ErrClosed
		}
		k.ready.Wait()
	}
	n := min(k.n, b.Len())
	for i := range n {
		s := &k.ring[k.head]
		b.Set(i, b.Buffer(i)[:copy(b.Buffer(i), s.frame)], s.offload)
		k.head = (k.head + 1) % Depth
		k.n--
	}
	return n, nil
}

// Discard throws away every frame that waits to be received at this end.
func (e *End) Discard() {
	for _, k := range e.in {
		k.mu.Lock()
		k.head, k.n = (k.head+k.n)%Depth, 0
		k.mu.Unlock()
	}
}

// Close implements [netport.Port]: both ends are closed, frames under way are
// still received.
func (e *End) Close() error {
	for _, qs := range [][]*queue{e.in, e.out} {
		for _, k := range qs {
			k.mu.Lock()
			k.closed = true
			k.ready.Broadcast()
			k.mu.Unlock()
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"sync"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/fabric"
)

// Bounds of what waits for the LIF in one queue.
const (
	queueFrames = 1024
	queueBytes  = 8 << 20
)

// Deliver takes a frame of class Ethernet from the fabric. Any number of goroutines
// may call it; it does not block.
func (p *Port) Deliver(f *fabric.Frame) {
	if !p.deliver(f) {
		f.Release()
	}
}

// deliver reports whether the frame's owner was taken over.
func (p *Port) deliver(f *fabric.Frame) bool {
	c := &p.Counters
	from := p.peers.Load().sources[f.Src]
	if isNoLIF(f.Header) && from != nil {
		ns, _ := p.now()
		from.notes(false, ns)
		c.RxAbsent.Add(1)
		return false
	}
	o, ok := decode(f.Header)
	if !ok || len(f.Payload) < flow.EthHeader || len(f.Payload) > netport.MaxOffload || f.Payload[6]&1 != 0 {
		c.RxBad.Add(1)
		return false
	}
	m := p.mesh.Load()
	if from == nil || m == nil {
		c.RxStranger.Add(1)
		return false
	}
	ns, s := p.now()
	from.notes(true, ns)
	a := addressOf(f.Payload[6:])
	switch node, claimed := p.cfg.Owner(a.mac()); {
	case a == p.own || claimed && node != f.Src:
		c.RxSpoofed.Add(1)
		return false
	case !claimed && !p.table.learn(a, f.Src, s):
		c.Unlearned.Add(1)
	}
	if !p.mine(f.Payload, m) && !from.storm.take(ns, peerFloodRate, floodBurst) {
		c.RxStorm.Add(1)
		return false
	}
	frame, owner := f.Payload, netport.Releaser(nil)
	taken := len(frame) > small
	if taken {
		if f.Owner != nil {
			owner = f.Owner
		}
	} else {
		b := getBuffer(frame)
		frame, owner = b.data, b
	}
	if !p.queues[f.Flow%uint32(len(p.queues))].put(frame, o, owner) {
		c.RxFull.Add(1)
		if !taken {
			owner.Release()
		}
		return false
	}
	c.RxFrames.Add(1)
	if !taken {
		f.Release()
	}
	return true
}

// mine reports whether a frame is for an address of the guest.
func (p *Port) mine(frame []byte, m *membership) bool {
	a := addressOf(frame)
	if a == p.own {
		return true
	}
	if frame[0]&1 != 0 {
		return false
	}
	node, ok := p.cfg.Owner(a.mac())
	return ok && node == m.self
}

// rxQueue is what waits for one receiving goroutine of the LIF.
type rxQueue struct {
	mu     sync.Mutex
	ready  sync.Cond
	ring   [queueFrames]waiting
	head   int // next frame to take
	n      int
	bytes  int
	closed bool
}

type waiting struct {
	frame   []byte
	offload netport.Offload
	owner   netport.Releaser
}

func newRxQueue() *rxQueue {
	q := &rxQueue{}
	q.ready.L = &q.mu
	return q
}

// put reports false if there is no room.
func (q *rxQueue) put(frame []byte, o netport.Offload, owner netport.Releaser) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.n == queueFrames || q.bytes+len(frame) > queueBytes {
		return false
	}
	q.ring[(q.head+q.n)%queueFrames] = waiting{frame, o, owner}
	q.n++
	q.bytes += len(frame)
	q.ready.Signal()
	return true
}

// Receive implements [netport.Port].
func (p *Port) Receive(queue int, b *netport.Batch) (int, error) {
	q := p.queues[queue]
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.n == 0 {
		if q.closed {
			return 0, netport.ErrClosed
		}
		q.ready.Wait()
	}
	n := min(q.n, b.Len())
	for i := range n {
		w := &q.ring[q.head]
		if w.owner == nil {
			b.Set(i, w.frame, w.offload)
		} else {
			b.Lend(i, w.frame, w.offload, w.owner)
		}
		q.bytes -= len(w.frame)
		*w = waiting{}
		q.head = (q.head + 1) % queueFrames
		q.n--
	}
	return n, nil
}

// close lets the receiver end and gives back what waits.
func (q *rxQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for ; q.n > 0; q.n-- {
		if o := q.ring[q.head].owner; o != nil {
			o.Release()
		}
		q.ring[q.head] = waiting{}
		q.head = (q.head + 1) % queueFrames
	}
	q.ready.Broadcast()
}

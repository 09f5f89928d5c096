// SPDX-License-Identifier: Apache-2.0

// Package loopback delivers frames to the own node: queue pairs of one worker
// talk to each other under the same rules as over the mesh.
//
// Delivery is asynchronous (Send never calls the Receiver), bounded (package
// queue) and copies nothing: the receiver gets the sender's bytes and Owner.
// Flows are spread over a few lanes, each a queue with one goroutine.
package loopback

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/queue"
)

// Options of a loopback link.
type Options struct {
	// Self is the own node id.
	Self uint32
	// Receiver gets what is sent.
	Receiver fabric.Receiver
	// Lanes is the number of delivering goroutines. Default: the number of
	// processors, at most 4.
	Lanes int
	// Limits bound each lane's queue.
	Limits queue.Limits
}

// A lane takes at most this much out of its queue at once, so that what is in
// neither queue nor receiver stays small.
const (
	burstFrames = 32
	burstBytes  = fabric.MaxChunk
)

// Link is the loopback link.
type Link struct {
	self  uint32
	recv  fabric.Receiver
	lanes []*lane
	done  sync.WaitGroup
}

var _ fabric.Link = (*Link)(nil)

type lane struct {
	link *Link

	mu     sync.Mutex // guards all below
	wake   sync.Cond
	queue  *queue.Queue
	closed bool
	stats  fabric.PeerStats
}

// New starts a loopback link.
func New(o Options) (*Link, error) {
	if o.Receiver == nil {
		return nil, errors.New("loopback: no receiver given")
	}
	limits, err := o.Limits.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("loopback: %w", err)
	}
	if o.Lanes == 0 {
		o.Lanes = min(4, runtime.GOMAXPROCS(0))
	}
	if o.Lanes < 1 || o.Lanes > fabric.Groups {
		return nil, fmt.Errorf("loopback: %d lanes, need 1 to %d", o.Lanes, fabric.Groups)
	}
	l := &Link{self: o.Self, recv: o.Receiver}
	for range o.Lanes {
		ln := &lane{link: l, queue: queue.New(limits)}
		ln.wake.L = &ln.mu
		l.lanes = append(l.lanes, ln)
		l.done.Go(ln.deliver)
	}
	return l, nil
}

// Send queues a frame for the own node. Frames for other nodes find no route.
func (l *Link) Send(f *fabric.Frame) fabric.Verdict {
	ln := l.lanes[int(fabric.Group(f.Flow))%len(l.lanes)]
	v := ln.send(f)
	if v == fabric.NoRoute || v == fabric.Dropped {
		f.Drop()
	}
	return v
}

func (ln *lane) send(f *fabric.Frame) fabric.Verdict {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	drops := &ln.stats.Drops
	switch {
	case f.Dst != ln.link.self:
		drops[fabric.DropNoRoute]++
		return fabric.NoRoute
	case f.Check() != nil:
		drops[fabric.DropInvalid]++
		return fabric.Dropped
	case ln.closed:
		drops[fabric.DropClosed]++
		return fabric.Dropped
	}
	g := *f
	g.Src = ln.link.self
	switch ln.queue.Push(&g) {
	case queue.Starved:
		ln.stats.Full++
		return fabric.Full
	case queue.NoRoom:
		drops[fabric.DropQueueFull]++
		return fabric.Dropped
	}
	ln.stats.TxFrames++
	ln.stats.TxBytes += uint64(g.Size())
	ln.wake.Signal()
	return fabric.Sent
}

// deliver is the goroutine of a lane.
func (ln *lane) deliver() {
	var (
		burst [burstFrames]fabric.Frame
		room  [fabric.Groups]uint8
	)
	for {
		ln.mu.Lock()
		for ln.queue.Len() == 0 && !ln.closed {
			ln.wake.Wait()
		}
		if ln.closed {
			ln.mu.Unlock()
			return
		}
		n, left := 0, burstBytes
		for n < len(burst) && ln.queue.Pop(&burst[n], left) {
			ln.stats.RxFrames++
			ln.stats.RxBytes += uint64(burst[n].Size())
			left -= len(burst[n].Payload)
			n++
		}
		ln.stats.RxMessages++
		rooms := ln.queue.TakeRoom(&room)
		ln.mu.Unlock()

		for i := range burst[:n] {
			ln.link.recv.Receive(&burst[i])
			burst[i] = fabric.Frame{}
		}
		for _, g := range room[:rooms] {
			ln.link.recv.Writable(ln.link.self, g)
		}
	}
}

// Close stops delivery. Frames that still wait are dropped and counted.
func (l *Link) Close() error {
	for _, ln := range l.lanes {
		ln.mu.Lock()
		ln.closed = true
		ln.mu.Unlock()
		ln.wake.Broadcast()
	}
	l.done.Wait()
	for _, ln := range l.lanes {
		ln.drain()
	}
	return nil
}

func (ln *lane) drain() {
	for {
		var f fabric.Frame
		ln.mu.Lock()
		ok := ln.queue.Pop(&f, fabric.MaxChunk)
		if ok {
			ln.stats.Drops[fabric.DropClosed]++
		}
		ln.mu.Unlock()
		if !ok {
			return
		}
		f.Release()
	}
}

// Stats returns the counters of the link to the own node.
func (l *Link) Stats() fabric.PeerStats {
	s := fabric.PeerStats{Node: l.self, State: fabric.PeerUp, Lanes: len(l.lanes)}
	for _, ln := range l.lanes {
		ln.mu.Lock()
		s.Add(&ln.stats)
		s.QueuedFrames += uint64(ln.queue.Len())
		s.QueuedBytes += uint64(ln.queue.Bytes())
		ln.mu.Unlock()
	}
	s.TxMessages = s.RxMessages
	return s
}

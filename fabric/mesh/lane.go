// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"sync"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/queue"
)

// lane is a share of the flows to one peer: a queue, and the connection that
// empties it when there is one.
type lane struct {
	peer  *peer
	index int

	mu    sync.Mutex // guards all below
	queue *queue.Queue
	// moved is set when the peer's set of lanes was replaced; the queue's
	// contents are in the new lanes.
	moved bool
	// shut is set when the peer is gone or the link closed.
	shut bool
	conn *conn // nil while the lane is down
	// everUp tells a reconnect from the first connect.
	everUp bool
	stats  fabric.PeerStats // what is counted under mu
}

func newLane(p *peer, index int) *lane {
	return &lane{peer: p, index: index, queue: queue.New(p.link.opts.Limits)}
}

// send queues the frame and gets it on its way. ok is false if the lane is no
// longer in use; the caller then picks another.
func (ln *lane) send(f *fabric.Frame) (v fabric.Verdict, ok bool) {
	ln.mu.Lock()
	switch {
	case ln.moved:
		ln.mu.Unlock()
		return 0, false
	case ln.shut:
		ln.stats.Drops[fabric.DropClosed]++
		ln.mu.Unlock()
		return fabric.Dropped, true
	}
	switch ln.queue.Push(f) {
	case queue.Starved:
		ln.stats.Full++
		v = fabric.Full
	case queue.NoRoom:
		ln.stats.Drops[fabric.DropQueueFull]++
		v = fabric.Dropped
	}
	c := ln.conn
	switch {
	case c == nil:
		ln.mu.Unlock()
		ln.peer.demand()
	case v == fabric.Sent && c.idle() && !ln.queue.Starving():
		// The sending goroutine does the writer's work: one wake-up less.
		b := c.fill()
		ln.mu.Unlock()
		c.transmit(b)
	default:
		if c.ready() {
			c.wake.Signal()
		}
		ln.mu.Unlock()
	}
	return v, true
}

// flush drops all that is queued, unless the lane is up. If shut is set the
// lane is emptied all the same and takes nothing any more.
func (ln *lane) flush(reason fabric.DropReason, shut bool) {
	var (
		groups [fabric.Groups]uint8
		f      fabric.Frame
	)
	ln.mu.Lock()
	ln.shut = ln.shut || shut
	for (ln.conn == nil || ln.shut) && ln.queue.Pop(&f, fabric.MaxChunk) {
		ln.stats.Drops[reason]++
		ln.mu.Unlock()
		f.Release()
		ln.mu.Lock()
	}
	rooms := ln.queue.TakeRoom(&groups)
	ln.mu.Unlock()
	for _, g := range groups[:rooms] {
		ln.peer.link.opts.Receiver.Writable(ln.peer.node, g)
	}
}

// down reports whether the lane has no connection and, if waiting is set,
// frames wait for one.
func (ln *lane) down(waiting bool) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.conn == nil && (!waiting || ln.queue.Len() > 0)
}

// current returns the connection, nil while the lane is down.
func (ln *lane) current() *conn {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.conn
}

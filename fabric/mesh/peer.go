// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
	"github.com/ernic-dev/ernic/fabric/queue"
	"github.com/ernic-dev/ernic/fabric/wire"
)

// peer is another node and the link to it.
type peer struct {
	link *Link
	node uint32
	ctx  context.Context // ends with the peer
	stop context.CancelFunc

	// lanes is replaced as a whole when the number of lanes changes.
	lanes atomic.Pointer[[]*lane]
	// wanted is set once something needs the link; the dialer then keeps it.
	wanted atomic.Bool
	// insisted is set by Connect until the link is up: the side that does not
	// dial then asks for it even if no frame waits.
	insisted atomic.Bool
	start    sync.Once     // starts the supervisor
	kick     chan struct{} // capacity 1: there may be work for the supervisor
	nudge    chan struct{} // capacity 1: the supervisor need not wait any longer
	rtt      atomic.Int64  // nanoseconds, 0 unknown

	admission sync.Mutex // serializes hellos of lanes; taken before mu

	mu    sync.Mutex // guards all below
	gone  bool       // the peer is removed
	state fabric.PeerState
	up    int            // lanes with a connection
	epoch uint64         // of the link, chosen by the dialer
	seen  directory.Node // what the directory said last
	// cancelAttempt ends the attempt under way, if there is one.
	cancelAttempt context.CancelCauseFunc
	last          string // last error
	base          fabric.PeerStats
}

func newPeer(l *Link, node directory.Node) *peer {
	p := &peer{
		link: l, node: node.ID, seen: node,
		kick: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
	}
	p.ctx, p.stop = context.WithCancel(l.ctx)
	lanes := p.makeLanes(l.opts.Lanes)
	p.lanes.Store(&lanes)
	if p.dials() {
		p.epoch = newEpoch()
	}
	return p
}

// dials reports whether this node is the one that dials.
func (p *peer) dials() bool { return p.link.opts.Self < p.node }

func (p *peer) makeLanes(n int) []*lane {
	lanes := make([]*lane, n)
	for i := range lanes {
		lanes[i] = newLane(p, i)
	}
	return lanes
}

func (p *peer) send(f *fabric.Frame) fabric.Verdict {
	g := int(fabric.Group(f.Flow))
	for {
		lanes := *p.lanes.Load()
		if v, ok := lanes[g%len(lanes)].send(f); ok {
			return v
		}
	}
}

// demand says that something waits for the link. Every frame that finds its
// lane down calls it.
func (p *peer) demand() {
	p.wanted.Store(true)
	signal(p.kick)
	p.start.Do(func() { p.link.spawn(p.supervise) })
}

// signal puts a token into a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// setLanes changes the number of lanes to what the dialer uses. Lanes must be
// down. Frames that wait move to their new lanes.
func (p *peer) setLanes(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.lanes.Load()
	switch {
	case len(old) == n:
		return nil
	case p.gone:
		return errGoingDown
	case p.up > 0:
		return fmt.Errorf("the link has %d lanes, not %d", len(old), n)
	}
	// Nobody sees a new lane before all that waits has moved: what is sent from
	// then on comes after it.
	lanes := p.makeLanes(n)
	for _, ln := range old {
		ln.mu.Lock()
		ln.queue.MoveTo(func(g uint8) *queue.Queue { return lanes[int(g)%n].queue })
		ln.moved = true
		p.base.Add(&ln.stats)
	}
	p.lanes.Store(&lanes)
	for _, ln := range old {
		ln.mu.Unlock()
	}
	return nil
}

// missing returns the lanes that are down.
func (p *peer) missing() []*lane {
	var down []*lane
	for _, ln := range *p.lanes.Load() {
		if ln.current() == nil {
			down = append(down, ln)
		}
	}
	return down
}

var (
	errGoingDown = errors.New("the link is going down")
	errReplaced  = errors.New("replaced by a new connection")
)

// attach makes c the connection of its lane and starts its writer. The caller
// then runs c.read and detach. An older connection of the lane is cut.
func (p *peer) attach(c *conn) error {
	ln := c.lane
	p.mu.Lock()
	// The directory may have changed since the hello was checked; if it changes
	// after this look, whoever watches it expels the connection.
	if node, ok := p.link.opts.Directory.Node(p.node); !ok || node.Instance != [16]byte{} && node.Instance != c.instance {
		p.mu.Unlock()
		return errChanged
	}
	ln.mu.Lock()
	if ln.moved || p.gone {
		ln.mu.Unlock()
		p.mu.Unlock()
		return errGoingDown
	}
	old := ln.conn
	if old != nil {
		old.dead = true
		old.wake.Broadcast()
		c.previous = old
	} else {
		p.up++
	}
	if ln.everUp {
		ln.stats.Reconnects++
	}
	ln.everUp = true
	ln.conn = c
	ln.mu.Unlock()
	first := old == nil && p.up == 1
	p.state = fabric.PeerUp
	p.wanted.Store(true)
	p.insisted.Store(false)
	p.mu.Unlock()

	if old != nil {
		old.fail(errReplaced)
	}
	if !p.link.spawn(c.write) {
		c.fail(errGoingDown)
	}
	signal(p.nudge)
	if first {
		p.link.opts.OnEvent(Event{Kind: LinkUp, Node: p.node})
		signal(p.link.pulse)
	}
	return nil
}

// detach ends the life of a connection whose reader has returned err.
func (p *peer) detach(c *conn, err error) {
	ln := c.lane
	p.mu.Lock()
	ln.mu.Lock()
	c.dead = true
	c.wake.Broadcast()
	mine := ln.conn == c
	if mine {
		ln.conn = nil
		p.up--
	}
	c.addStats(&ln.stats)
	ln.mu.Unlock()
	last := mine && p.up == 0
	if mine {
		p.last = err.Error()
	}
	if last {
		p.state = fabric.PeerIdle
		p.rtt.Store(0)
	}
	gone := p.gone
	p.mu.Unlock()
	close(c.ended)

	if last {
		p.link.opts.OnEvent(Event{Kind: LinkDown, Node: p.node, Err: err})
	}
	if mine && !gone {
		p.demand()
	}
}

// remove ends the link to the peer for good.
func (p *peer) remove(reason fabric.DropReason, err error) {
	p.stop()
	p.mu.Lock()
	p.gone = true
	lanes := *p.lanes.Load()
	p.mu.Unlock()
	for _, ln := range lanes {
		ln.flush(reason, true)
		if c := ln.current(); c != nil {
			c.fail(err)
		}
	}
}

// expel ends the connections to other processes of the node than this one; the
// link is made again if it is wanted.
func (p *peer) expel(instance [16]byte) {
	for _, ln := range *p.lanes.Load() {
		if c := ln.current(); c != nil && c.instance != instance {
			c.fail(fmt.Errorf("node %d is a new process, instance %x", p.node, instance))
		}
	}
}

// sever ends all connections; the link is made again if it is wanted.
func (p *peer) sever(why error) {
	for _, ln := range *p.lanes.Load() {
		if c := ln.current(); c != nil {
			c.fail(why)
		}
	}
}

// pong takes the answer to a ping.
func (p *peer) pong(token uint64) {
	if rtt := p.link.now() - token; rtt > 0 && rtt < uint64(time.Hour) {
		p.rtt.Store(int64(rtt))
	}
}

// stats returns a snapshot of the counters.
func (p *peer) stats() fabric.PeerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.base
	s.Node, s.State, s.Lanes, s.LastError = p.node, p.state, p.up, p.last
	s.RTT = time.Duration(p.rtt.Load())
	for _, ln := range *p.lanes.Load() {
		ln.mu.Lock()
		s.Add(&ln.stats)
		s.QueuedFrames += uint64(ln.queue.Len())
		s.QueuedBytes += uint64(ln.queue.Bytes())
		if ln.conn != nil {
			ln.conn.addStats(&s)
		}
		ln.mu.Unlock()
	}
	return s
}

// checkHello says why a hello is refused that this node, or the peer, has sent
// over a connection between the two.
func (p *peer) checkHello(h *wire.Hello, node directory.Node) error {
	switch self := p.link.opts.Self; {
	case h.Node != p.node:
		return fmt.Errorf("node %d answered where node %d was expected", h.Node, p.node)
	case h.To != self:
		return fmt.Errorf("node %d means node %d, but this is node %d", h.Node, h.To, self)
	case node.Instance != [16]byte{} && h.Instance != node.Instance:
		return fmt.Errorf("node %d is instance %x, but the directory knows %x", h.Node, h.Instance, node.Instance)
	}
	return nil
}

// countInvalid counts a frame that Send refused.
func (p *peer) countInvalid() {
	p.mu.Lock()
	p.base.Drops[fabric.DropInvalid]++
	p.mu.Unlock()
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
	"github.com/ernic-dev/ernic/fabric/loopback"
)

type peerMap map[uint32]*peer

// Link is the link of one node to all others, and to itself.
type Link struct {
	opts   Options
	loop   *loopback.Link
	born   time.Time
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	pulse  chan struct{} // capacity 1: a link came up
	health *health.Server

	// peers is replaced as a whole; readers take no lock.
	peers   atomic.Pointer[peerMap]
	noRoute atomic.Uint64
	refused atomic.Uint64
	pending atomic.Int64 // accepted connections without a hello

	mu     sync.Mutex // guards closed and writers of peers
	closed bool
}

var _ fabric.Link = (*Link)(nil)

// New starts the link: it listens, and dials when there is something to send.
func New(o Options) (*Link, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	loop, err := loopback.New(loopback.Options{Self: o.Self, Receiver: o.Receiver, Limits: o.Limits})
	if err != nil {
		return nil, err
	}
	l := &Link{opts: o, loop: loop, born: time.Now(), pulse: make(chan struct{}, 1), health: health.NewServer()}
	l.peers.Store(&peerMap{})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.spawn(l.beat)
	l.spawn(l.watch)
	if o.Listener != nil {
		l.spawn(l.accept)
	}
	return l, nil
}

// spawn starts a goroutine that Close waits for, false if the link is closed.
func (l *Link) spawn(fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.tasks.Go(fn)
	return true
}

// now is the time since the link was made, in nanoseconds.
func (l *Link) now() uint64 { return uint64(time.Since(l.born)) }

// newEpoch makes a number that tells one link from its predecessors.
func newEpoch() uint64 { return rand.Uint64() }

// Send sends a frame to the node f.Dst.
func (l *Link) Send(f *fabric.Frame) fabric.Verdict {
	if f.Dst == l.opts.Self {
		return l.loop.Send(f)
	}
	p := (*l.peers.Load())[f.Dst]
	if p == nil {
		if p = l.peer(f.Dst); p == nil {
			l.noRoute.Add(1)
			f.Drop()
			return fabric.NoRoute
		}
	}
	if f.Check() != nil {
		p.countInvalid()
		f.Drop()
		return fabric.Dropped
	}
	v := p.send(f)
	if v == fabric.Dropped {
		f.Drop()
	}
	return v
}

// peer returns the peer, made if the directory knows the node, nil otherwise.
func (l *Link) peer(id uint32) *peer {
	if p := (*l.peers.Load())[id]; p != nil {
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := (*l.peers.Load())[id]; p != nil {
		return p
	}
	node, ok := l.opts.Directory.Node(id)
	if !ok || l.closed || id == l.opts.Self {
		return nil
	}
	p := newPeer(l, node)
	next := maps.Clone(*l.peers.Load())
	next[id] = p
	l.peers.Store(&next)
	return p
}

// Connect makes the link to a node now, without waiting for a frame.
func (l *Link) Connect(node uint32) error {
	p := l.peer(node)
	if p == nil {
		return fmt.Errorf("mesh: node %d is not in the directory", node)
	}
	p.insisted.Store(true)
	p.demand()
	return nil
}

// Moved says that this node has another address now. Connections that were made
// from the old one may be dead without a word: all are ended, and those that are
// wanted are made again.
func (l *Link) Moved() {
	for _, p := range *l.peers.Load() {
		p.sever(errors.New("this node has moved"))
	}
}

// watch is the goroutine that follows the directory.
func (l *Link) watch() {
	w := l.opts.Directory.Watch()
	defer w.Close()
	for {
		for _, p := range *l.peers.Load() {
			node, ok := l.opts.Directory.Node(p.node)
			if !ok {
				l.removePeer(p)
				continue
			}
			p.update(node)
		}
		select {
		case <-w.Changed():
		case <-l.ctx.Done():
			return
		}
	}
}

func (l *Link) removePeer(p *peer) {
	l.mu.Lock()
	if next := maps.Clone(*l.peers.Load()); next[p.node] == p {
		delete(next, p.node)
		l.peers.Store(&next)
	}
	l.mu.Unlock()
	p.remove(fabric.DropPeerGone, errors.New("the node left the directory"))
}

// update takes what the directory says now.
func (p *peer) update(node directory.Node) {
	p.mu.Lock()
	changed := p.seen != node
	was := p.seen.Address
	p.seen = node
	cancel := p.cancelAttempt
	p.mu.Unlock()
	if changed && cancel != nil {
		cancel(errChanged)
	}
	if changed && node.Instance != [16]byte{} {
		p.expel(node.Instance)
	}
	if was != node.Address {
		// What still leads to where it was may be dead without a word.
		p.sever(fmt.Errorf("node %d has moved from %s to %s", p.node, was, node.Address))
	}
	if changed {
		signal(p.nudge)
	}
}

// Stats returns the counters of the links to all peers, the own node first.
func (l *Link) Stats() []fabric.PeerStats {
	peers := *l.peers.Load()
	s := make([]fabric.PeerStats, 0, len(peers)+1)
	s = append(s, l.loop.Stats())
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		s = append(s, peers[id].stats())
	}
	return s
}

// NoRoute is the number of frames for nodes that are not in the directory.
func (l *Link) NoRoute() uint64 { return l.noRoute.Load() }

// RefusedConnections is the number of accepted connections turned away.
func (l *Link) RefusedConnections() uint64 { return l.refused.Load() }

// Close ends all links. What is queued for peers that are up is sent first, for
// at most Timing.Linger.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.tasks.Wait()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.health.Shutdown()
	if l.opts.Listener != nil {
		_ = l.opts.Listener.Close()
	}
	l.linger()
	l.cancel()
	for _, p := range *l.peers.Load() {
		p.remove(fabric.DropClosed, errGoingDown)
	}
	l.tasks.Wait()
	return l.loop.Close()
}

// linger says bye on every connection and waits until the peers have closed
// them.
func (l *Link) linger() {
	var open []*conn
	for _, p := range *l.peers.Load() {
		for _, ln := range *p.lanes.Load() {
			if c := ln.current(); c != nil {
				c.request(&c.bye, 0)
				open = append(open, c)
			}
		}
	}
	t := time.NewTimer(l.opts.Timing.Linger)
	defer t.Stop()
	for _, c := range open {
		select {
		case <-c.ended:
		case <-t.C:
			return
		}
	}
}

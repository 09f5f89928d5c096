// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/fabric/gossip"
	"github.com/ernic-dev/ernic/worker/session"
)

// Gossip says how the worker takes part in the gossip of the mesh.
type Gossip struct {
	Listen string // host:port, host an address; "": the worker takes no part
	Key    []byte // encrypts; nil: in the clear
	Fast   bool   // for networks of microseconds
}

const (
	// joinPause is how long to wait before joining the manager's gossip is tried
	// again.
	joinPause = 2 * time.Second
	// farewell is how long a worker that ends may take to tell the others.
	farewell = 300 * time.Millisecond
)

// gossiper tells the other workers about this one, and the session what they
// say.
type gossiper struct {
	worker  *Worker
	session atomic.Pointer[session.Session] // nil until there is one
	pool    *gossip.Pool
	join    chan string // capacity 1: where the manager can be joined
	once    sync.Once
}

func newGossiper(w *Worker, instance [16]byte) (*gossiper, error) {
	g := &gossiper{worker: w, join: make(chan string, 1)}
	c := &w.config
	var err error
	g.pool, err = gossip.Start(gossip.Config{
		Listen: c.Gossip.Listen, Key: c.Gossip.Key, Instance: instance, Fast: c.Gossip.Fast, Changed: g.changed, Log: c.Log,
	})
	return g, err
}

// changed hands on what the others say. Nothing is said before the worker is a
// member, and by then there is a session.
func (g *gossiper) changed() {
	if s := g.session.Load(); s != nil {
		s.Heard(g.pool.Records(), g.pool.Gone())
	}
}

// invited notes where the manager can be joined. It does not wait.
func (g *gossiper) invited(address string) {
	select {
	case <-g.join:
	default:
	}
	g.join <- address
}

// run takes part until ctx ends.
func (g *gossiper) run(ctx context.Context) error {
	again := time.NewTimer(0)
	<-again.C
	defer again.Stop()
	var manager string
	s := g.session.Load()
	for {
		select {
		case <-ctx.Done():
			g.close()
			return nil
		case <-s.RecordChanged():
			if r := s.Record(); r != nil {
				g.pool.Say(r)
			}
			continue
		case address := <-g.join:
			manager = address
			g.follow(s.Addr())
		case <-again.C:
		}
		if err := g.pool.Join(manager); err != nil {
			g.worker.config.Log.Debug().Err(err).Msg("the manager's gossip cannot be joined yet")
			again.Reset(joinPause)
		}
	}
}

// follow moves to the address at which peers reach the worker, if that is found
// out and gossip listens on all addresses as well.
func (g *gossiper) follow(address string) {
	c := &g.worker.config
	if !g.worker.mesh.roams || !everywhere(c.Gossip.Listen) {
		return
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return
	}
	if here, _, err := net.SplitHostPort(g.pool.Addr()); err != nil || here == host {
		return
	}
	if err := g.pool.Move(host); err != nil {
		c.Log.Warn().Err(err).Str("address", host).Msg("gossip did not move")
		return
	}
	c.Log.Info().Str("address", g.pool.Addr()).Msg("gossip is at another address now")
}

// close tells the others that the worker ends.
func (g *gossiper) close() {
	g.once.Do(func() {
		// The pool ends in any case; what it says of that helps nobody any more.
		if err := g.pool.Leave(farewell); err != nil {
			g.worker.config.Log.Debug().Err(err).Msg("left the gossip without a farewell")
		}
	})
}

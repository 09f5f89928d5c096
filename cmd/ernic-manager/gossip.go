// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/fabric/gossip"
	"github.com/ernic-dev/ernic/manager"
)

// witness is the manager's place in the gossip of the mesh, nil if it takes no part.
type witness struct {
	pool    *gossip.Pool
	manager atomic.Pointer[observer] // nil until there is one
}

// observer is a manager that wants to know which processes the gossip sees.
type observer interface {
	Witness(alive map[[16]byte]struct{})
}

// joinPause is the time between two looks at the other managers.
const joinPause = 5 * time.Second

// startWitness joins the manager to the gossip and notes in its configuration where workers can.
func startWitness(f *flags, cfg *manager.Config) (*witness, error) {
	address, key, err := f.gossip.Setting(f.listen, f.insecure, cfg.Log)
	if err != nil || address == "" {
		return nil, err
	}
	w := &witness{}
	var instance [16]byte
	// Read never fails; see its documentation.
	rand.Read(instance[:])
	w.pool, err = gossip.Start(gossip.Config{
		Listen: address, Key: key, Instance: instance, Manager: true, Changed: w.changed, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	cfg.Ask, cfg.GossipAddress = w.pool.Ask, w.pool.Addr()
	if host, _, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			// Workers know better at which of its addresses they reach the manager.
			_, port, err := net.SplitHostPort(cfg.GossipAddress)
			if err != nil {
				return nil, err
			}
			cfg.GossipAddress = ":" + port
		}
	}
	return w, nil
}

// watch tells a manager what the gossip sees.
func (w *witness) watch(m observer) {
	if w != nil {
		w.manager.Store(&m)
		w.changed()
	}
}

func (w *witness) changed() {
	if m := w.manager.Load(); m != nil {
		(*m).Witness(w.pool.Alive())
	}
}

// join joins the gossip of the other managers, whichever lead or stand by, so that one that comes to lead knows already who
// is there. It returns what ends it.
func (w *witness) join(election manager.Election) func() {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		joined := map[string]bool{}
		for {
			now := map[string]bool{}
			for _, c := range election.Candidates() {
				if !c.Self && c.Gossip != "" {
					now[c.Gossip] = joined[c.Gossip] || w.pool.Join(c.Gossip) == nil
				}
			}
			joined = now
			select {
			case <-time.After(joinPause):
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

func (w *witness) close() error {
	if w == nil {
		return nil
	}
	return w.pool.Close()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"net"
	"sync/atomic"

	"github.com/ernic-dev/ernic/fabric/gossip"
	"github.com/ernic-dev/ernic/manager"
)

// witness is the manager's place in the gossip of the mesh, nil if it takes no part.
type witness struct {
	pool    *gossip.Pool
	manager atomic.Pointer[manager.Server] // nil until there is one
}

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
func (w *witness) watch(m *manager.Server) {
	if w != nil {
		w.manager.Store(m)
		w.changed()
	}
}

func (w *witness) changed() {
	if m := w.manager.Load(); m != nil {
		m.Witness(w.pool.Alive())
	}
}

func (w *witness) close() error {
	if w == nil {
		return nil
	}
	return w.pool.Close()
}

// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"maps"
	"slices"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// hearsay is what workers say of themselves, and who is no member of the mesh's gossip any more.
type hearsay struct {
	records []*ernicv1.GossipRecord
	gone    map[[16]byte]struct{}
}

// Heard takes in what the gossip of the mesh knows. It is used while the manager is away.
func (s *Session) Heard(records []*ernicv1.GossipRecord, gone map[[16]byte]struct{}) {
	s.publishing.Lock()
	s.heard = hearsay{records, gone}
	s.publishing.Unlock()
	s.publish()
}

// publish puts the view in place that is best now: the manager's, and while that is away the same with what has been
// heard since.
func (s *Session) publish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	away := s.state != ernicv1.SessionState_SESSION_STATE_REGISTERED && s.node != anyNode
	self := s.node
	s.mu.Unlock()
	now := s.base.Load()
	if away && now != empty && len(s.heard.records)+len(s.heard.gone) > 0 {
		now = now.overlay(self, s.claims.all(), s.heard)
	}
	old := s.mesh.Swap(now)
	if h := s.cfg.Handlers.Mesh; h != nil && old != now {
		h(old, now)
	}
}

// Record returns what the worker says of itself in the gossip of the mesh, and nil before its first registration.
func (s *Session) Record() *ernicv1.GossipRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == anyNode {
		return nil
	}
	r := &ernicv1.GossipRecord{
		Incarnation: s.cfg.Incarnation, NodeId: s.node, Name: s.cfg.Name, Address: s.addr, Identity: s.identity,
	}
	for _, g := range s.claims.all() {
		r.Gids = append(r.Gids, g[:])
	}
	return r
}

// RecordChanged returns a channel on which a value comes when Record may be another.
func (s *Session) RecordChanged() <-chan struct{} { return s.recordChanged }

func (s *Session) noteRecord() {
	select {
	case s.recordChanged <- struct{}{}:
	default:
	}
}

// all returns the addresses that the worker claims, in order.
func (c *claims) all() []gid.GID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(c.own), func(a, b gid.GID) int { return bytes.Compare(a[:], b[:]) })
}

// overlay returns the mesh with what has been heard since the manager went. It knows best who has which node id and which
// certificate; of those it knows, their own word counts for where they are and what they claim. A node that is no member
// any more owns nothing. As ever, an address that two claim belongs to none.
func (m *Mesh) overlay(self uint32, own []gid.GID, heard hearsay) *Mesh {
	next := &Mesh{History: m.History, Revision: m.Revision, nodes: maps.Clone(m.nodes)}
	// spoken are the nodes whose own word counts, absent those that own nothing.
	spoken, absent := map[uint32]bool{self: true}, make(map[uint32]bool)
	claimed := make(map[gid.GID][]uint32)
	for _, g := range own {
		claimed[g] = append(claimed[g], self)
	}
	for _, r := range heard.records {
		id := r.GetNodeId()
		known := m.nodes[id]
		instance := [16]byte(r.GetInstance())
		if id == self || known != nil && known.Instance != instance && !has(heard.gone, known.Instance) {
			continue
		}
		n := &Node{ID: id, Name: r.GetName(), Instance: instance, Incarnation: r.GetIncarnation(), Identity: r.GetIdentity()}
		if known != nil && known.Instance == instance {
			*n = *known
		}
		n.Addr, n.State = r.GetAddress(), ernicv1.NodeState_NODE_STATE_ALIVE
		if known == nil || *known != *n {
			next.nodes[id] = n
		}
		spoken[id] = true
		for _, raw := range r.GetGids() {
			g := gid.GID(raw)
			claimed[g] = append(claimed[g], id)
		}
	}
	for id, n := range m.nodes {
		if id != self && !spoken[id] && has(heard.gone, n.Instance) {
			absent[id] = true
			dead := *n
			dead.State = ernicv1.NodeState_NODE_STATE_DEAD
			next.nodes[id] = &dead
		}
	}
	b := m.routes.edit()
	m.routes.each(func(g [16]byte, id uint32) bool {
		switch {
		case absent[id] || spoken[id] && !slices.Contains(claimed[g], id):
			b.remove(g)
		case !spoken[id] && len(claimed[g]) > 0:
			claimed[g] = append(claimed[g], id)
		}
		return true
	})
	for g, ids := range claimed {
		if len(ids) > 1 {
			b.remove(g)
		} else {
			b.set(g, ids[0])
		}
	}
	next.routes = b.done()
	return next
}

func has(set map[[16]byte]struct{}, instance [16]byte) bool {
	_, ok := set[instance]
	return ok
}

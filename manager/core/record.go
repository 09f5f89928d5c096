// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// NodeRecord is what survives of a node. State is Alive, Dead or Evicted.
type NodeRecord struct {
	ID          NodeID
	Instance    Instance
	Incarnation uint64
	Name        string
	Addr        string
	Version     string
	Protocol    uint32
	Identity    string // holder of the certificate that it registered with; empty: none
	State       NodeState
	Partitioned bool      // it has no session, and the gossip of the mesh sees it; State is Alive
	Reason      string    // why it is not alive
	Since       time.Time // in this state
	Joined      time.Time
	Until       time.Time // end of the quarantine of an evicted node
}

// ClaimRecord is what survives of a claim.
type ClaimRecord struct {
	Node        NodeID
	GID         GID
	Source      Source
	Incarnation uint64 // of the node when it claimed
	Made        time.Time
	State       ClaimState
	Since       time.Time // in this state
}

// State is all that survives a restart. The view at Revision follows from it, so that a worker which holds that revision
// needs nothing sent.
type State struct {
	History  History
	Revision uint64
	Nodes    []NodeRecord
	Claims   []ClaimRecord
}

// Changes is what has to be stored, all or nothing, before the effects of the same steps are carried out.
type Changes struct {
	History  History
	Revision uint64
	Nodes    []NodeRecord
	Claims   []ClaimRecord
	// Keys of records that are gone.
	GoneNodes  []NodeID
	GoneClaims []ClaimKey
}

// dirtySet collects the keys of records that differ from the stored ones.
type dirtySet struct {
	meta   bool
	nodes  map[NodeID]struct{}
	claims map[ClaimKey]struct{}
}

func (d *dirtySet) init() {
	d.meta = false
	d.nodes = make(map[NodeID]struct{})
	d.claims = make(map[ClaimKey]struct{})
}

func (c *Core) touchNode(id NodeID)         { c.dirty.nodes[id] = struct{}{} }
func (c *Core) touchClaim(id NodeID, g GID) { c.dirty.claims[ClaimKey{g, id}] = struct{}{} }

// Changes returns what has to be stored since the last call, and false if that is nothing. The caller now owns it: if
// storing fails, Restore must be told to give the changes back.
func (c *Core) Changes() (Changes, bool) {
	d := &c.dirty
	if !d.meta && len(d.nodes) == 0 && len(d.claims) == 0 {
		return Changes{}, false
	}
	ch := Changes{History: c.history, Revision: c.revision}
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		if n := c.nodes[id]; n != nil {
			ch.Nodes = append(ch.Nodes, n.NodeRecord)
		} else {
			ch.GoneNodes = append(ch.GoneNodes, id)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(d.claims), ClaimKey.Compare) {
		if n := c.nodes[key.Node]; n != nil && n.claims[key.GID] != nil {
			ch.Claims = append(ch.Claims, n.claims[key.GID].ClaimRecord)
		} else {
			ch.GoneClaims = append(ch.GoneClaims, key)
		}
	}
	d.init()
	return ch, true
}

// StoreFailed takes back changes that could not be stored: the next call of Changes returns them again, as they are then.
// The state goes on under the given history, which has to be a new one the first time: the stored one will be led on from
// an older revision if the manager ends now.
func (c *Core) StoreFailed(ch Changes, history History) {
	c.dirty.meta = true
	for i := range ch.Nodes {
		c.touchNode(ch.Nodes[i].ID)
	}
	for _, id := range ch.GoneNodes {
		c.touchNode(id)
	}
	for i := range ch.Claims {
		c.touchClaim(ch.Claims[i].Node, ch.Claims[i].GID)
	}
	for _, key := range ch.GoneClaims {
		c.touchClaim(key.Node, key.GID)
	}
	if c.history != history {
		c.history = history
		c.log.base, c.log.changes = c.revision, nil
	}
}

// Export returns all that is to survive.
func (c *Core) Export() State {
	s := State{History: c.history, Revision: c.revision}
	for _, id := range c.order {
		s.Nodes = append(s.Nodes, c.nodes[id].NodeRecord)
	}
	s.Claims = c.Claims(ClaimKey{}, 0)
	return s
}

// restore takes in what survived. Claims of nodes that are not there are left out.
func (c *Core) restore(state State) {
	for _, rec := range state.Nodes {
		n := &node{NodeRecord: rec, claims: make(map[GID]*claim)}
		if rec.State.Counts() {
			n.suspect, n.suspectSince, n.suspectReason = true, c.now, "the manager restarted"
			n.restored = true
			if rec.Partitioned {
				n.suspect, n.suspectReason = false, "the manager restarted, and did not hear of it yet"
			}
			n.returnBy = c.now.Add(c.cfg.silence())
		}
		if rec.State != Evicted {
			c.byProcess[rec.process()] = rec.ID
		}
		c.insert(n)
	}
	claims := slices.Clone(state.Claims)
	slices.SortFunc(claims, func(a, b ClaimRecord) int {
		return cmp.Or(a.Made.Compare(b.Made), a.key().Compare(b.key()))
	})
	for _, rec := range claims {
		n := c.nodes[rec.Node]
		if n == nil || n.State == Evicted {
			continue
		}
		cl := &claim{ClaimRecord: rec, node: n}
		n.claims[rec.GID] = cl
		c.claims[rec.GID] = append(c.claims[rec.GID], cl)
	}
	for g, entries := range c.claims {
		counting := counting(entries)
		for _, cl := range entries {
			cl.State = cl.judge(len(counting))
		}
		switch len(counting) {
		case 0:
		case 1:
			c.routes[g] = counting[0]
		default:
			c.conflicts++
		}
	}
}

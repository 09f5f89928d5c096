// SPDX-License-Identifier: Apache-2.0

package core

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// updateClaims enters and releases addresses of a node.
func (c *Core) updateClaims(n *node, ev *ClaimUpdate) {
	for _, g := range ev.Release {
		if n.claims[g] != nil {
			c.note(NoteReleased, n.ID, g, fmt.Sprintf("node %d releases %s", n.ID, g))
			c.dropClaim(n, g)
		}
	}
	var rejected []Rejected
	for _, cl := range ev.Claims {
		if err := c.addClaim(n, cl); err != nil {
			rejected = append(rejected, Rejected{cl.GID, err.Error()})
			c.note(NoteRejected, n.ID, cl.GID, fmt.Sprintf("the claim of node %d to %s is rejected: %v", n.ID, cl.GID, err))
		}
	}
	c.emit(ClaimAck{Session: ev.Session, Sequence: ev.Sequence, Rejected: rejected})
}

// addClaim enters one address of a node. Entering it again changes nothing.
func (c *Core) addClaim(n *node, cl Claim) error {
	if n.claims[cl.GID] != nil {
		return nil
	}
	if err := cl.GID.Check(); err != nil {
		return err
	}
	if !cl.Source.Valid() {
		return fmt.Errorf("%s is no source of claims", cl.Source)
	}
	if len(n.claims) >= c.cfg.MaxClaims {
		return fmt.Errorf("the node holds %d claims, which is the limit", len(n.claims))
	}
	// Whoever holds the address has to be there to dispute it: without a session it cannot be; with one it is asked.
	for _, rival := range slices.Clone(c.claims[cl.GID]) {
		switch m := rival.node; {
		case !m.State.Counts():
		case m.session == 0:
			c.doubt(m, fmt.Sprintf("it has no session, and node %d claims its address %s", n.ID, cl.GID))
		default:
			c.probe(m)
		}
	}
	entry := &claim{node: n, ClaimRecord: ClaimRecord{
		Node: n.ID, GID: cl.GID, Source: cl.Source, Incarnation: n.Incarnation, Made: c.now, Since: c.now,
	}}
	n.claims[cl.GID] = entry
	c.claims[cl.GID] = append(c.claims[cl.GID], entry)
	c.note(NoteClaimed, n.ID, cl.GID, fmt.Sprintf("node %d claims %s (%s)", n.ID, cl.GID, cl.Source))
	c.touchClaim(n.ID, cl.GID)
	c.resolve(cl.GID)
	return nil
}

// dropClaim ends a claim that n has.
func (c *Core) dropClaim(n *node, g GID) {
	was := conflicting(c.claims[g])
	delete(n.claims, g)
	rest := slices.DeleteFunc(c.claims[g], func(cl *claim) bool { return cl.node == n })
	if len(rest) == 0 {
		delete(c.claims, g)
	} else {
		c.claims[g] = rest
	}
	c.touchClaim(n.ID, g)
	c.settle(g, was)
}

func conflicting(claims []*claim) int {
	count := 0
	for _, cl := range claims {
		if cl.State == Conflict {
			count++
		}
	}
	return count
}

// counting returns the nodes whose claims count.
func counting(claims []*claim) []NodeID {
	ids := make([]NodeID, 0, 2)
	for _, cl := range claims {
		if cl.node.State.Counts() {
			ids = append(ids, cl.node.ID)
		}
	}
	return ids
}

// judge returns the state of a claim to a GID of which so many claims count.
func (cl *claim) judge(counting int) ClaimState {
	switch {
	case !cl.node.State.Counts():
		return Withdrawn
	case counting == 1:
		return Active
	}
	return Conflict
}

// resolve finds out anew which node owns g, after the state of a claimant changed.
func (c *Core) resolve(g GID) { c.settle(g, conflicting(c.claims[g])) }

// settle gives every claim to g its state and g its owner. The owner is the node of the one claim that counts. was is
// how many claims were in conflict.
func (c *Core) settle(g GID, was int) {
	entries := c.claims[g]
	counting := counting(entries)
	for _, cl := range entries {
		if state := cl.judge(len(counting)); cl.State != state {
			cl.State, cl.Since = state, c.now
			c.touchClaim(cl.Node, g)
		}
	}
	if len(counting) == 1 {
		c.setRoute(g, counting[0])
	} else {
		c.setRoute(g, Manager)
	}
	c.noteConflict(g, was, counting)
}

// noteConflict reports and counts a conflict that began, changed or ended.
func (c *Core) noteConflict(g GID, was int, counting []NodeID) {
	is := len(counting)
	if is < 2 {
		is = 0
	}
	switch {
	case was == is:
		return
	case is == 0:
		c.conflicts--
		text := fmt.Sprintf("%s resolves to no node, all its claims are gone", g)
		if len(counting) == 1 {
			text = fmt.Sprintf("%s resolves to node %d again", g, counting[0])
		}
		c.note(NoteConflictOver, c.routes[g], g, text)
		return
	case was == 0:
		c.conflicts++
	}
	names := make([]string, len(counting))
	slices.Sort(counting)
	for i, id := range counting {
		names[i] = fmt.Sprint(uint32(id))
	}
	c.note(NoteConflict, counting[0], g, fmt.Sprintf("%s is claimed by nodes %s and resolves to none of them", g,
		strings.Join(names[:is-1], ", ")+" and "+names[is-1]))
}

// setRoute makes g resolve to id, or to no node if id is the manager's.
func (c *Core) setRoute(g GID, id NodeID) {
	old, had := c.routes[g]
	switch {
	case id == Manager && had:
		delete(c.routes, g)
		c.note(NoteOwner, old, g, fmt.Sprintf("%s no longer belongs to node %d", g, old))
	case id == Manager, had && old == id:
		return
	default:
		c.routes[g] = id
		text := fmt.Sprintf("%s belongs to node %d", g, id)
		if had {
			text += fmt.Sprintf(", no longer to node %d", old)
		}
		c.note(NoteOwner, id, g, text)
	}
	c.viewRoute(g)
}

// Resolve returns the node that owns g at the current revision.
func (c *Core) Resolve(g GID) (NodeID, bool) {
	id, ok := c.routes[g]
	return id, ok
}

// sortedClaims returns the claims of n by GID.
func (n *node) sortedClaims() []Claim {
	claims := make([]Claim, 0, len(n.claims))
	for g, cl := range n.claims {
		claims = append(claims, Claim{g, cl.Source})
	}
	slices.SortFunc(claims, func(a, b Claim) int { return bytes.Compare(a.GID[:], b.GID[:]) })
	return claims
}

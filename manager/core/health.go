// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"time"
)

// tick judges every node by the time since it was heard.
func (c *Core) tick() {
	gap := c.now.Sub(c.lastTick)
	c.lastTick = c.now
	if gap > 2*c.cfg.TickPeriod {
		c.forgive(gap - c.cfg.TickPeriod)
	}
	for _, id := range slices.Clone(c.order) {
		n := c.nodes[id]
		switch {
		case n.State == Evicted:
			if !c.now.Before(n.Until) {
				c.note(NoteForgotten, id, GID{}, fmt.Sprintf("the quarantine of node id %d is over", id))
				c.remove(n)
			}
		case n.State == Dead:
			if c.now.Sub(n.Since) >= c.cfg.ClaimTTL {
				c.note(NoteForgotten, id, GID{}, fmt.Sprintf("node %d has been dead for %s: its id is free and its %s",
					id, c.cfg.ClaimTTL, plural(len(n.claims), "claim ends", "claims end")))
				c.discard(n, ReasonSilent, "the node is forgotten")
				c.remove(n)
			}
		case n.Partitioned:
			// The gossip has to see it again after a restart of the manager.
			if _, seen := c.seen[n.Instance]; !seen && !c.now.Before(n.returnBy) {
				c.dead(n, "it has no session, and nobody sees it")
			}
		case n.session == 0:
			if !c.now.Before(n.returnBy) {
				c.giveUp(n, fmt.Sprintf("it did not come back for %s", c.now.Sub(n.suspectSince).Round(100*time.Millisecond)))
			}
		default:
			c.judgeSession(n)
		}
	}
}

// judgeSession closes a session that carries nothing.
func (c *Core) judgeSession(n *node) {
	quiet := c.now.Sub(n.lastHeard)
	var text string
	switch {
	case n.probe != 0 && !c.now.Before(n.probeBy):
		text = fmt.Sprintf("a probe had no answer within %s", c.cfg.HealthInterval)
	case quiet >= c.cfg.silence():
		text = fmt.Sprintf("nothing came for %s", c.cfg.silence())
	case quiet >= 2*c.cfg.HealthInterval && !n.suspect:
		c.suspect(n, fmt.Sprintf("nothing came for %s", 2*c.cfg.HealthInterval))
		return
	default:
		return
	}
	if n.waiting != nil {
		// The worker itself is back on another session, which this one has to make room for.
		c.end(n, ReasonReplaced, text)
		return
	}
	c.giveUp(n, text)
}

// forgive moves all deadlines by the time that the manager itself stood still: what workers sent meanwhile has not been
// read yet, so their silence is not theirs.
func (c *Core) forgive(d time.Duration) {
	c.note(NoteStalled, Manager, GID{}, fmt.Sprintf("the manager stood still for %s: nobody is judged for it", d))
	for _, n := range c.nodes {
		if n.session == 0 {
			n.returnBy = n.returnBy.Add(d)
			continue
		}
		n.probeBy = n.probeBy.Add(d)
		if n.lastHeard = n.lastHeard.Add(d); n.lastHeard.After(c.now) {
			n.lastHeard = c.now
		}
	}
}

// heard notes a sign of life on the session of n.
func (c *Core) heard(n *node) {
	n.lastHeard = c.now
	if n.probe != 0 {
		n.probe = 0
		if w := n.waiting; w != nil {
			delete(c.sessions, w.Session)
			n.waiting = nil
			c.refuse(w, ReasonSessionAlive, fmt.Sprintf("the session that node %d has still answers", n.ID))
		}
	}
	if n.suspect {
		n.suspect = false
		c.note(NoteRecovered, n.ID, GID{}, fmt.Sprintf("node %d is heard again", n.ID))
	}
}

// probe asks n for a sign of life within one interval.
func (c *Core) probe(n *node) {
	if n.probe != 0 {
		return
	}
	c.probes++
	n.probe, n.probeBy = c.probes, c.now.Add(c.cfg.HealthInterval)
	c.emit(Probe{n.session, n.probe})
}

// suspect marks a node that may come back.
func (c *Core) suspect(n *node, reason string) {
	n.suspect, n.suspectSince, n.suspectReason = true, c.now, reason
	c.note(NoteSuspect, n.ID, GID{}, fmt.Sprintf("node %d is suspect: %s", n.ID, reason))
}

// giveUp takes the session of n for dead. If the gossip of the mesh still sees the node, it is only cut off from the
// manager and keeps its claims.
func (c *Core) giveUp(n *node, reason string) {
	if _, seen := c.seen[n.Instance]; !seen {
		c.dead(n, reason)
		return
	}
	c.closeSession(n, reason)
	if n.Partitioned {
		return
	}
	n.suspect, n.restored, n.reported = false, false, false
	n.Partitioned, n.suspectSince = true, c.now
	n.suspectReason = reason + ", but others see it"
	c.touchNode(n.ID)
	c.viewNode(n.ID)
	c.note(NotePartitioned, n.ID, GID{}, fmt.Sprintf("node %d is partitioned: %s", n.ID, n.suspectReason))
}

// doubt is for when somebody else may have come in the place of n, which has no session. What the gossip of the mesh saw
// of it last may be old, so that it is asked anew.
func (c *Core) doubt(n *node, reason string) {
	c.giveUp(n, reason)
	if n.Partitioned {
		c.emit(Ask{n.Instance})
	}
}

// witness takes in what the gossip of the mesh sees.
func (c *Core) witness(ev *Seen) {
	if ev.Alive {
		c.seen[ev.Instance] = struct{}{}
	} else {
		delete(c.seen, ev.Instance)
	}
	for _, id := range slices.Clone(c.order) {
		n := c.nodes[id]
		switch {
		case n.Instance != ev.Instance:
		case n.Partitioned && !ev.Alive:
			c.dead(n, "it has no session, and nobody sees it any more")
		case n.State == Dead && ev.Alive:
			c.setState(n, Alive, "")
			c.giveUp(n, "it has no session")
		}
	}
}

// reunite ends the partition of n, whose worker has a session again.
func (c *Core) reunite(n *node) {
	if n.Partitioned {
		n.Partitioned = false
		c.viewNode(n.ID)
	}
}

// closeSession ends the session of n, if it has one.
func (c *Core) closeSession(n *node, reason string) {
	if n.session != 0 {
		c.emit(End{Session: n.session, Node: n.ID, Reason: ReasonSilent, Text: reason})
		delete(c.sessions, n.session)
		n.session, n.probe = 0, 0
	}
}

// dead closes the session of n and withdraws its claims.
func (c *Core) dead(n *node, reason string) {
	c.closeSession(n, reason)
	n.Partitioned = false
	// What it said of itself is no longer true.
	n.suspect, n.restored, n.reported = false, false, false
	text := fmt.Sprintf("node %d is dead: %s", n.ID, reason)
	if len(n.claims) > 0 {
		text += fmt.Sprintf("; its %s withdrawn", plural(len(n.claims), "claim is", "claims are"))
	}
	c.note(NoteDead, n.ID, GID{}, text)
	c.setState(n, Dead, reason)
}

// setState moves n to another stored state; its claims begin or cease to count with it.
func (c *Core) setState(n *node, state NodeState, reason string) {
	counted := n.State.Counts()
	n.State, n.Reason, n.Since = state, reason, c.now
	c.touchNode(n.ID)
	c.viewNode(n.ID)
	if counted != state.Counts() {
		for _, cl := range n.sortedClaims() {
			c.resolve(cl.GID)
		}
	}
}

func (c *Core) note(kind NoteKind, id NodeID, g GID, text string) {
	c.emit(Note{Kind: kind, Node: id, GID: g, Text: text})
}

// plural returns n and the form of what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

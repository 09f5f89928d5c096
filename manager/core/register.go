// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"net"
	"slices"
	"time"
)

// register decides what a worker that opens a session becomes: a new node, the node it was, or nothing.
func (c *Core) register(r *Register) {
	if _, again := c.sessions[r.Session]; again {
		c.malformed(&Malformed{r.Session, "a second registration on one session"})
		return
	}
	if r.Protocol.Min == 0 || r.Protocol.Min > r.Protocol.Max {
		c.refuse(r, ReasonMalformed, fmt.Sprintf("protocol versions %s are no range", r.Protocol))
		return
	}
	if _, ok := c.cfg.Versions.Common(r.Protocol); !ok {
		c.refuse(r, ReasonProtocol, fmt.Sprintf("no common protocol version: the manager speaks %s, the worker %s",
			c.cfg.Versions, r.Protocol))
		return
	}
	n, reason, text := c.identify(r)
	switch {
	case reason != 0:
		c.refuse(r, reason, text)
	case n == nil:
		c.join(r)
	case n.session != 0:
		c.askOldSession(n, r)
	default:
		c.accept(n, r)
	}
}

// identify returns the node that r speaks for, nil if it is to be a new one, or why it may not speak for the node it names.
func (c *Core) identify(r *Register) (*node, Reason, string) {
	if r.Node == AnyNode {
		// The same process asking a second time never saw the answer to the first; it gets the same id.
		if id, ok := c.nodeOf(process{r.Instance, r.Identity}); ok {
			return c.nodes[id], 0, ""
		}
		return nil, 0, ""
	}
	if r.Node == Manager {
		return nil, ReasonMalformed, "node 0 is the manager"
	}
	if id, ok := c.nodeOf(process{r.Instance, r.Identity}); ok && id != r.Node {
		return nil, ReasonIDTaken, fmt.Sprintf("the worker asks for node %d but is node %d", r.Node, id)
	}
	n := c.nodes[r.Node]
	switch {
	case n == nil:
		return nil, 0, ""
	case n.State == Evicted:
		return nil, ReasonEvicted, fmt.Sprintf("node %d was evicted", n.ID)
	case n.Identity != "" && n.Identity != r.Identity:
		return nil, ReasonIDTaken, fmt.Sprintf("node %d belongs to %s, not to %s", n.ID, n.Identity, nobodyIfEmpty(r.Identity))
	case n.Instance == r.Instance, n.Addr != "" && n.Addr == r.Addr:
		return n, 0, ""
	}
	return nil, ReasonIDTaken, fmt.Sprintf("node %d is the worker %q at %q, not %q at %q", n.ID, n.Name, n.Addr, r.Name, r.Addr)
}

func nobodyIfEmpty(identity string) string {
	if identity == "" {
		return "somebody without a certificate"
	}
	return identity
}

func (c *Core) refuse(r *Register, reason Reason, text string) {
	c.note(NoteRefused, r.Node, GID{}, fmt.Sprintf("the registration of worker %q at %q is refused: %s", r.Name, r.Addr, text))
	c.emit(End{Session: r.Session, Node: r.Node, Reason: reason, Text: text})
}

// join makes a new node of the worker.
func (c *Core) join(r *Register) {
	id := r.Node
	if id == AnyNode {
		id = c.lowestFree
	}
	// Before the newcomer is let in, so that nothing it will claim is still held by the process it may have replaced.
	c.checkOthers(id, r, r.Node == AnyNode)
	n := &node{claims: make(map[GID]*claim)}
	n.ID, n.Joined = id, c.now
	c.insert(n)
	c.bind(n, r)
	c.setState(n, Alive, "")
	c.note(NoteJoined, n.ID, GID{}, fmt.Sprintf("worker %q at %q is node %d", n.Name, n.Addr, n.ID))
	c.welcome(n)
}

// accept binds the session of a worker that comes back to its node.
func (c *Core) accept(n *node, r *Register) {
	c.checkOthers(n.ID, r, false)
	wasDead := n.State == Dead
	c.bind(n, r)
	text := fmt.Sprintf("node %d is back", n.ID)
	if wasDead {
		c.setState(n, Alive, "")
		if len(n.claims) > 0 {
			text += fmt.Sprintf(", its %s again", plural(len(n.claims), "claim counts", "claims count"))
		}
	}
	c.note(NoteReturned, n.ID, GID{}, text)
	c.welcome(n)
}

// bind makes r the session and the identity of n.
func (c *Core) bind(n *node, r *Register) {
	c.forgetProcess(n)
	if n.Name != r.Name || n.Addr != r.Addr || n.Instance != r.Instance || n.Incarnation != r.Incarnation ||
		n.Identity != r.Identity {
		c.viewNode(n.ID)
	}
	n.Name, n.Addr, n.Instance, n.Incarnation, n.Version = r.Name, r.Addr, r.Instance, r.Incarnation, r.Version
	n.Identity = r.Identity
	n.Protocol, _ = c.cfg.Versions.Common(r.Protocol)
	c.byProcess[n.process()] = n.ID
	c.reunite(n)
	c.sessions[r.Session] = n.ID
	n.session, n.sessionSince, n.lastHeard = r.Session, c.now, c.now
	n.suspect, n.restored, n.reported, n.probe, n.waiting = false, false, false, 0, nil
	c.touchNode(n.ID)
}

func (c *Core) welcome(n *node) {
	c.emit(Welcome{Session: n.session, Node: n.ID, Protocol: n.Protocol, Identity: n.Identity, Claims: n.sortedClaims()})
}

// askOldSession lets a registration wait until the session that its node already has is proven dead, which is asked at
// once instead of after three intervals of silence.
func (c *Core) askOldSession(n *node, r *Register) {
	if w := n.waiting; w != nil {
		delete(c.sessions, w.Session)
		c.refuse(w, ReasonReplaced, fmt.Sprintf("a later registration for node %d came", n.ID))
	}
	waiting := *r
	n.waiting = &waiting
	c.sessions[r.Session] = n.ID
	c.probe(n)
}

// checkOthers probes every node whose session is broken, because a worker registered: it may be one of them, started
// anew, and what it claimed before must have stopped counting before it claims again.
//
// A session that has ended answers no probe. If the newcomer is a new node, its owner is dead now; if a known node came
// back, an outage of the network may have ended, and the others get one interval to come back too. Nodes restored from
// the store after a restart of the manager never had a chance to answer and keep their three intervals.
func (c *Core) checkOthers(self NodeID, r *Register, isNew bool) {
	for _, id := range slices.Clone(c.order) {
		n := c.nodes[id]
		if id == self || !n.State.Counts() {
			continue
		}
		sameAddr := n.Addr != "" && n.Addr == r.Addr
		switch {
		case n.session != 0:
			// Two processes cannot listen on one address.
			if sameAddr || c.now.Sub(n.lastHeard) > c.cfg.HealthInterval*3/2 {
				c.probe(n)
			}
		case sameAddr:
			c.dead(n, fmt.Sprintf("it has no session, and node %d registered from its address", self))
		case n.restored:
		case isNew && sameHost(n.Addr, r.Addr):
			c.dead(n, fmt.Sprintf("its session had ended when node %d registered", self))
		case isNew:
			c.doubt(n, fmt.Sprintf("its session had ended when node %d registered", self))
		default:
			if by := c.now.Add(c.cfg.HealthInterval); by.Before(n.returnBy) {
				n.returnBy = by
			}
		}
	}
}

// sameHost reports whether two addresses, host:port, are of one host.
func sameHost(a, b string) bool {
	hostA, _, errA := net.SplitHostPort(a)
	hostB, _, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && hostA == hostB
}

// speaker returns the node that a message came from, after checking that the message names no other. Identity is that of
// the session: a message in which another id stands ends it.
func (c *Core) speaker(s SessionID, named NodeID, what string) *node {
	n := c.bound(s)
	if n == nil {
		return nil
	}
	if named != n.ID {
		text := fmt.Sprintf("a %s of node %d names node %d as its sender", what, n.ID, named)
		c.note(NoteIdentity, n.ID, GID{}, text)
		c.end(n, ReasonIdentity, text)
		return nil
	}
	c.heard(n)
	return n
}

func (c *Core) malformed(ev *Malformed) {
	c.note(NoteRefused, c.sessions[ev.Session], GID{}, fmt.Sprintf("session %d sent a malformed message: %s", ev.Session, ev.Cause))
	if n := c.bound(ev.Session); n != nil {
		c.end(n, ReasonMalformed, ev.Cause)
		return
	}
	c.emit(End{Session: ev.Session, Reason: ReasonMalformed, Text: ev.Cause})
	c.sessionEnded(&SessionEnded{ev.Session, ev.Cause})
}

// end closes the session of n; the node may come back.
func (c *Core) end(n *node, reason Reason, text string) {
	s := n.session
	c.emit(End{Session: s, Node: n.ID, Reason: reason, Text: text})
	c.sessionEnded(&SessionEnded{s, text})
}

// sessionEnded takes a session off its node, in favour of a registration that waits for just that.
func (c *Core) sessionEnded(ev *SessionEnded) {
	id, ok := c.sessions[ev.Session]
	if !ok {
		return
	}
	delete(c.sessions, ev.Session)
	n := c.nodes[id]
	if n.session != ev.Session {
		n.waiting = nil
		return
	}
	n.session, n.probe = 0, 0
	n.returnBy = n.lastHeard.Add(c.cfg.silence())
	if w := n.waiting; w != nil {
		c.accept(n, w)
		return
	}
	c.suspect(n, "its session ended: "+ev.Cause)
}

// leave ends the membership of a node that asked for it.
func (c *Core) leave(n *node) {
	c.emit(End{Session: n.session, Node: n.ID, Text: "left"})
	c.note(NoteLeft, n.ID, GID{}, fmt.Sprintf("node %d left, with %s", n.ID, plural(len(n.claims), "claim", "claims")))
	c.discard(n, ReasonSessionAlive, "the node is leaving")
	c.remove(n)
}

// discard takes sessions and claims off a node that is about to go.
func (c *Core) discard(n *node, reason Reason, text string) {
	delete(c.sessions, n.session)
	n.session, n.probe = 0, 0
	if w := n.waiting; w != nil {
		delete(c.sessions, w.Session)
		n.waiting = nil
		c.refuse(w, reason, text)
	}
	for _, cl := range n.sortedClaims() {
		c.dropClaim(n, cl.GID)
	}
}

// NoSuchNode is the error of an operation on an id that no worker has.
type NoSuchNode struct{ ID NodeID }

func (e *NoSuchNode) Error() string { return fmt.Sprintf("there is no node %d", e.ID) }

// IsManager is the error of an operation that the manager itself cannot be subject to.
type IsManager struct{ Operation string }

func (e *IsManager) Error() string { return "node 0 is the manager: it cannot be " + e.Operation }

// NotConnected is the error of a request to a worker that has no session.
type NotConnected struct{ ID NodeID }

func (e *NotConnected) Error() string { return fmt.Sprintf("node %d has no session", e.ID) }

// connected returns a node that has a session; operation is what the manager cannot be.
func (c *Core) connected(id NodeID, operation string) (*node, error) {
	if id == Manager {
		return nil, &IsManager{operation}
	}
	n := c.nodes[id]
	switch {
	case n == nil || n.State == Evicted:
		return nil, &NoSuchNode{id}
	case n.session == 0:
		return nil, &NotConnected{id}
	}
	return n, nil
}

// SetLink asks a node to take the link of its NIC down, or to leave it to its wire again.
func (c *Core) SetLink(at time.Time, id NodeID, up bool, reason string, out []Effect) ([]Effect, error) {
	n, err := c.connected(id, "told what its link is")
	if err != nil {
		return out, err
	}
	c.begin(at, out)
	if reason == "" {
		reason = "by an operator"
	}
	c.note(NoteLink, id, GID{}, fmt.Sprintf("node %d is asked to %s: %s", id, linkWish(up), reason))
	c.emit(SetLink{n.session, up, reason})
	return c.finish(), nil
}

func linkWish(up bool) string {
	if up {
		return "leave its link to the wire"
	}
	return "take its link down"
}

// Drain asks a node to end when its guest leaves.
func (c *Core) Drain(at time.Time, id NodeID, reason string, out []Effect) ([]Effect, error) {
	n, err := c.connected(id, "drained")
	if err != nil {
		return out, err
	}
	c.begin(at, out)
	if reason == "" {
		reason = "by an operator"
	}
	c.note(NoteDrain, id, GID{}, fmt.Sprintf("node %d is asked to end when its guest leaves: %s", id, reason))
	c.emit(Drain{n.session, reason})
	return c.finish(), nil
}

// Evict removes a node and its claims for good, and keeps its id out of use for the quarantine.
func (c *Core) Evict(at time.Time, id NodeID, reason string, out []Effect) ([]Effect, error) {
	if id == Manager {
		return out, &IsManager{"evicted"}
	}
	n := c.nodes[id]
	if n == nil || n.State == Evicted {
		return out, &NoSuchNode{id}
	}
	c.begin(at, out)
	if reason == "" {
		reason = "by an operator"
	}
	text := "evicted: " + reason
	c.note(NoteEvicted, id, GID{}, fmt.Sprintf("node %d is %s; its %s", id, text, plural(len(n.claims), "claim ends", "claims end")))
	if n.session != 0 {
		c.emit(End{Session: n.session, Node: id, Reason: ReasonEvicted, Text: text})
	}
	c.discard(n, ReasonEvicted, text)
	c.forgetProcess(n)
	if c.cfg.Quarantine > 0 {
		n.suspect, n.Partitioned, n.reported = false, false, false
		n.Until = c.now.Add(c.cfg.Quarantine)
		c.setState(n, Evicted, text)
	} else {
		c.remove(n)
	}
	return c.finish(), nil
}

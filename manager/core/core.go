// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"time"
)

// Config holds what does not change while a Core lives.
type Config struct {
	// HealthInterval is the time between two heartbeats of a worker. Default 5 s.
	HealthInterval time.Duration
	// TickPeriod is the time between two Ticks. Default a fifth of HealthInterval.
	TickPeriod time.Duration
	// ClaimTTL is how long an unreachable node keeps its id and its claims. Default 24 h.
	ClaimTTL time.Duration
	// Quarantine is how long the id of an evicted node is not given out. Default 10 min; negative: not at all.
	Quarantine time.Duration
	// MaxClaims is the most addresses of one node. Default 4096.
	MaxClaims int
	// Versions are the protocol versions that the manager speaks.
	Versions Versions
	// LogLimit is how many changes are kept to answer "since revision N" with a difference. Default 65536.
	LogLimit int
}

// Defaults fills in what is zero.
func (c Config) Defaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.HealthInterval, 5*time.Second)
	def(&c.TickPeriod, c.HealthInterval/5)
	def(&c.ClaimTTL, 24*time.Hour)
	def(&c.Quarantine, 10*time.Minute)
	if c.MaxClaims == 0 {
		c.MaxClaims = 4096
	}
	if c.LogLimit == 0 {
		c.LogLimit = 1 << 16
	}
	if c.Versions == (Versions{}) {
		c.Versions = Versions{Min: 1, Max: 1}
	}
	return c
}

// silence is how long a session may carry nothing.
func (c *Config) silence() time.Duration { return 3 * c.HealthInterval }

// Core is the state of the mesh. Step, Evict and Changes must not run concurrently with anything; the other methods only
// read and may run concurrently with each other.
type Core struct {
	cfg Config
	// now is the time of the latest event. It never goes back.
	now time.Time
	// lastTick is when health was judged last.
	lastTick time.Time

	history  History
	revision uint64 // of the view; goes up by at most one a step
	changed  bool   // the step under way has changed the view
	log      changeLog

	// nodes holds every id that is not free; order is its keys, ascending.
	nodes      map[NodeID]*node
	order      []NodeID
	lowestFree NodeID // no id below is free
	byProcess  map[process]NodeID
	// seen are the processes that the gossip of the mesh sees.
	seen map[Instance]struct{}
	// sessions maps bound sessions to their node, and waiting ones to the node they ask for.
	sessions map[SessionID]NodeID

	// claims holds the claims of each GID in the order in which they were entered; no entry is empty.
	claims map[GID][]*claim
	// routes holds every GID that resolves: exactly one of its claims counts.
	routes    map[GID]NodeID
	conflicts int // GIDs of which several claims count

	probes uint64 // sequence of the last probe
	dirty  dirtySet
	out    []Effect
}

// process names a process of a worker. Instances are known to all of the mesh, so that one alone proves nothing.
type process struct {
	instance Instance
	identity string
}

func (r *NodeRecord) process() process { return process{r.Instance, r.Identity} }

// nodeOf returns the node that a process is. One that registered while connections were still plain is known without
// its identity.
func (c *Core) nodeOf(p process) (NodeID, bool) {
	id, ok := c.byProcess[p]
	if !ok {
		id, ok = c.byProcess[process{instance: p.instance}]
	}
	return id, ok
}

// forgetProcess takes the process of n out of the index.
func (c *Core) forgetProcess(n *node) {
	if c.byProcess[n.process()] == n.ID {
		delete(c.byProcess, n.process())
	}
}

// node is all that is known of a node.
type node struct {
	NodeRecord
	// suspect is set while a node of State Alive may not be; the store does not know of it.
	suspect bool
	// What follows is about a node that is suspect or partitioned.
	suspectSince  time.Time
	suspectReason string
	// report is valid if reported is set.
	report   Report
	reported bool
	skew     time.Duration // of the worker's clock, ahead of the manager's

	session      SessionID // zero: none
	sessionSince time.Time
	lastHeard    time.Time
	// returnBy is when a node without a session is given up.
	returnBy time.Time
	// restored is set until the node has a session with this run of the manager.
	restored bool
	// probe is the sequence of the probe that has not been answered yet, due by probeBy; zero: none.
	probe   uint64
	probeBy time.Time
	// waiting is a registration for this id that is accepted if the probe stays without an answer.
	waiting *Register

	claims map[GID]*claim
}

// state is what operators are shown.
func (n *node) state() NodeState {
	switch {
	case n.State != Alive:
	case n.Partitioned:
		return Partitioned
	case n.suspect:
		return Suspect
	}
	return n.State
}

// claim is one entry of a GID.
type claim struct {
	ClaimRecord
	node *node
}

// New returns a core that goes on from state, as of time at. Nodes that were alive have three health intervals to come
// back, during which their claims count.
func New(cfg Config, at time.Time, state State) *Core {
	c := &Core{
		cfg:        cfg.Defaults(),
		now:        at,
		lastTick:   at,
		history:    state.History,
		revision:   state.Revision,
		nodes:      make(map[NodeID]*node),
		lowestFree: 1,
		byProcess:  make(map[process]NodeID),
		seen:       make(map[Instance]struct{}),
		sessions:   make(map[SessionID]NodeID),
		claims:     make(map[GID][]*claim),
		routes:     make(map[GID]NodeID),
	}
	c.log.base = state.Revision
	c.dirty.init()
	c.restore(state)
	return c
}

// Step takes in one event that happened at time at, and appends what has to be done to out. The changes to store are
// collected until Changes is called.
func (c *Core) Step(at time.Time, ev Event, out []Effect) []Effect {
	c.begin(at, out)
	switch ev := ev.(type) {
	case Register:
		c.register(&ev)
	case Heartbeat:
		if n := c.speaker(ev.Session, ev.Node, "heartbeat"); n != nil {
			n.report, n.reported, n.skew = ev.Report, true, 0
			if !ev.Report.Clock.IsZero() {
				n.skew = ev.Report.Clock.Sub(c.now)
			}
			c.emit(HeartbeatAck{ev.Session, ev.Sequence})
		}
	case ClaimUpdate:
		if n := c.speaker(ev.Session, ev.Node, "claim update"); n != nil {
			c.updateClaims(n, &ev)
		}
	case ProbeAnswer:
		if n := c.bound(ev.Session); n != nil {
			c.heard(n)
		}
	case Leave:
		if n := c.bound(ev.Session); n != nil {
			c.leave(n)
		}
	case SessionEnded:
		c.sessionEnded(&ev)
	case Malformed:
		c.malformed(&ev)
	case Seen:
		c.witness(&ev)
	case Tick:
		c.tick()
	}
	return c.finish()
}

func (c *Core) begin(at time.Time, out []Effect) {
	if at.After(c.now) {
		c.now = at
	}
	c.out = out
}

func (c *Core) finish() []Effect {
	if c.changed {
		c.changed = false
		c.log.trim(c.cfg.LogLimit)
	}
	out := c.out
	c.out = nil
	return out
}

func (c *Core) emit(e Effect) { c.out = append(c.out, e) }

// bound returns the node that a session is bound to, or nil.
func (c *Core) bound(s SessionID) *node {
	id, ok := c.sessions[s]
	if !ok {
		return nil
	}
	if n := c.nodes[id]; n.session == s {
		return n
	}
	return nil
}

// insert makes n a member under a free id.
func (c *Core) insert(n *node) {
	c.nodes[n.ID] = n
	i, _ := slices.BinarySearch(c.order, n.ID)
	c.order = slices.Insert(c.order, i, n.ID)
	for c.nodes[c.lowestFree] != nil {
		c.lowestFree++
	}
}

// remove frees the id of n. The node must have no claims and no sessions.
func (c *Core) remove(n *node) {
	delete(c.nodes, n.ID)
	if i, ok := slices.BinarySearch(c.order, n.ID); ok {
		c.order = slices.Delete(c.order, i, i+1)
	}
	c.forgetProcess(n)
	c.lowestFree = min(c.lowestFree, n.ID)
	c.touchNode(n.ID)
	c.viewNode(n.ID)
}

// Revision returns the history and the revision of the view.
func (c *Core) Revision() (History, uint64) { return c.history, c.revision }

// Conflicts returns how many GIDs resolve to no node because several claim them.
func (c *Core) Conflicts() int { return c.conflicts }

// Config returns the configuration with its defaults filled in.
func (c *Core) Config() Config { return c.cfg }

// Len returns how many ids are not free.
func (c *Core) Len() int { return len(c.nodes) }

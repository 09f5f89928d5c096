// SPDX-License-Identifier: Apache-2.0

package core

import (
	"maps"
	"slices"
	"sort"
)

// ViewNode is what workers know of a node. Its state is Alive, Partitioned or Dead: that the manager suspects a node is
// no reason for its peers to treat it differently.
type ViewNode struct {
	ID          NodeID
	Name        string
	Addr        string
	State       NodeState
	Instance    Instance
	Incarnation uint64
	Identity    string // holder of the certificate that alone may speak for the node; empty: connections are plain
}

// Route says that a GID resolves to a node.
type Route struct {
	GID  GID
	Node NodeID
}

// Update leads a worker's view to a revision. Its order is that of the changes; a key stands in it once.
type Update struct {
	History  History
	Revision uint64
	// Snapshot: the update is the whole view. Otherwise it is the difference to the revision that was asked about.
	Snapshot     bool
	Nodes        []ViewNode
	RemovedNodes []NodeID
	Routes       []Route
	RemovedGIDs  []GID
}

// Empty reports whether the update changes nothing.
func (u *Update) Empty() bool {
	return !u.Snapshot && len(u.Nodes)+len(u.RemovedNodes)+len(u.Routes)+len(u.RemovedGIDs) == 0
}

// changeLog remembers which keys changed at which revision, to answer "since revision N". What the keys stand for now
// is looked up when it is asked.
type changeLog struct {
	base    uint64 // changes up to and including this revision are forgotten
	changes []change
}

// change is one key of the view: a node, or a GID if isRoute is set.
type change struct {
	revision uint64
	gid      GID
	node     NodeID
	isRoute  bool
}

// trim forgets the older half once there are too many changes, at the border of a revision.
func (l *changeLog) trim(limit int) {
	if len(l.changes) <= limit {
		return
	}
	cut := len(l.changes) - limit/2
	l.base = l.changes[cut-1].revision
	for cut < len(l.changes) && l.changes[cut].revision == l.base {
		cut++
	}
	l.changes = slices.Clone(l.changes[cut:])
}

// since returns the changes after a revision, which must not be before the base.
func (l *changeLog) since(revision uint64) []change {
	i := sort.Search(len(l.changes), func(i int) bool { return l.changes[i].revision > revision })
	return l.changes[i:]
}

// advance opens the revision of the step under way.
func (c *Core) advance() {
	if !c.changed {
		c.changed = true
		c.revision++
		c.dirty.meta = true
	}
}

func (c *Core) viewNode(id NodeID) {
	c.advance()
	c.log.changes = append(c.log.changes, change{revision: c.revision, node: id})
}

func (c *Core) viewRoute(g GID) {
	c.advance()
	c.log.changes = append(c.log.changes, change{revision: c.revision, gid: g, isRoute: true})
}

// Since returns what leads from a revision of a history to the current one: the difference where the revision is one
// that is remembered, the whole view otherwise.
func (c *Core) Since(history History, revision uint64) Update {
	if history != c.history || revision < c.log.base || revision > c.revision {
		return c.snapshot()
	}
	u := Update{History: c.history, Revision: c.revision}
	changes := c.log.since(revision)
	nodes := make(map[NodeID]struct{})
	routes := make(map[GID]struct{})
	for i := range changes {
		ch := &changes[i]
		if ch.isRoute {
			if _, seen := routes[ch.gid]; seen {
				continue
			}
			routes[ch.gid] = struct{}{}
			if id, ok := c.routes[ch.gid]; ok {
				u.Routes = append(u.Routes, Route{ch.gid, id})
			} else {
				u.RemovedGIDs = append(u.RemovedGIDs, ch.gid)
			}
			continue
		}
		if _, seen := nodes[ch.node]; seen {
			continue
		}
		nodes[ch.node] = struct{}{}
		if n := c.nodes[ch.node]; n != nil && n.State != Evicted {
			u.Nodes = append(u.Nodes, n.view())
		} else {
			u.RemovedNodes = append(u.RemovedNodes, ch.node)
		}
	}
	return u
}

func (c *Core) snapshot() Update {
	u := Update{History: c.history, Revision: c.revision, Snapshot: true}
	u.Nodes = make([]ViewNode, 0, len(c.order))
	for _, id := range c.order {
		if n := c.nodes[id]; n.State != Evicted {
			u.Nodes = append(u.Nodes, n.view())
		}
	}
	u.Routes = make([]Route, 0, len(c.routes))
	for _, g := range slices.SortedFunc(maps.Keys(c.routes), compareGIDs) {
		u.Routes = append(u.Routes, Route{g, c.routes[g]})
	}
	return u
}

func (n *node) viewState() NodeState {
	if n.Partitioned {
		return Partitioned
	}
	return n.State
}

func (n *node) view() ViewNode {
	return ViewNode{ID: n.ID, Name: n.Name, Addr: n.Addr, State: n.viewState(), Instance: n.Instance,
		Incarnation: n.Incarnation, Identity: n.Identity}
}

// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/proto/gid"
)

// Node is what peers know of one worker.
type Node struct {
	ID   uint32
	Name string
	// Address is host:port of the node's fabric listener.
	Address string
	// Instance and Incarnation tell one process of the node from the next. A
	// zero Instance means that any is accepted.
	Instance    [16]byte
	Incarnation uint64
}

// Route says that a GID belongs to a node.
type Route struct {
	GID  gid.GID
	Node uint32
}

// Change moves the directory to its next state.
type Change struct {
	// Snapshot means that the change is the whole state and replaces all.
	Snapshot bool
	// Nodes and Routes are new or changed.
	Nodes  []Node
	Routes []Route
	// GoneNodes and GoneGIDs are removed, before Nodes and Routes are added.
	GoneNodes []uint32
	GoneGIDs  []gid.GID
}

const shards = 64

type (
	nodeMap  map[uint32]Node
	routeMap map[gid.GID]uint32
)

// Directory is safe for concurrent use. Make one with New.
type Directory struct {
	generation atomic.Uint64
	nodes      atomic.Pointer[nodeMap]
	routes     [shards]atomic.Pointer[routeMap]

	mu       sync.Mutex // serializes writers, guards watchers
	watchers map[*Watch]struct{}
}

// New returns an empty directory.
func New() *Directory {
	d := &Directory{watchers: make(map[*Watch]struct{})}
	d.nodes.Store(&nodeMap{})
	for i := range d.routes {
		d.routes[i].Store(&routeMap{})
	}
	return d
}

// Generation counts the changes applied so far.
func (d *Directory) Generation() uint64 { return d.generation.Load() }

// Node returns what is known of a node.
func (d *Directory) Node(id uint32) (Node, bool) {
	n, ok := (*d.nodes.Load())[id]
	return n, ok
}

// Nodes returns the ids of all nodes in ascending order.
func (d *Directory) Nodes() []uint32 {
	return slices.Sorted(maps.Keys(*d.nodes.Load()))
}

// GID returns the node that owns an address. The lookup is exact on 16 bytes;
// an unknown address belongs to no node.
func (d *Directory) GID(g gid.GID) (uint32, bool) {
	n, ok := (*d.routes[shard(g)].Load())[g]
	return n, ok
}

// MAC returns the node whose LIF has the MAC address: the owner of the default
// GID that is made of it.
func (d *Directory) MAC(mac [6]byte) (uint32, bool) { return d.GID(gid.FromMAC(mac)) }

// shard spreads GIDs by the bytes that differ between hosts of one network.
func shard(g gid.GID) int {
	return int((uint32(g[15]) ^ uint32(g[14])*7 ^ uint32(g[13])*31 ^ uint32(g[10])*17) % shards)
}

// Apply moves the directory to its next state and wakes the watchers.
func (d *Directory) Apply(c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if c.Snapshot || len(c.Nodes)+len(c.GoneNodes) > 0 {
		next := nodeMap{}
		if !c.Snapshot {
			next = maps.Clone(*d.nodes.Load())
		}
		for _, id := range c.GoneNodes {
			delete(next, id)
		}
		for _, n := range c.Nodes {
			next[n.ID] = n
		}
		d.nodes.Store(&next)
	}

	var touched [shards]routeMap
	get := func(g gid.GID) routeMap {
		i := shard(g)
		if touched[i] == nil {
			touched[i] = maps.Clone(*d.routes[i].Load())
		}
		return touched[i]
	}
	if c.Snapshot {
		for i := range touched {
			touched[i] = routeMap{}
		}
	}
	for _, g := range c.GoneGIDs {
		delete(get(g), g)
	}
	for _, r := range c.Routes {
		get(r.GID)[r.GID] = r.Node
	}
	for i, m := range touched {
		if m != nil {
			d.routes[i].Store(&m)
		}
	}

	// Last: who has seen the new generation sees the new maps.
	d.generation.Add(1)
	for w := range d.watchers {
		select {
		case w.c <- struct{}{}:
		default:
		}
	}
}

// Watch is told of changes, several at once if it is slow.
type Watch struct {
	d *Directory
	c chan struct{}
}

// Watch starts watching.
func (d *Directory) Watch() *Watch {
	w := &Watch{d: d, c: make(chan struct{}, 1)}
	d.mu.Lock()
	d.watchers[w] = struct{}{}
	d.mu.Unlock()
	return w
}

// Changed holds a value when the directory changed since the last receive.
func (w *Watch) Changed() <-chan struct{} { return w.c }

// Close ends the watch.
func (w *Watch) Close() {
	w.d.mu.Lock()
	delete(w.d.watchers, w)
	w.d.mu.Unlock()
}

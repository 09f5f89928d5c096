// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"maps"
	"slices"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Node is a member of the mesh.
type Node struct {
	ID   uint32
	Name string
	// Addr is the host:port of the node's FabricService; empty if it has none.
	Addr  string
	State ernicv1.NodeState // alive, partitioned or dead
	// Instance and Incarnation tell one process from another under the same id.
	Instance    [16]byte
	Incarnation uint64
	// Identity is the holder of the certificate that alone may speak for the node; empty when connections are plain.
	Identity string
}

// Mesh is the mesh at one revision. It never changes and may be read by any number of goroutines.
type Mesh struct {
	History  [16]byte
	Revision uint64
	nodes    map[uint32]*Node
	routes   routes
}

// empty is what a worker knows before it first hears from a manager.
var empty = &Mesh{}

// Resolve returns the node that owns a GID. An address that nobody owns, or that several nodes claim, belongs to none.
// It does not allocate.
func (m *Mesh) Resolve(g [16]byte) (uint32, bool) { return m.routes.get(g) }

// Node returns a member.
func (m *Mesh) Node(id uint32) (*Node, bool) {
	n, ok := m.nodes[id]
	return n, ok
}

// Nodes returns all members by id.
func (m *Mesh) Nodes() []*Node {
	nodes := make([]*Node, 0, len(m.nodes))
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		nodes = append(nodes, m.nodes[id])
	}
	return nodes
}

// Len returns how many nodes and how many routes there are.
func (m *Mesh) Len() (nodes, routes int) { return len(m.nodes), m.routes.len }

// Routes calls yield with every GID that resolves and its node, in no order, until it returns false.
func (m *Mesh) Routes(yield func(g [16]byte, node uint32) bool) { m.routes.each(yield) }

// Update returns the mesh that an update leads to from m, all its parts in order, or says why they make no sense. The zero
// Mesh is that of a worker that has heard nothing yet.
func (m *Mesh) Update(parts []*ernicv1.MeshUpdate) (*Mesh, error) {
	if len(parts) == 0 {
		return nil, errors.New("an update without a part")
	}
	var before *ernicv1.MeshUpdate
	for _, p := range parts {
		if err := checkPart(m, before, p); err != nil {
			return nil, err
		}
		before = p
	}
	return m.apply(parts), nil
}

// apply returns the mesh that the parts of an update lead to. The parts are valid; see checkPart.
func (m *Mesh) apply(parts []*ernicv1.MeshUpdate) *Mesh {
	last := parts[len(parts)-1]
	next := &Mesh{
		History:  [16]byte(last.GetTo().GetHistory()),
		Revision: last.GetTo().GetRevision(),
	}
	if !last.GetSnapshot() {
		next.nodes, next.routes = m.nodes, m.routes
	}
	owned := false // next.nodes is not shared with m
	b := next.routes.edit()
	for _, p := range parts {
		if !owned && len(p.GetNodes())+len(p.GetRemovedNodeIds()) > 0 {
			owned = true
			if next.nodes = maps.Clone(next.nodes); next.nodes == nil {
				next.nodes = make(map[uint32]*Node)
			}
		}
		for _, n := range p.GetNodes() {
			next.nodes[n.GetNodeId()] = decodeNode(n)
		}
		for _, id := range p.GetRemovedNodeIds() {
			delete(next.nodes, id)
		}
		for _, r := range p.GetRoutes() {
			b.set([16]byte(r.GetGid()), r.GetNodeId())
		}
		for _, g := range p.GetRemovedGids() {
			b.remove([16]byte(g))
		}
	}
	next.routes = b.done()
	return next
}

func decodeNode(n *ernicv1.MeshNode) *Node {
	return &Node{
		ID:          n.GetNodeId(),
		Name:        n.GetName(),
		Addr:        n.GetAddress(),
		State:       n.GetState(),
		Instance:    [16]byte(n.GetInstance()),
		Incarnation: n.GetIncarnation(),
		Identity:    n.GetIdentity(),
	}
}

// maxPart is the most nodes and routes in one part of a view.
const maxPart = 4096

// encode returns the view as a snapshot, in parts.
func (m *Mesh) encode() []*ernicv1.MeshUpdate {
	var parts []*ernicv1.MeshUpdate
	part := func() *ernicv1.MeshUpdate {
		if n := len(parts); n > 0 {
			last := parts[n-1]
			if len(last.GetNodes())+len(last.GetRoutes()) < maxPart {
				return last
			}
			last.More = true
		}
		p := &ernicv1.MeshUpdate{Snapshot: true}
		if m != empty {
			p.To = &ernicv1.MeshPoint{History: m.History[:], Revision: m.Revision}
		}
		parts = append(parts, p)
		return p
	}
	for _, n := range m.Nodes() {
		p := part()
		p.Nodes = append(p.Nodes, &ernicv1.MeshNode{
			NodeId: n.ID, Name: n.Name, Address: n.Addr, State: n.State, Instance: n.Instance[:], Incarnation: n.Incarnation, Identity: n.Identity,
		})
	}
	m.Routes(func(g [16]byte, node uint32) bool {
		p := part()
		p.Routes = append(p.Routes, &ernicv1.Route{Gid: g[:], NodeId: node})
		return true
	})
	part()
	return parts
}

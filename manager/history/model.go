// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Point is a revision of a history.
type Point struct {
	History  [16]byte
	Revision uint64
}

func (p Point) String() string {
	return fmt.Sprintf("%d of %s", p.Revision, hex.EncodeToString(p.History[:4]))
}

// Node is what a view says of a node.
type Node struct {
	Live     bool
	Instance [16]byte
	Address  string
}

// View is the mesh as somebody sees it at a point.
type View struct {
	At     Point
	Nodes  map[uint32]Node
	Routes map[[16]byte]uint32
}

// Update leads a view to another point.
type Update struct {
	To           Point
	Snapshot     bool // it is the whole view
	Nodes        map[uint32]Node
	RemovedNodes []uint32
	Routes       map[[16]byte]uint32
	RemovedGIDs  [][16]byte
}

// Apply takes an update in.
func (v *View) Apply(u *Update) {
	if u.Snapshot || v.Nodes == nil {
		v.Nodes, v.Routes = make(map[uint32]Node), make(map[[16]byte]uint32)
	}
	maps.Copy(v.Nodes, u.Nodes)
	for _, id := range u.RemovedNodes {
		delete(v.Nodes, id)
	}
	maps.Copy(v.Routes, u.Routes)
	for _, g := range u.RemovedGIDs {
		delete(v.Routes, g)
	}
	v.At = u.To
}

func (v *View) clone() *View {
	return &View{At: v.At, Nodes: maps.Clone(v.Nodes), Routes: maps.Clone(v.Routes)}
}

// ClaimState is what a manager says of a claim.
type ClaimState int

// States of claims.
const (
	Active ClaimState = iota + 1
	Withdrawn
	Conflict
)

func (s ClaimState) String() string {
	switch s {
	case Active:
		return "active"
	case Withdrawn:
		return "withdrawn"
	case Conflict:
		return "in conflict"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Claim is a claim as a manager shows it.
type Claim struct {
	GID   [16]byte
	Node  uint32
	State ClaimState
}

// Model remembers every view that it was shown. Its methods may run concurrently.
type Model struct {
	mu    sync.Mutex // guards seen
	seen  map[Point]sight
	views int
}

// sight is a view and who had it first.
type sight struct {
	who  string
	view *View
}

// See takes in the view that somebody has, which must not change while it runs, and says what is wrong with it.
func (m *Model) See(who string, v *View) error {
	var wrong []error
	for g, id := range v.Routes {
		n, known := v.Nodes[id]
		switch {
		case !known:
			wrong = append(wrong, fmt.Errorf("%s, at revision %s: %x resolves to node %d, which is not there", who, v.At, g, id))
		case !n.Live:
			wrong = append(wrong, fmt.Errorf("%s, at revision %s: %x resolves to node %d, which is dead", who, v.At, g, id))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[Point]sight)
	}
	m.views++
	first, again := m.seen[v.At]
	if !again {
		m.seen[v.At] = sight{who, v.clone()}
		return errors.Join(wrong...)
	}
	if !maps.Equal(first.view.Nodes, v.Nodes) {
		wrong = append(wrong, fmt.Errorf("at revision %s %s sees the nodes %v and %s %v", v.At, first.who, first.view.Nodes, who, v.Nodes))
	}
	if !maps.Equal(first.view.Routes, v.Routes) {
		wrong = append(wrong, fmt.Errorf("at revision %s %s sees the routes %x and %s %x", v.At, first.who, first.view.Routes, who, v.Routes))
	}
	return errors.Join(wrong...)
}

// Seen returns how many views there were, and of how many revisions.
func (m *Model) Seen() (views, revisions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views, len(m.seen)
}

// Has reports whether somebody had a view of a point.
func (m *Model) Has(at Point) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.seen[at]
	return ok
}

// CheckClaims says what is wrong with all claims of a mesh at one time. live tells whether a node was; nil: not known, so
// that only the claims are held against each other.
func CheckClaims(claims []Claim, live func(node uint32) bool) error {
	var wrong []error
	of := make(map[[16]byte][]Claim)
	for _, c := range claims {
		of[c.GID] = append(of[c.GID], c)
	}
	for g, all := range of {
		slices.SortFunc(all, func(a, b Claim) int { return int(a.Node) - int(b.Node) })
		counting := 0
		for i, c := range all {
			if i > 0 && all[i-1].Node == c.Node {
				wrong = append(wrong, fmt.Errorf("node %d claims %x twice", c.Node, g))
			}
			if c.State != Withdrawn {
				counting++
			}
			if live != nil && live(c.Node) == (c.State == Withdrawn) {
				wrong = append(wrong, fmt.Errorf("the claim of node %d to %x is %s, and that it is live is %v", c.Node, g, c.State, live(c.Node)))
			}
		}
		for _, c := range all {
			if c.State != Withdrawn && (c.State == Active) != (counting == 1) {
				wrong = append(wrong, fmt.Errorf("the claim of node %d to %x is %s, of which %d count", c.Node, g, c.State, counting))
			}
		}
	}
	return errors.Join(wrong...)
}

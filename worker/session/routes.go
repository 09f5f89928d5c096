// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"slices"

	"github.com/ernic-dev/ernic/proto/gid"
)

// routes is an immutable table from GID to node: a tree of two levels of 64 branches over the bits of a hash, with short
// lists at the ends. A change copies the path to it, not the table, so that one claim among 100,000 costs every worker a
// couple of kilobytes.
//
//	root[64] -> mid[64] -> leaf: {gid, node} ...
type routes struct {
	root *[fan]*[fan][]route
	len  int
}

const (
	fanBits = 6
	fan     = 1 << fanBits
)

type route struct {
	gid  gid.GID
	node uint32
}

// branches returns the way to the leaf of g. Addresses of one site differ in few bits, which the multiplications spread
// over the upper ones (the constants are those of xxHash64).
func branches(g *[16]byte) (uint, uint) {
	h := binary.LittleEndian.Uint64(g[:8])*0x9E3779B185EBCA87 ^ binary.LittleEndian.Uint64(g[8:])*0xC2B2AE3D27D4EB4F
	h ^= h >> 32
	h *= 0x165667B19E3779F9
	return uint(h >> (64 - fanBits)), uint(h >> (64 - 2*fanBits) & (fan - 1))
}

func (r *routes) get(g [16]byte) (uint32, bool) {
	if r.root == nil {
		return 0, false
	}
	i, j := branches(&g)
	mid := r.root[i]
	if mid == nil {
		return 0, false
	}
	leaf := mid[j]
	for k := range leaf {
		if leaf[k].gid == g {
			return leaf[k].node, true
		}
	}
	return 0, false
}

func (r *routes) each(yield func([16]byte, uint32) bool) {
	if r.root == nil {
		return
	}
	for _, mid := range r.root {
		if mid == nil {
			continue
		}
		for _, leaf := range mid {
			for k := range leaf {
				if !yield(leaf[k].gid, leaf[k].node) {
					return
				}
			}
		}
	}
}

// edit returns a builder that starts from r and leaves r as it is.
func (r *routes) edit() *builder { return &builder{routes: *r} }

// builder makes a new table. What it has copied once it changes in place.
type builder struct {
	routes
	ownRoot bool
	ownMid  [fan]bool
	ownLeaf [fan]uint64 // a bit for each leaf of a mid
}

// leaf returns the list that g belongs to, free to be changed.
func (b *builder) leaf(g *[16]byte) *[]route {
	if !b.ownRoot {
		root := new([fan]*[fan][]route)
		if b.root != nil {
			*root = *b.root
		}
		b.root, b.ownRoot = root, true
	}
	i, j := branches(g)
	if !b.ownMid[i] {
		mid := new([fan][]route)
		if b.root[i] != nil {
			*mid = *b.root[i]
		}
		b.root[i], b.ownMid[i] = mid, true
	}
	if b.ownLeaf[i]&(1<<j) == 0 {
		b.root[i][j] = slices.Clone(b.root[i][j])
		b.ownLeaf[i] |= 1 << j
	}
	return &b.root[i][j]
}

func (b *builder) set(g [16]byte, node uint32) {
	leaf := b.leaf(&g)
	for k := range *leaf {
		if (*leaf)[k].gid == g {
			(*leaf)[k].node = node
			return
		}
	}
	*leaf = append(*leaf, route{g, node})
	b.len++
}

func (b *builder) remove(g [16]byte) {
	if _, ok := b.get(g); !ok {
		return
	}
	leaf := b.leaf(&g)
	*leaf = slices.DeleteFunc(*leaf, func(r route) bool { return r.gid == g })
	b.len--
}

func (b *builder) done() routes { return b.routes }

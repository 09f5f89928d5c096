// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"sync"

	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// view is what a worker knows of the mesh.
type view struct {
	mesh *session.Mesh
	// digest is the sum of the hashes of all routes.
	digest uint64
}

var nothing = &view{mesh: &session.Mesh{}}

// views lets workers that are told the same share what they know, which on a real
// site is on as many hosts. An update is decoded once for all that get the same
// bytes in the same state. Views of one revision that were come by on different
// ways are compared and made one.
type views struct {
	seed maphash.Seed
	once sync.Once

	mu    sync.Mutex // guards what follows; held while a view is made
	after map[step]*view
	at    map[point]*view
}

type step struct {
	from  *view // nil for a snapshot
	bytes [sha256.Size]byte
}

type point struct {
	history  [16]byte
	revision uint64
}

// mostViews is how many views are kept for workers that have yet to reach them.
const mostViews = 1000

// next returns the view that an update, in parts, leads to.
func (v *views) next(from *view, parts [][]byte, snapshot bool) (*view, error) {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	k := step{from: from}
	if snapshot {
		k.from = nil
	}
	h.Sum(k.bytes[:0])
	v.once.Do(func() { v.seed = maphash.MakeSeed() })
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.after) > mostViews || v.after == nil {
		v.after, v.at = make(map[step]*view), make(map[point]*view)
	}
	if to := v.after[k]; to != nil {
		return to, nil
	}
	to, err := v.make(from, parts, snapshot)
	if err != nil {
		return nil, err
	}
	at := point{to.mesh.History, to.mesh.Revision}
	if same := v.at[at]; same != nil {
		nodes, routes := to.mesh.Len()
		if n, r := same.mesh.Len(); n != nodes || r != routes || same.digest != to.digest {
			return nil, fmt.Errorf("two workers at revision %d see different meshes: %d nodes and %d routes, %d nodes and %d routes",
				at.revision, n, r, nodes, routes)
		}
		to = same
	}
	v.after[k], v.at[at] = to, to
	return to, nil
}

func (v *views) make(from *view, parts [][]byte, snapshot bool) (*view, error) {
	updates := make([]*ernicv1.MeshUpdate, len(parts))
	for i, p := range parts {
		updates[i] = &ernicv1.MeshUpdate{}
		if err := proto.Unmarshal(p, updates[i]); err != nil {
			return nil, err
		}
	}
	mesh, err := from.mesh.Update(updates)
	if err != nil {
		return nil, err
	}
	to := &view{mesh: mesh, digest: from.digest}
	if snapshot {
		to.digest = 0
		mesh.Routes(func(g [16]byte, node uint32) bool {
			to.digest += v.hash(g[:], node)
			return true
		})
		return to, nil
	}
	for _, u := range updates {
		for _, r := range u.GetRoutes() {
			if old, ok := from.mesh.Resolve([16]byte(r.GetGid())); ok {
				to.digest -= v.hash(r.GetGid(), old)
			}
			to.digest += v.hash(r.GetGid(), r.GetNodeId())
		}
		for _, g := range u.GetRemovedGids() {
			if old, ok := from.mesh.Resolve([16]byte(g)); ok {
				to.digest -= v.hash(g, old)
			}
		}
	}
	return to, nil
}

func (v *views) hash(g []byte, node uint32) uint64 {
	var b [20]byte
	copy(b[:], g)
	binary.BigEndian.PutUint32(b[16:], node)
	return maphash.Bytes(v.seed, b[:])
}

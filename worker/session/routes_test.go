// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

func numbered(i int) [16]byte {
	g := [16]byte{10: 0xff, 11: 0xff, 12: 10}
	binary.BigEndian.PutUint16(g[14:], uint16(i))
	g[13] = byte(i >> 16)
	return g
}

// TestRoutesKeepEveryOldTable compares the table with a plain map over a long random history, and every table that was
// ever taken with what it held then.
func TestRoutesKeepEveryOldTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var table routes
	model := make(map[[16]byte]uint32)
	type kept struct {
		table routes
		model map[[16]byte]uint32
	}
	var old []kept
	for range 300 {
		b := table.edit()
		for range rng.IntN(40) {
			g := numbered(rng.IntN(500))
			if rng.IntN(3) == 0 {
				b.remove(g)
				delete(model, g)
			} else {
				node := rng.Uint32N(9) + 1
				b.set(g, node)
				model[g] = node
			}
		}
		table = b.done()
		old = append(old, kept{table, maps.Clone(model)})
	}
	for i, k := range old {
		got := make(map[[16]byte]uint32)
		k.table.each(func(g [16]byte, node uint32) bool {
			got[g] = node
			return true
		})
		if !maps.Equal(got, k.model) || k.table.len != len(k.model) {
			t.Fatalf("table %d holds %d routes (says %d), want %d", i, len(got), k.table.len, len(k.model))
		}
		for n := range 500 {
			node, ok := k.table.get(numbered(n))
			want, wantOK := k.model[numbered(n)]
			if node != want || ok != wantOK {
				t.Fatalf("table %d: address %d gives %d %v, want %d %v", i, n, node, ok, want, wantOK)
			}
		}
	}
}

func TestRoutesSpreadTheAddressesOfASite(t *testing.T) {
	b := (&routes{}).edit()
	for i := range 65536 {
		b.set(numbered(i), 1)
	}
	longest := 0
	for _, mid := range b.done().root {
		for _, leaf := range mid {
			longest = max(longest, len(leaf))
		}
	}
	// 16 on average.
	if longest > 48 {
		t.Errorf("the longest list has %d entries", longest)
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	s := &Session{}
	m := &Mesh{}
	b := m.routes.edit()
	b.set(numbered(1), 1)
	m.routes = b.done()
	s.mesh.Store(m)
	if n := testing.AllocsPerRun(100, func() {
		s.Resolve(numbered(1))
		s.Resolve(numbered(2))
		s.Node(1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkResolve(b *testing.B) {
	build := (&routes{}).edit()
	for i := range 100_000 {
		build.set(numbered(i), 1)
	}
	s := &Session{}
	s.mesh.Store(&Mesh{routes: build.done()})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := s.Resolve(numbered(i % 100_000)); !ok {
			b.Fatal("a route is missing")
		}
	}
}

// BenchmarkApplyOneRoute measures what one moved address costs a worker that knows 100,000.
func BenchmarkApplyOneRoute(b *testing.B) {
	build := (&routes{}).edit()
	for i := range 100_000 {
		build.set(numbered(i), 1)
	}
	m := &Mesh{routes: build.done()}
	g := numbered(7)
	up := []*ernicv1.MeshUpdate{{To: &ernicv1.MeshPoint{History: make([]byte, 16), Revision: 1}, Routes: []*ernicv1.Route{{Gid: g[:], NodeId: 2}}}}
	b.ReportAllocs()
	for b.Loop() {
		m.apply(up)
	}
}

// FuzzMeshUpdate lets a manager send anything. Whatever it is, it is refused or leads to a mesh in which nothing is out
// of range.
func FuzzMeshUpdate(f *testing.F) {
	history := make([]byte, 16)
	seeds := []*ernicv1.MeshUpdate{
		{},
		{To: &ernicv1.MeshPoint{History: history, Revision: 3}},
		{To: &ernicv1.MeshPoint{History: history, Revision: 3}, Snapshot: true,
			Nodes:  []*ernicv1.MeshNode{{NodeId: 1, Instance: history}},
			Routes: []*ernicv1.Route{{Gid: history, NodeId: 1}}},
		{To: &ernicv1.MeshPoint{History: history, Revision: 4}, RemovedGids: [][]byte{history}, RemovedNodeIds: []uint32{1}},
		{To: &ernicv1.MeshPoint{History: history[:3]}, RemovedGids: [][]byte{{1}}},
	}
	for _, m := range seeds {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, raw)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		mesh := empty
		for _, raw := range [][]byte{first, second} {
			p := &ernicv1.MeshUpdate{}
			if proto.Unmarshal(raw, p) != nil {
				return
			}
			if checkPart(mesh, nil, p) != nil {
				return
			}
			next := mesh.apply([]*ernicv1.MeshUpdate{p})
			if next.Revision != p.GetTo().GetRevision() {
				t.Fatalf("revision %d", next.Revision)
			}
			for _, n := range next.Nodes() {
				if n.ID == 0 || n.ID == anyNode {
					t.Fatalf("node %d", n.ID)
				}
			}
			count := 0
			next.Routes(func([16]byte, uint32) bool { count++; return true })
			if _, routes := next.Len(); routes != count {
				t.Fatalf("%d routes, says %d", count, routes)
			}
			mesh = next
		}
	})
}

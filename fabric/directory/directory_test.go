// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ernic-dev/ernic/proto/gid"
)

func mustGID(t *testing.T, s string) gid.GID {
	t.Helper()
	g, err := gid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGID_IsExactAndUnknownBelongsToNobody(t *testing.T) {
	d := New()
	a := mustGID(t, "192.168.1.5")
	d.Apply(Change{Routes: []Route{{GID: a, Node: 7}}})
	if n, ok := d.GID(a); !ok || n != 7 {
		t.Fatalf("got node %d, %v", n, ok)
	}
	for i := range a {
		for bit := range 8 {
			b := a
			b[i] ^= 1 << bit
			if n, ok := d.GID(b); ok {
				t.Fatalf("%v resolves to %d though only %v is known", b, n, a)
			}
		}
	}
	d.Apply(Change{GoneGIDs: []gid.GID{a}})
	if n, ok := d.GID(a); ok {
		t.Fatalf("a removed address resolves to %d", n)
	}
}

func TestMAC_FollowsTheDefaultGID(t *testing.T) {
	d := New()
	mac := [6]byte{2, 0, 0, 0, 0, 9}
	if _, ok := d.MAC(mac); ok {
		t.Fatal("an unknown MAC resolves")
	}
	d.Apply(Change{Routes: []Route{{GID: gid.FromMAC(mac), Node: 4}}})
	if n, ok := d.MAC(mac); !ok || n != 4 {
		t.Fatalf("got node %d, %v", n, ok)
	}
}

func TestApply_DifferencesLeadWhereASnapshotLeads(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	d := New()
	nodes, routes := map[uint32]Node{}, map[gid.GID]uint32{}
	address := func() gid.GID { return gid.FromMAC([6]byte{2, 0, 0, 0, byte(r.IntN(4)), byte(r.IntN(64))}) }
	for step := range 2000 {
		var c Change
		if r.IntN(50) == 0 {
			c.Snapshot = true
			clear(nodes)
			clear(routes)
		}
		for range r.IntN(3) {
			id := uint32(r.IntN(20))
			c.GoneNodes = append(c.GoneNodes, id)
			delete(nodes, id)
			g := address()
			c.GoneGIDs = append(c.GoneGIDs, g)
			delete(routes, g)
		}
		for range r.IntN(4) {
			n := Node{ID: uint32(r.IntN(20)), Incarnation: uint64(step)}
			c.Nodes = append(c.Nodes, n)
			nodes[n.ID] = n
			rt := Route{GID: address(), Node: n.ID}
			c.Routes = append(c.Routes, rt)
			routes[rt.GID] = rt.Node
		}
		before := d.Generation()
		d.Apply(c)
		if d.Generation() != before+1 {
			t.Fatal("the generation did not move by one")
		}
		for id := range uint32(20) {
			got, ok := d.Node(id)
			want, known := nodes[id]
			if ok != known || got != want {
				t.Fatalf("step %d node %d: %+v %v, want %+v %v", step, id, got, ok, want, known)
			}
		}
		for hi := range 4 {
			for lo := range 64 {
				g := gid.FromMAC([6]byte{2, 0, 0, 0, byte(hi), byte(lo)})
				got, ok := d.GID(g)
				want, known := routes[g]
				if ok != known || got != want {
					t.Fatalf("step %d %v: %d %v, want %d %v", step, g, got, ok, want, known)
				}
			}
		}
		if ids := d.Nodes(); len(ids) != len(nodes) || !slices.IsSorted(ids) {
			t.Fatalf("nodes %v, want %d of them", ids, len(nodes))
		}
	}
}

// A sender that reads the generation first and then looks up never keeps a
// stale answer under the newest generation.
func TestGeneration_InvalidatesACache(t *testing.T) {
	d := New()
	g := mustGID(t, "10.0.0.1")
	d.Apply(Change{Routes: []Route{{GID: g, Node: 0}}})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				gen := d.Generation()
				node, ok := d.GID(g)
				// Change n+1 routes to node n; a later one may show already.
				if !ok || uint64(node)+1 < gen {
					t.Errorf("generation %d resolves to node %d, %v", gen, node, ok)
					return
				}
			}
		})
	}
	for n := range uint32(3000) {
		d.Apply(Change{Routes: []Route{{GID: g, Node: n + 1}}})
	}
	close(stop)
	wg.Wait()
}

func TestWatch_TellsOfChangesAndNotAfterClose(t *testing.T) {
	d := New()
	w := d.Watch()
	d.Apply(Change{})
	d.Apply(Change{})
	select {
	case <-w.Changed():
	default:
		t.Fatal("not told")
	}
	select {
	case <-w.Changed():
		t.Fatal("told twice of what came before the first receive")
	default:
	}
	w.Close()
	d.Apply(Change{})
	select {
	case <-w.Changed():
		t.Fatal("told after Close")
	default:
	}
	if len(d.watchers) != 0 {
		t.Fatal("the watch is still held")
	}
}

func TestGID_DoesNotAllocate(t *testing.T) {
	d := New()
	g := mustGID(t, "10.0.0.1")
	d.Apply(Change{Routes: []Route{{GID: g, Node: 1}}})
	if n := testing.AllocsPerRun(100, func() { d.GID(g); d.Node(1) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkGID(b *testing.B) {
	d := New()
	var c Change
	for i := range 10000 {
		c.Routes = append(c.Routes, Route{GID: gid.FromMAC([6]byte{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}), Node: uint32(i)})
	}
	d.Apply(c)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			d.GID(c.Routes[i%len(c.Routes)].GID)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	d := New()
	var c Change
	for i := range 10000 {
		c.Routes = append(c.Routes, Route{GID: gid.FromMAC([6]byte{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}), Node: uint32(i)})
	}
	d.Apply(c)
	for i := range b.N {
		d.Apply(Change{Routes: c.Routes[i%10000 : i%10000+1]})
	}
}

// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/binary"
	"testing"
	"time"
)

// populated returns a mesh of so many alive nodes with so many addresses each.
func populated(b *testing.B, nodes, claims int) *Core {
	b.Helper()
	now := time.Unix(0, 0)
	c := New(Config{}, now, State{})
	for i := range nodes {
		c.Step(now, registration(i), nil)
		up := ClaimUpdate{Session: SessionID(i + 1), Node: NodeID(i + 1)}
		for j := range claims {
			up.Claims = append(up.Claims, Claim{benchGID(i, j), SourceIP})
		}
		c.Step(now, up, nil)
	}
	c.Changes()
	if len(c.routes) != nodes*claims {
		b.Fatalf("%d routes, want %d", len(c.routes), nodes*claims)
	}
	return c
}

func registration(i int) Register {
	r := Register{Session: SessionID(i + 1), Node: AnyNode, Incarnation: 1, Protocol: Versions{1, 1}, Addr: "h:1"}
	binary.BigEndian.PutUint64(r.Instance[:], uint64(i+1))
	r.Addr = r.Instance.String()
	return r
}

func benchGID(i, j int) GID {
	g := GID{0: 0xfd}
	binary.BigEndian.PutUint32(g[8:], uint32(i))
	binary.BigEndian.PutUint32(g[12:], uint32(j))
	return g
}

// BenchmarkRegister measures a registration into a mesh that already has 1,000 nodes.
func BenchmarkRegister(b *testing.B) {
	c := populated(b, 1000, 1)
	now := time.Unix(0, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		session := SessionID(1_000_000 + i)
		r := registration(5000)
		r.Session = session
		c.Step(now, r, nil)
		c.Step(now, Leave{session}, nil)
	}
	c.Changes()
}

// BenchmarkClaimMoves measures one claim entered and released among 100,000 others.
func BenchmarkClaimMoves(b *testing.B) {
	c := populated(b, 1000, 100)
	now := time.Unix(0, 0)
	up := ClaimUpdate{Session: 7, Node: 7, Claims: []Claim{{benchGID(5000, 0), SourceIP}}}
	down := ClaimUpdate{Session: 7, Node: 7, Release: []GID{benchGID(5000, 0)}}
	b.ReportAllocs()
	for b.Loop() {
		c.Step(now, up, nil)
		c.Step(now, down, nil)
		c.Changes()
	}
}

// BenchmarkNodeDiesAndReturns measures withdrawal and restoration of 100 claims among 100,000.
func BenchmarkNodeDiesAndReturns(b *testing.B) {
	c := populated(b, 1000, 100)
	now := time.Unix(0, 0)
	n := c.nodes[7]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.begin(now, nil)
		c.dead(n, "gone")
		c.finish()
		r := registration(6)
		r.Session = SessionID(1_000_000 + i)
		c.Step(now, r, nil)
		c.Changes()
	}
}

// BenchmarkTick measures the health check of 1,000 nodes, of which none has anything to report.
func BenchmarkTick(b *testing.B) {
	c := populated(b, 1000, 1)
	now := time.Unix(0, 0)
	for b.Loop() {
		c.Step(now, Tick{}, nil)
	}
}

// BenchmarkSinceOneBehind measures what a worker that is one revision behind is sent.
func BenchmarkSinceOneBehind(b *testing.B) {
	c := populated(b, 1000, 100)
	history, revision := c.Revision()
	for b.Loop() {
		u := c.Since(history, revision-1)
		if u.Snapshot || len(u.Routes) != 100 {
			b.Fatalf("%d routes, snapshot %v", len(u.Routes), u.Snapshot)
		}
	}
}

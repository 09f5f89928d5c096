// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	"github.com/ernic-dev/ernic/manager/store"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// startMany starts workers that log nothing and keep no views; seen is told of every new view.
func startMany(t testing.TB, m *managertest.Manager, n int, seen func(i int, now *session.Mesh)) []*session.Session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	var sessions []*session.Session
	for i := range n {
		s, err := session.New(session.Config{
			Manager: managertest.Addr, Dial: m.DialOptions(), Name: fmt.Sprint("w", i), Addr: fmt.Sprintf("w%d.test:7000", i),
			Log:      zerolog.Nop(),
			Handlers: session.Handlers{Mesh: func(_, now *session.Mesh) { seen(i, now) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return sessions
}

func ignore(int, *session.Mesh) {}

func registered(s *session.Session) bool {
	return s.Status().GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED
}

// The race detector has limits of its own and makes everything many times slower; see race_test.go.
var (
	// manyWorkers is how many workers a mesh must stand.
	manyWorkers = 1000
	// propagationLimit is the time within which a claim must have got round.
	propagationLimit = 100 * time.Millisecond
	// returnLimit is the time within which all workers are back after a restart of the manager.
	returnLimit = 3 * time.Second
)

// TestI6_AThousandWorkersRegisterAndStay lets a minute pass over a thousand workers with a claim each.
func TestI6_AThousandWorkersRegisterAndStay(t *testing.T) {
	n := manyWorkers
	synctest.Test(t, func(t *testing.T) {
		m := managertest.Start(t, manager.Config{Core: core.Config{HealthInterval: interval}, Log: zerolog.New(io.Discard)})
		sessions := startMany(t, m, n, ignore)
		for i, s := range sessions {
			if err := s.Claim(big(i), ernicv1.ClaimSource_CLAIM_SOURCE_MAC); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		ids := make(map[uint32]bool)
		want := sessions[0].Mesh()
		for i, s := range sessions {
			id, _ := s.NodeID()
			ids[id] = true
			if !registered(s) || s.Status().GetRegistrations() != 1 {
				t.Fatalf("worker %d: %v", i, s.Status())
			}
			if s.Mesh().Revision != want.Revision {
				t.Fatalf("worker %d is at revision %d, another at %d", i, s.Mesh().Revision, want.Revision)
			}
			if owner, ok := want.Resolve(big(i)); !ok || owner != id {
				t.Fatalf("the address of worker %d (node %d) resolves to %d, %v", i, id, owner, ok)
			}
		}
		if len(ids) != n || !ids[1] || !ids[uint32(n)] {
			t.Errorf("%d ids were given out, from 1: %v, to %d: %v", len(ids), ids[1], n, ids[uint32(n)])
		}
		if c := m.Server().Counters(); c["node_suspect_total"]+c["node_dead_total"] != 0 {
			t.Errorf("%d nodes were suspected, %d died", c["node_suspect_total"], c["node_dead_total"])
		}
	})
}

func big(i int) [16]byte {
	return [16]byte{0: 0xfd, 12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
}

// propagation measures how long claims made on one worker take to resolve on all others, on the clock.
type propagation struct {
	sessions []*session.Session
	mu       sync.Mutex // guards what follows
	gid      [16]byte
	begin    time.Time
	missing  map[int]bool
	took     []time.Duration
	done     chan struct{}
}

func (p *propagation) seen(i int, now *session.Mesh) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.missing[i] {
		return
	}
	if _, ok := now.Resolve(p.gid); !ok {
		return
	}
	p.took = append(p.took, time.Since(p.begin))
	delete(p.missing, i)
	if len(p.missing) == 0 {
		close(p.done)
	}
}

// round claims one address and waits until everybody knows.
func (p *propagation) round(t testing.TB, number int) {
	t.Helper()
	p.mu.Lock()
	p.gid, p.done, p.begin = big(1<<20+number), make(chan struct{}), time.Now()
	p.missing = make(map[int]bool)
	for i := range p.sessions {
		p.missing[i] = true
	}
	done := p.done
	p.mu.Unlock()
	if err := p.sessions[number%len(p.sessions)].Claim(p.gid, ernicv1.ClaimSource_CLAIM_SOURCE_ARP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%d workers do not know of a claim", len(p.missing))
	}
}

// quantile returns the least duration that a share q of all is not above.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[max(0, int(math.Ceil(q*float64(len(d))))-1)]
}

// newMesh starts n workers with so many claims each and waits until all know of all.
func newMesh(t testing.TB, cfg manager.Config, n, claims int, seen func(int, *session.Mesh)) (*managertest.Manager, []*session.Session) {
	t.Helper()
	cfg.Log = zerolog.New(io.Discard)
	m := managertest.Start(t, cfg)
	sessions := startMany(t, m, n, seen)
	for i, s := range sessions {
		for j := range claims {
			if err := s.Claim(big(i*claims+j), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
				t.Fatal(err)
			}
		}
	}
	converge(t, sessions, n, n*claims)
	return m, sessions
}

// converge waits until every worker is registered and sees so many nodes and routes.
func converge(t testing.TB, sessions []*session.Session, nodes, routes int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		ready := 0
		for _, s := range sessions {
			if n, r := s.Mesh().Len(); n == nodes && r == routes && registered(s) {
				ready++
			}
		}
		if ready == len(sessions) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d workers know the whole mesh", ready, len(sessions))
		}
	}
}

// TestG9_AClaimResolvesEverywhereWithin100ms runs a hundred workers against a manager that stores to disk. The machine may
// be busy with other things for a while: one of ten series has to keep the promise.
func TestG9_AClaimResolvesEverywhereWithin100ms(t *testing.T) {
	s, err := store.Open(t.TempDir(), manager.NewHistory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p := &propagation{}
	_, p.sessions = newMesh(t, manager.Config{Store: s}, 100, 1, p.seen)
	for series := range 10 {
		p.took = nil
		for i := range 15 {
			p.round(t, series*15+i)
		}
		p99 := quantile(p.took, 0.99)
		t.Logf("100 workers: median %s, p99 %s, worst %s", quantile(p.took, 0.5), p99, quantile(p.took, 1))
		if p99 <= propagationLimit {
			return
		}
	}
	t.Errorf("p99 was above %s in every series", propagationLimit)
}

// TestI4_AHundredWorkersAreBackWithinThreeSeconds restarts a manager that stores to disk.
func TestI4_AHundredWorkersAreBackWithinThreeSeconds(t *testing.T) {
	s, err := store.Open(t.TempDir(), manager.NewHistory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	const n = 100
	m, sessions := newMesh(t, manager.Config{Store: s}, n, 2, ignore)
	ids := make([]uint32, n)
	for i, s := range sessions {
		ids[i], _ = s.NodeID()
	}
	best := time.Hour
	for range 3 {
		m.Stop()
		for i, s := range sessions {
			for registered(s) {
				time.Sleep(time.Millisecond)
			}
			if id, ok := s.Resolve(big(2 * i)); !ok || id != ids[i] {
				t.Fatalf("without a manager the address of worker %d resolves to %d, %v", i, id, ok)
			}
		}
		begin := time.Now()
		m.Start()
		converge(t, sessions, n, 2*n)
		took := time.Since(begin)
		t.Logf("all workers were back after %s", took)
		best = min(best, took)
		for i, s := range sessions {
			if id, _ := s.NodeID(); id != ids[i] {
				t.Fatalf("worker %d was node %d and is node %d", i, ids[i], id)
			}
		}
		if best <= returnLimit {
			return
		}
	}
	t.Errorf("it took %s at best", best)
}

// BenchmarkPropagation measures the time from a claim to the last of so many workers that resolves it.
func BenchmarkPropagation(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			p := &propagation{}
			_, p.sessions = newMesh(b, manager.Config{}, n, 1, p.seen)
			runtime.GC()
			i := 0
			for b.Loop() {
				p.round(b, i)
				i++
			}
			b.ReportMetric(float64(quantile(p.took, 0.5).Microseconds()), "p50-us")
			b.ReportMetric(float64(quantile(p.took, 0.99).Microseconds()), "p99-us")
		})
	}
}

// BenchmarkRegistrationStorm measures how long so many workers that start at once take to be registered, to claim an
// address each and to know of each other.
func BenchmarkRegistrationStorm(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				dir := b.TempDir()
				s, err := store.Open(dir, manager.NewHistory())
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				m, _ := newMesh(b, manager.Config{Store: s}, n, 1, ignore)
				b.StopTimer()
				b.ReportMetric(float64(m.Server().Counters()["store_commit_total"]), "commits")
				m.Stop()
				s.Close()
				b.StartTimer()
			}
		})
	}
}

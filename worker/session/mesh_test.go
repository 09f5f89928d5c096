// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/session"
)

// interval is the health interval of the meshes below. In a bubble it costs no time.
const interval = 5 * time.Second

// worker is a simulated worker.
type worker struct {
	*session.Session
	t      testing.TB
	cable  *managertest.Cable
	log    *logBuffer
	cancel context.CancelFunc
	done   chan error
	ended  bool

	mu    sync.Mutex // guards what follows
	nodes []uint32   // ids as they were given
	views []*session.Mesh
}

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startWorker starts a worker that ends with the test.
func startWorker(t testing.TB, m *managertest.Manager, name string, change ...func(*session.Config)) *worker {
	t.Helper()
	w := &worker{t: t, cable: m.Cable(), log: &logBuffer{}, done: make(chan error, 1)}
	cfg := session.Config{
		Manager: managertest.Addr,
		Dial:    w.cable.DialOptions(),
		Name:    name,
		Addr:    name + ".test:7000",
		Version: "test",
		Log:     zerolog.New(w.log),
		Handlers: session.Handlers{
			Registered: func(node uint32) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.nodes = append(w.nodes, node)
			},
			Mesh: func(_, now *session.Mesh) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.views = append(w.views, now)
			},
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := session.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Session = s
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		w.cable.Restore()
		if !w.ended {
			w.stop()
		}
	})
	return w
}

// stop ends the worker in good order.
func (w *worker) stop() {
	w.t.Helper()
	w.ended = true
	w.cancel()
	if err := <-w.done; err != nil {
		w.t.Errorf("worker: %v", err)
	}
}

// kill ends the worker without a word: its host is gone. The manager does not notice.
func (w *worker) kill() {
	w.cable.Silence()
	w.stop()
}

// killReset ends the worker as kill -9 does: the kernel closes its connections.
func (w *worker) killReset() {
	w.cable.Silence()
	w.cable.Cut()
	w.stop()
}

func (w *worker) ids() []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]uint32(nil), w.nodes...)
}

// wantNode fails unless the worker is registered under an id.
func (w *worker) wantNode(id uint32) {
	w.t.Helper()
	got, ok := w.NodeID()
	if st := w.Status(); !ok || got != id || st.GetSession() != ernicv1.SessionState_SESSION_STATE_REGISTERED {
		w.t.Errorf("worker is node %d (%v), want %d; %v %s", got, ok, id, st.GetSession(), st.GetSessionError())
	}
}

// wantRoute fails unless an address resolves to a node on this worker; 0: to none.
func (w *worker) wantRoute(address string, id uint32) {
	w.t.Helper()
	got, ok := w.Resolve(parse(w.t, address))
	if got != id || ok != (id != 0) {
		w.t.Errorf("%s resolves to node %d (%v), want %d", address, got, ok, id)
	}
}

func parse(t testing.TB, address string) gid.GID {
	t.Helper()
	g, err := gid.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (w *worker) claim(addresses ...string) {
	w.t.Helper()
	for _, a := range addresses {
		if err := w.Claim(parse(w.t, a), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
			w.t.Error(err)
		}
	}
}

// settle lets a bubble come to rest: all messages are delivered, including updates that wait for the update gap.
func settle() {
	synctest.Wait()
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

// bubble runs a test in which time passes only while everybody waits.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func start(t testing.TB, cfg manager.Config) (*managertest.Manager, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	cfg.Core.HealthInterval = interval
	cfg.Log = zerolog.New(log)
	cfg.Version = "test"
	return managertest.Start(t, cfg), log
}

// wantState fails unless the manager shows a node in a state.
func wantState(t testing.TB, m *managertest.Manager, id uint32, state ernicv1.NodeState) {
	t.Helper()
	resp, err := m.Client().ListNodes(t.Context(), &ernicv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range resp.GetNodes() {
		if n.GetNodeId() == id {
			if n.GetState() != state {
				t.Errorf("node %d is %v (%s), want %v", id, n.GetState(), n.GetReason(), state)
			}
			return
		}
	}
	t.Errorf("there is no node %d", id)
}

// claimStates returns what the manager shows of an address, as "node state" by node.
func claimStates(t testing.TB, m *managertest.Manager, address string) string {
	t.Helper()
	resp, err := m.Client().ListGids(t.Context(), &ernicv1.ListGidsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, address)
	var list []string
	for _, g := range resp.GetGids() {
		if gid.GID(g.GetGid()) == want {
			list = append(list, fmt.Sprintf("%d %s", g.GetNodeId(), core.ClaimState(g.GetState())))
		}
	}
	return strings.Join(list, ", ")
}

func TestI1_AWorkerGetsTheLowestFreeID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		var workers []*worker
		for i := range uint32(4) {
			w := startWorker(t, m, fmt.Sprint("w", i+1))
			settle()
			w.wantNode(i + 1)
			workers = append(workers, w)
		}
		workers[1].stop()
		workers[2].stop()
		settle()
		// A worker that starts is a new node, but the ids of those that left in good order are free.
		again := startWorker(t, m, "w2")
		settle()
		again.wantNode(2)
		// An id that is reserved, because its node may come back, is not given out.
		workers[0].kill()
		time.Sleep(4 * interval)
		wantState(t, m, 1, ernicv1.NodeState_NODE_STATE_DEAD)
		newcomer := startWorker(t, m, "w1b")
		settle()
		newcomer.wantNode(3)
	})
}

func TestI4_AManagerThatRestartsKnowsEveryWorkerAndClaim(t *testing.T) {
	for name, store := range map[string]manager.Store{"with its store": managertest.NewStore(), "without a store": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, _ := start(t, manager.Config{Store: store})
				var workers []*worker
				for i := range 5 {
					w := startWorker(t, m, fmt.Sprint("w", i+1))
					settle()
					w.claim(fmt.Sprintf("10.0.0.%d", i+1))
					workers = append(workers, w)
				}
				settle()
				m.Stop()
				time.Sleep(2 * interval)
				for i := range uint32(5) {
					// While the manager is away everybody still knows what there is.
					workers[0].wantRoute(fmt.Sprintf("10.0.0.%d", i+1), i+1)
				}
				m.Start()
				time.Sleep(3 * time.Second)
				settle()
				for i, w := range workers {
					w.wantNode(uint32(i) + 1)
					for j := range uint32(5) {
						w.wantRoute(fmt.Sprintf("10.0.0.%d", j+1), j+1)
					}
				}
				if store != nil {
					if n := m.Server().Counters()["mesh_update_snapshots_total"]; n != 0 {
						t.Errorf("%d workers were sent the whole mesh again, though nothing changed", n)
					}
				}
			})
		})
	}
}

func TestI5_AnEvictedWorkerBecomesANewNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, log := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1")
		settle()
		other.wantRoute("10.0.0.1", 1)
		resp, err := m.Client().EvictNode(t.Context(), &ernicv1.EvictNodeRequest{NodeId: 1, Reason: "maintenance"})
		if err != nil || resp.GetQuarantine().AsDuration() != 10*time.Minute {
			t.Fatalf("%v, %v", resp, err)
		}
		time.Sleep(time.Second)
		settle()
		w.wantNode(3)
		other.wantRoute("10.0.0.1", 3)
		wantState(t, m, 1, ernicv1.NodeState_NODE_STATE_EVICTED)
		if got := fmt.Sprint(w.ids()); got != "[1 3]" {
			t.Errorf("the worker was told it is nodes %s", got)
		}
		if !strings.Contains(w.log.String(), "can no longer be node 1") {
			t.Errorf("the worker's log does not say so:\n%s", w.log)
		}
		if !strings.Contains(log.String(), "evicted: maintenance") {
			t.Errorf("the manager's log does not say so:\n%s", log)
		}
		time.Sleep(10 * time.Minute)
		newcomer := startWorker(t, m, "w4")
		settle()
		newcomer.wantNode(1)
	})
}

func TestH1_AReconnectingWorkerIsSentTheDifference(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		settle()
		other.claim("10.0.0.2")
		settle()
		snapshots := m.Server().Counters()["mesh_update_snapshots_total"]
		w.cable.Cut()
		w.cable.Silence()
		other.claim("10.0.0.3")
		other.Release(parse(t, "10.0.0.2"))
		settle()
		w.wantRoute("10.0.0.2", 2)
		w.cable.Restore()
		time.Sleep(time.Second)
		settle()
		w.wantNode(1)
		w.wantRoute("10.0.0.2", 0)
		w.wantRoute("10.0.0.3", 2)
		if n := m.Server().Counters()["mesh_update_snapshots_total"]; n != snapshots {
			t.Errorf("%d snapshots were sent, %d before", n, snapshots)
		}
	})
}

func TestH2_ASessionThatCarriesNothingForThreeIntervalsIsDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, log := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1")
		settle()
		w.cable.Silence()
		time.Sleep(3*interval - 2*time.Second - interval/10)
		wantState(t, m, 1, ernicv1.NodeState_NODE_STATE_SUSPECT)
		other.wantRoute("10.0.0.1", 1)
		time.Sleep(4 * time.Second)
		wantState(t, m, 1, ernicv1.NodeState_NODE_STATE_DEAD)
		other.wantRoute("10.0.0.1", 0)
		if n := strings.Count(log.String(), `"event":"node_dead"`); n != 1 {
			t.Errorf("the death was noted %d times", n)
		}
	})
}

func TestH3_AWorkerComesBackUnderTheIDItHas(t *testing.T) {
	t.Run("after a reset", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			m, _ := start(t, manager.Config{})
			startWorker(t, m, "w1")
			settle()
			w := startWorker(t, m, "w2")
			w.claim("10.0.0.2")
			settle()
			w.cable.Cut()
			time.Sleep(time.Second)
			settle()
			w.wantNode(2)
			w.wantRoute("10.0.0.2", 2)
			if got := fmt.Sprint(w.ids()); got != "[2 2]" {
				t.Errorf("the worker was told it is nodes %s", got)
			}
		})
	})
	t.Run("while the manager still holds the old session", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			m, _ := start(t, manager.Config{})
			instance := [16]byte{1}
			w := startWorker(t, m, "w1", func(c *session.Config) { c.Instance = instance })
			other := startWorker(t, m, "w2")
			settle()
			w.claim("10.0.0.1")
			settle()
			id, _ := w.NodeID()
			w.kill()
			// The same process, as far as the manager can tell, on a connection of its own.
			begin := time.Now()
			again := startWorker(t, m, "w1", func(c *session.Config) { c.Instance = instance })
			again.claim("10.0.0.1")
			settle()
			if _, ok := again.NodeID(); ok {
				t.Error("the new session won before the old one was asked")
			}
			for time.Since(begin) < 2*interval {
				if _, ok := again.NodeID(); ok {
					break
				}
				time.Sleep(100 * time.Millisecond)
				other.wantRoute("10.0.0.1", id)
			}
			if d := time.Since(begin); d < interval || d > interval+2*time.Second {
				t.Errorf("the new session won after %s, want one interval of %s", d, interval)
			}
			settle()
			again.wantNode(id)
		})
	})
	t.Run("but not while the old session answers", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			m, log := start(t, manager.Config{})
			instance := [16]byte{1}
			w := startWorker(t, m, "w1", func(c *session.Config) { c.Instance = instance })
			settle()
			thief := startWorker(t, m, "thief", func(c *session.Config) { c.Instance = instance })
			time.Sleep(3 * interval)
			w.wantNode(1)
			if _, ok := thief.NodeID(); ok {
				t.Error("a second session got the id of one that answers")
			}
			if !strings.Contains(log.String(), "still answers") {
				t.Errorf("the manager's log does not say so:\n%s", log)
			}
		})
	})
}

func TestH6_AWorkerThatStopsForLessThanThreeIntervalsIsNotWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1")
		settle()
		_, revision := other.Mesh(), other.Mesh().Revision
		w.cable.Silence()
		time.Sleep(2*interval - time.Second)
		w.cable.Restore()
		time.Sleep(2 * interval)
		wantState(t, m, 1, ernicv1.NodeState_NODE_STATE_ALIVE)
		if other.Mesh().Revision != revision {
			t.Errorf("the mesh went from revision %d to %d over a short silence", revision, other.Mesh().Revision)
		}
		if len(w.ids()) != 1 {
			t.Errorf("the worker registered %d times", len(w.ids()))
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// chair is an election in memory: whoever asked first leads.
type chair struct {
	store *managertest.Store

	mu    sync.Mutex // guards what follows
	queue []*seat
}

// seat is one manager's part in the election, and its term once it leads. Its methods Load and Commit are those of the
// shared store as long as it does.
type seat struct {
	chair *chair
	name  string
	front chan struct{} // closed when it leads
	over  chan struct{}
	once  sync.Once
}

// candidate is the election as one manager sees it.
type candidate struct {
	chair *chair
	name  string
}

func (c *candidate) Campaign(ctx context.Context) (manager.Term, error) {
	s := &seat{chair: c.chair, name: c.name, front: make(chan struct{}), over: make(chan struct{})}
	c.chair.mu.Lock()
	c.chair.queue = append(c.chair.queue, s)
	if len(c.chair.queue) == 1 {
		close(s.front)
	}
	c.chair.mu.Unlock()
	select {
	case <-s.front:
		return s, nil
	case <-ctx.Done():
		s.End()
		return nil, ctx.Err()
	}
}

func (c *candidate) Candidates() []manager.Candidate {
	c.chair.mu.Lock()
	defer c.chair.mu.Unlock()
	var all []manager.Candidate
	for i, s := range c.chair.queue {
		all = append(all, manager.Candidate{Name: s.name, Address: s.name + ":6320", Leads: i == 0, Self: s.name == c.name})
	}
	return all
}

func (s *seat) Over() <-chan struct{} { return s.over }

func (s *seat) End() {
	s.once.Do(func() {
		close(s.over)
		s.chair.mu.Lock()
		defer s.chair.mu.Unlock()
		i := slices.Index(s.chair.queue, s)
		s.chair.queue = slices.Delete(s.chair.queue, i, i+1)
		if i == 0 && len(s.chair.queue) > 0 {
			close(s.chair.queue[0].front)
		}
	})
}

func (s *seat) leads() bool {
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

func (s *seat) Load() (core.State, error) {
	if !s.leads() {
		return core.State{}, manager.ErrDeposed
	}
	return s.chair.store.Load()
}

func (s *seat) Commit(ch core.Changes) error {
	if !s.leads() {
		return manager.ErrDeposed
	}
	return s.chair.store.Commit(ch)
}

// depose ends the term of the one that leads, which does not know.
func (c *chair) depose() {
	c.mu.Lock()
	s := c.queue[0]
	c.mu.Unlock()
	s.End()
}

// pair is two managers that share a state.
type pair struct {
	t       *testing.T
	chair   *chair
	managed map[string]*managed
}

type managed struct {
	*manager.Standby
	listener net.Listener
	cancel   context.CancelFunc
	done     chan error
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, chair: &chair{store: managertest.NewStore()}, managed: map[string]*managed{}}
	for _, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		m := &managed{listener: l, cancel: cancel, done: make(chan error, 1), Standby: manager.NewStandby(manager.Config{
			Name: name, Address: name + ":6320", Version: "v", Log: zerolog.New(zerolog.NewTestWriter(t)),
			Core: core.Config{HealthInterval: 500 * time.Millisecond},
		}, &candidate{p.chair, name})}
		p.managed[name] = m
		go func() { m.done <- m.Serve(ctx, l) }()
		t.Cleanup(func() { p.stop(name) })
		p.eventually(name+" takes part", func() bool {
			return slices.ContainsFunc((&candidate{p.chair, name}).Candidates(), func(c manager.Candidate) bool { return c.Self })
		})
	}
	p.eventually("the first to lead", func() bool { return p.managed["a"].Leading() != nil })
	return p
}

func (p *pair) stop(name string) {
	p.t.Helper()
	m := p.managed[name]
	if m == nil {
		return
	}
	delete(p.managed, name)
	m.cancel()
	if err := <-m.done; err != nil {
		p.t.Error(err)
	}
}

func (p *pair) eventually(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s did not come about", what)
		}
	}
}

// dialOptions let names of managers be dialled.
func (p *pair) dialOptions() []grpc.DialOption {
	at := map[string]string{}
	for name, m := range p.managed {
		at[name+":6320"] = m.listener.Addr().String()
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at[name])
		}),
	}
}

func (p *pair) dial(name string) *grpc.ClientConn {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+name+":6320", p.dialOptions()...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// worker starts a worker that knows the managers by a list.
func (p *pair) worker(name, managers string) *session.Session {
	p.t.Helper()
	s, err := session.New(session.Config{
		Manager: managers, Name: name, Addr: name + ".test:7000", Dial: p.dialOptions(), Log: zerolog.New(zerolog.NewTestWriter(p.t)),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
	return s
}

// settled reports whether workers are registered with a manager and their claims resolve for all of them.
func settled(at string, workers map[uint32]*session.Session) bool {
	for id, w := range workers {
		st := w.Status()
		if st.GetSession() != ernicv1.SessionState_SESSION_STATE_REGISTERED || st.GetManager() != at || st.GetNodeId() != id {
			return false
		}
		for of := range workers {
			if got, ok := w.Resolve(claimOf(of)); !ok || got != of {
				return false
			}
		}
	}
	return true
}

func claimOf(id uint32) [16]byte { return [16]byte{0: 0xfd, 15: byte(id)} }

func TestI4_AStandbyGoesOnWithTheIDsAndClaimsOfTheOneThatLed(t *testing.T) {
	p := newPair(t)
	workers := map[uint32]*session.Session{}
	// One that knows both managers, one that knows only the one that stands by and is told, and one with the list reversed.
	for i, list := range []string{"a:6320,b:6320", "b:6320", "b:6320,a:6320"} {
		id := uint32(i + 1)
		w := p.worker("w"+string(rune('0'+id)), list)
		p.eventually("a registration", func() bool {
			got, ok := w.NodeID()
			return ok && got == id
		})
		if err := w.Claim(claimOf(id), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
			t.Fatal(err)
		}
		workers[id] = w
	}
	p.eventually("everybody at a", func() bool { return settled("a:6320", workers) })

	// One that is deposed without a word: what it is told after that is not stored, so that it is not acknowledged either.
	p.chair.depose()
	p.eventually("b to lead", func() bool { return p.managed["b"].Leading() != nil })
	p.eventually("everybody at b", func() bool { return settled("b:6320", workers) })
	p.eventually("a to stand by", func() bool { return p.managed["a"].Leading() == nil })

	// One that ends in good order.
	p.stop("b")
	p.eventually("everybody at a again", func() bool {
		delete(workers, 2) // it knows b alone
		return settled("a:6320", workers)
	})
}

func TestAStandbyRefusesEverybodyWithTheAddressOfTheOneThatLeads(t *testing.T) {
	p := newPair(t)
	conn := p.dial("b")
	client := ernicv1.NewManagerServiceClient(conn)
	ctx := t.Context()
	calls := map[string]func() error{
		"ListNodes":   func() error { _, err := client.ListNodes(ctx, &ernicv1.ListNodesRequest{}); return err },
		"ListGids":    func() error { _, err := client.ListGids(ctx, &ernicv1.ListGidsRequest{}); return err },
		"EvictNode":   func() error { _, err := client.EvictNode(ctx, &ernicv1.EvictNodeRequest{NodeId: 1}); return err },
		"DrainNode":   func() error { _, err := client.DrainNode(ctx, &ernicv1.DrainNodeRequest{NodeId: 1}); return err },
		"SetNodeLink": func() error { _, err := client.SetNodeLink(ctx, &ernicv1.SetNodeLinkRequest{NodeId: 1}); return err },
		"WatchNodes": func() error {
			s, err := client.WatchNodes(ctx, &ernicv1.WatchNodesRequest{})
			return firstError(s, err)
		},
		"WatchGids": func() error {
			s, err := client.WatchGids(ctx, &ernicv1.WatchGidsRequest{})
			return firstError(s, err)
		},
		"WatchMesh": func() error {
			s, err := client.WatchMesh(ctx, &ernicv1.WatchMeshRequest{})
			return firstError(s, err)
		},
		"Relay": func() error {
			s, err := client.Relay(ctx)
			if err != nil {
				return err
			}
			_, err = s.Recv()
			return err
		},
		"WatchEvents": func() error {
			s, err := client.WatchEvents(ctx, &ernicv1.WatchEventsRequest{})
			return firstError(s, err)
		},
		"Session": func() error {
			s, err := client.Session(ctx)
			if err != nil {
				return err
			}
			_, err = s.Recv()
			return err
		},
	}
	for name, call := range calls {
		err := call()
		standby := session.AsStandby("b:6320", err)
		if standby == nil || standby.Leader != "a:6320" || !strings.Contains(standby.Error(), `"a" at a:6320`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	resp, err := client.ListManagers(ctx, &ernicv1.ListManagersRequest{})
	if err != nil || len(resp.GetManagers()) != 2 || !resp.GetManagers()[0].GetLeads() || resp.GetManagers()[0].GetName() != "a" ||
		!resp.GetManagers()[1].GetAnswers() {
		t.Errorf("managers %v, %v", resp, err)
	}
	if got := p.managed["b"].Counters(); got["standby_refused_total"] != uint64(len(calls)) || got["manager_leads"] != 0 {
		t.Errorf("counters %v", got)
	}
	if got := p.managed["a"].Counters(); got["manager_leads"] != 1 || got["manager_terms_total"] != 1 {
		t.Errorf("counters of the one that leads %v", got)
	}
	for name, want := range map[string]healthv1.HealthCheckResponse_ServingStatus{
		"": healthv1.HealthCheckResponse_SERVING, manager.LeaderService: healthv1.HealthCheckResponse_NOT_SERVING,
	} {
		got, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != want {
			t.Errorf("health of %q: %v, %v", name, got, err)
		}
	}
}

// receiver is a stream of answers.
type receiver[T any] interface{ Recv() (*T, error) }

func firstError[T any](s receiver[T], err error) error {
	if err != nil {
		return err
	}
	_, err = s.Recv()
	return err
}

// TestADeposedManagerAcknowledgesNothing lets a manager lose its term while a request is under way.
func TestADeposedManagerAcknowledgesNothing(t *testing.T) {
	p := newPair(t)
	conn := p.dial("a")
	w := p.worker("w", "a:6320,b:6320")
	p.eventually("the registration", func() bool { _, ok := w.NodeID(); return ok })
	p.chair.mu.Lock()
	s := p.chair.queue[0]
	p.chair.mu.Unlock()
	// The term ends in the store alone; the manager learns of it from the commit.
	s.once.Do(func() { close(s.over) })
	_, err := ernicv1.NewManagerServiceClient(conn).EvictNode(t.Context(), &ernicv1.EvictNodeRequest{NodeId: 1})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("evicted: %v", err)
	}
	state, err := p.chair.store.Load()
	if err != nil || len(state.Nodes) != 1 || state.Nodes[0].State == core.Evicted {
		t.Errorf("stored: %+v, %v", state.Nodes, err)
	}
	if err := s.Commit(core.Changes{}); !errors.Is(err, manager.ErrDeposed) {
		t.Errorf("it wrote: %v", err)
	}
}

func TestReflectionIsOffUnlessItIsAskedFor(t *testing.T) {
	for _, reflects := range []bool{false, true} {
		m := managertest.Start(t, manager.Config{Reflection: reflects})
		conn, err := grpc.NewClient("passthrough:///"+managertest.Addr, m.DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		s, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		r, err := s.Recv()
		shown := slices.ContainsFunc(r.GetListServicesResponse().GetService(), func(s *reflectionv1.ServiceResponse) bool {
			return s.GetName() == manager.LeaderService
		})
		if shown != reflects || !reflects && status.Code(err) != codes.Unimplemented {
			t.Errorf("reflection %v: %v, %v", reflects, r, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

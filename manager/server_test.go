// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// peer is a worker that says exactly what a test wants it to.
type peer struct {
	t      testing.TB
	stream ernicv1.ManagerService_SessionClient
	node   uint32
	seq    uint64

	mu  sync.Mutex // guards what follows
	got []*ernicv1.SessionResponse
	end error
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

func start(t testing.TB, cfg manager.Config) (*managertest.Manager, *logBuffer) {
	log := &logBuffer{}
	cfg.Log = zerolog.New(log)
	return managertest.Start(t, cfg), log
}

func open(t testing.TB, m *managertest.Manager) *peer {
	t.Helper()
	stream, err := m.Client().Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, stream: stream}
	go func() {
		for {
			resp, err := stream.Recv()
			p.mu.Lock()
			if err != nil {
				p.end = err
				p.mu.Unlock()
				return
			}
			p.got = append(p.got, resp)
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *peer) send(m *ernicv1.SessionRequest) {
	p.t.Helper()
	if err := p.stream.Send(m); err != nil {
		p.t.Fatal(err)
	}
}

func registration(name string) *ernicv1.Register {
	instance := make([]byte, 16)
	copy(instance, name)
	return &ernicv1.Register{
		Protocol: &ernicv1.VersionRange{Min: 1, Max: 1}, NodeId: 0xFFFFFFFF, Instance: instance, Incarnation: 1,
		Name: name, Address: name + ".test:7000",
	}
}

func (p *peer) sendRegister(r *ernicv1.Register) {
	p.send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: r}})
}

// register registers a new worker and remembers its node id.
func (p *peer) register(name string) {
	p.t.Helper()
	p.sendRegister(registration(name))
	settle()
	for _, m := range p.messages() {
		if r := m.GetRegistered(); r != nil {
			p.node = r.GetNodeId()
		}
	}
	if p.node == 0 {
		p.t.Fatalf("not registered: %v", p.ended())
	}
}

func (p *peer) beat() {
	p.seq++
	p.send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Heartbeat{Heartbeat: &ernicv1.Heartbeat{NodeId: p.node, Sequence: p.seq}}})
}

func (p *peer) claim(node uint32, gids ...[]byte) {
	m := &ernicv1.ClaimUpdate{NodeId: node, Sequence: 9}
	for _, g := range gids {
		m.Claim = append(m.Claim, &ernicv1.Claim{Gid: g, Source: ernicv1.ClaimSource_CLAIM_SOURCE_IP})
	}
	p.send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Claims{Claims: m}})
}

func (p *peer) messages() []*ernicv1.SessionResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*ernicv1.SessionResponse(nil), p.got...)
}

func (p *peer) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// wantRefusal fails unless the stream has ended with a reason and a text.
func (p *peer) wantRefusal(reason ernicv1.RefusalReason, text string) {
	p.t.Helper()
	settle()
	err := p.ended()
	st := status.Convert(err)
	for _, d := range st.Details() {
		if r, ok := d.(*ernicv1.Refusal); ok && r.GetReason() == reason && strings.Contains(st.Message(), text) {
			return
		}
	}
	p.t.Errorf("the stream ended with %v, %v; want %v and %q", err, st.Details(), reason, text)
}

// settle lets a bubble come to rest.
func settle() {
	synctest.Wait()
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

func gidOf(last byte) []byte { return []byte{0xfd, 15: last} }

func TestI2_AMessageThatNamesAnotherNodeIsRefusedAndLogged(t *testing.T) {
	for name, lie := range map[string]func(p *peer){
		"heartbeat": func(p *peer) { p.node = 1; p.beat() },
		"claim":     func(p *peer) { p.claim(1, gidOf(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, log := start(t, manager.Config{})
				victim, liar := open(t, m), open(t, m)
				victim.register("victim")
				liar.register("liar")
				lie(liar)
				liar.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_IDENTITY, "node 2 names node 1")
				if victim.ended() != nil {
					t.Errorf("the session of the other node ended: %v", victim.ended())
				}
				if !strings.Contains(log.String(), `"event":"identity_refused","node":2`) {
					t.Errorf("the log does not say so:\n%s", log)
				}
				resp, err := m.Client().ListGids(t.Context(), &ernicv1.ListGidsRequest{})
				if err != nil || len(resp.GetGids()) != 0 {
					t.Errorf("claims %v, %v", resp, err)
				}
				if n := m.Server().Counters()["identity_refused_total"]; n != 1 {
					t.Errorf("counted %d times", n)
				}
			})
		})
	}
}

func TestI2_AnotherWorkersIDIsNotGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		open(t, m).register("owner")
		thief := open(t, m)
		r := registration("thief")
		r.NodeId = 1
		thief.sendRegister(r)
		thief.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_ID_TAKEN, `node 1 is the worker "owner"`)
	})
}

func TestS4_NothingIsHandledBeforeTheRegistration(t *testing.T) {
	for name, first := range map[string]*ernicv1.SessionRequest{
		"heartbeat": {Message: &ernicv1.SessionRequest_Heartbeat{Heartbeat: &ernicv1.Heartbeat{NodeId: 1}}},
		"claims": {Message: &ernicv1.SessionRequest_Claims{Claims: &ernicv1.ClaimUpdate{
			NodeId: 1, Claim: []*ernicv1.Claim{{Gid: gidOf(1), Source: ernicv1.ClaimSource_CLAIM_SOURCE_IP}},
		}}},
		"leave": {Message: &ernicv1.SessionRequest_Leave{Leave: &ernicv1.Leave{}}},
		"empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := start(t, manager.Config{})
				p := open(t, m)
				p.send(first)
				p.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_MALFORMED, "no registration")
			})
		})
	}
}

func TestS4_ASilentStreamIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		var silent []*peer
		for range 1000 {
			silent = append(silent, open(t, m))
		}
		open(t, m).register("w1")
		time.Sleep(6 * time.Second)
		for _, p := range silent {
			if status.Code(p.ended()) != codes.DeadlineExceeded {
				t.Fatalf("a stream on which nothing came ended with %v", p.ended())
			}
		}
		if n := m.Server().Counters()["session_unregistered_total"]; n != 1000 {
			t.Errorf("%d were counted", n)
		}
	})
}

func TestMalformedRegistrationsNameTheFault(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*ernicv1.Register)
		want   string
	}{
		"short instance":  {func(r *ernicv1.Register) { r.Instance = r.Instance[:15] }, "instance has 15 bytes"},
		"zero instance":   {func(r *ernicv1.Register) { r.Instance = make([]byte, 16) }, "instance is zero"},
		"control in name": {func(r *ernicv1.Register) { r.Name = "a\x1b[2J" }, "does not print"},
		"long name":       {func(r *ernicv1.Register) { r.Name = strings.Repeat("n", 129) }, "at most 128"},
		"no port":         {func(r *ernicv1.Register) { r.Address = "host" }, "address"},
		"port range":      {func(r *ernicv1.Register) { r.Address = "host:70000" }, "address"},
		"no protocol":     {func(r *ernicv1.Register) { r.Protocol = nil }, "no range"},
		"manager's id":    {func(r *ernicv1.Register) { r.NodeId = 0 }, "node 0 is the manager"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := start(t, manager.Config{})
				p := open(t, m)
				r := registration("w1")
				tc.change(r)
				p.sendRegister(r)
				p.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_MALFORMED, tc.want)
			})
		})
	}
}

func TestMalformedClaimEndsTheSessionAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		p := open(t, m)
		p.register("w1")
		p.claim(1, gidOf(1), []byte{1, 2, 3})
		p.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_MALFORMED, "GID of 3 bytes")
		if resp, err := m.Client().ListGids(t.Context(), &ernicv1.ListGidsRequest{}); err != nil || len(resp.GetGids()) != 0 {
			t.Errorf("claims %v, %v", resp, err)
		}
	})
}

func TestALargeMeshIsSentInPartsThatTakeEffectTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{Core: core.Config{MaxClaims: 20000}})
		p := open(t, m)
		p.register("w1")
		var gids [][]byte
		for i := range 10000 {
			gids = append(gids, []byte{0xfd, 14: byte(i >> 8), 15: byte(i)})
		}
		p.claim(1, gids...)
		settle()
		q := open(t, m)
		q.register("w2")
		settle()
		routes, parts := 0, 0
		for _, msg := range q.messages() {
			if u := msg.GetMesh(); u != nil && u.GetSnapshot() {
				parts++
				routes += len(u.GetRoutes())
				if more := routes < 10000; u.GetMore() != more {
					t.Errorf("part %d with %d routes so far says more: %v", parts, routes, u.GetMore())
				}
			}
		}
		if routes != 10000 || parts != 3 {
			t.Errorf("%d routes came in %d parts", routes, parts)
		}
	})
}

func TestClaimsAreListedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		p := open(t, m)
		p.register("w1")
		for i := range byte(25) {
			p.claim(1, gidOf(i+1))
		}
		settle()
		var seen []string
		req := &ernicv1.ListGidsRequest{PageSize: 10}
		for pages := 1; ; pages++ {
			resp, err := m.Client().ListGids(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range resp.GetGids() {
				seen = append(seen, fmt.Sprintf("%x", g.GetGid()))
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				if pages != 3 {
					t.Errorf("%d pages", pages)
				}
				break
			}
		}
		if len(seen) != 25 || !isSorted(seen) {
			t.Errorf("listed %v", seen)
		}
		for _, token := range []string{"x", "AAAA", strings.Repeat("A", 1000)} {
			_, err := m.Client().ListGids(t.Context(), &ernicv1.ListGidsRequest{PageToken: token})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("page token %q: %v", token, err)
			}
		}
	})
}

func isSorted(s []string) bool {
	for i := 1; i < len(s); i++ {
		if s[i-1] >= s[i] {
			return false
		}
	}
	return true
}

func TestEvictionOfWhatCannotBeEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		for id, want := range map[uint32]codes.Code{0: codes.InvalidArgument, 7: codes.NotFound} {
			_, err := m.Client().EvictNode(t.Context(), &ernicv1.EvictNodeRequest{NodeId: id})
			if status.Code(err) != want {
				t.Errorf("node %d: %v", id, err)
			}
		}
		_, err := m.Client().EvictNode(t.Context(), &ernicv1.EvictNodeRequest{NodeId: 1, Reason: "a\nb"})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a reason of two lines: %v", err)
		}
	})
}

// TestI4_AStoreThatFailsIsSurvived lets the disk be full for a while: the mesh goes on, it is said once, and a manager
// that is killed afterwards has everything.
func TestI4_AStoreThatFailsIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := managertest.NewStore()
		m, log := start(t, manager.Config{Store: store})
		p, q := open(t, m), open(t, m)
		p.register("w1")
		q.register("w2")
		store.Fail(errors.New("no space left on device"))
		p.claim(1, gidOf(1))
		settle()
		q.claim(2, gidOf(2))
		time.Sleep(5 * time.Second)
		p.beat()
		q.beat()
		settle()
		if n := strings.Count(log.String(), "no space left on device"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, log)
		}
		updates := 0
		for _, msg := range q.messages() {
			if u := msg.GetMesh(); u != nil && len(u.GetRoutes()) > 0 {
				updates++
			}
		}
		if updates == 0 {
			t.Error("the other worker did not hear of the claim")
		}
		if state, _ := store.Load(); len(state.Claims) != 0 {
			t.Errorf("claims were stored: %v", state.Claims)
		}
		store.Fail(nil)
		time.Sleep(3 * time.Second)
		if state, _ := store.Load(); len(state.Claims) != 2 || len(state.Nodes) != 2 {
			t.Errorf("stored in the end: %+v", state)
		}
		if !strings.Contains(log.String(), "stored again") {
			t.Errorf("the log does not say that the store is back:\n%s", log)
		}
	})
}

func TestWatchersSeeEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		p := open(t, m)
		p.register("w1")
		nodes, err := m.Client().WatchNodes(t.Context(), &ernicv1.WatchNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		gids, err := m.Client().WatchGids(t.Context(), &ernicv1.WatchGidsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var trace []string
		say := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			trace = append(trace, fmt.Sprintf(format, args...))
		}
		go func() {
			for {
				r, err := nodes.Recv()
				if err != nil {
					return
				}
				for _, n := range r.GetNodes() {
					say("node %d %s", n.GetNodeId(), core.NodeState(n.GetState()))
				}
				for _, id := range r.GetRemovedNodeIds() {
					say("node %d gone", id)
				}
				if r.GetSynced() {
					say("nodes synced")
				}
			}
		}()
		go func() {
			for {
				r, err := gids.Recv()
				if err != nil {
					return
				}
				for _, g := range r.GetGids() {
					say("gid %d of node %d %s", g.GetGid()[15], g.GetNodeId(), core.ClaimState(g.GetState()))
				}
				for _, g := range r.GetRemoved() {
					say("gid %d of node %d gone", g.GetGid()[15], g.GetNodeId())
				}
				if r.GetSynced() {
					say("gids synced")
				}
			}
		}()
		want := func(list ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, w := range list {
				found := false
				for _, line := range trace {
					found = found || line == w
				}
				if !found {
					t.Errorf("%q is not among %q", w, trace)
				}
			}
			if len(trace) != len(list) {
				t.Errorf("%d changes %q, want %q", len(trace), trace, list)
			}
			trace = nil
		}
		want("node 0 alive", "node 1 alive", "nodes synced", "gids synced")
		p.claim(1, gidOf(1), gidOf(2))
		// The number of claims is part of a node.
		want("gid 1 of node 1 active", "gid 2 of node 1 active", "node 1 alive")
		// The first heartbeat brings a report; that later ones come is no change.
		p.beat()
		want("node 1 alive")
		p.beat()
		p.beat()
		want()
		q := open(t, m)
		q.register("w2")
		q.claim(2, gidOf(1))
		want("node 2 alive", "gid 1 of node 1 conflict", "gid 1 of node 2 conflict")
		p.send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Leave{Leave: &ernicv1.Leave{}}})
		want("node 1 gone", "gid 1 of node 1 gone", "gid 2 of node 1 gone", "gid 1 of node 2 active")
	})
}

func TestAManagerThatStopsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		p := open(t, m)
		p.register("w1")
		begin := time.Now()
		m.StopServer()
		if d := time.Since(begin); d > 1500*time.Millisecond {
			t.Errorf("it took %s", d)
		}
		p.wantRefusal(ernicv1.RefusalReason_REFUSAL_REASON_SHUTDOWN, "going down")
	})
}

func TestCodesOfTheCoreAreThoseOfTheWire(t *testing.T) {
	name := func(prefix string, s fmt.Stringer) string {
		return prefix + strings.ToUpper(strings.ReplaceAll(s.String(), "-", "_"))
	}
	for i := range ernicv1.NodeState_name {
		if i != 0 && ernicv1.NodeState_name[i] != name("NODE_STATE_", core.NodeState(i)) {
			t.Errorf("node state %d is %s and %s", i, ernicv1.NodeState_name[i], core.NodeState(i))
		}
	}
	for i := range ernicv1.ClaimState_name {
		if i != 0 && ernicv1.ClaimState_name[i] != name("CLAIM_STATE_", core.ClaimState(i)) {
			t.Errorf("claim state %d is %s and %s", i, ernicv1.ClaimState_name[i], core.ClaimState(i))
		}
	}
	for i := range ernicv1.ClaimSource_name {
		if i != 0 && (ernicv1.ClaimSource_name[i] != name("CLAIM_SOURCE_", core.Source(i)) || !core.Source(i).Valid()) {
			t.Errorf("claim source %d is %s and %s", i, ernicv1.ClaimSource_name[i], core.Source(i))
		}
	}
	for i := range ernicv1.RefusalReason_name {
		if i != 0 && ernicv1.RefusalReason_name[i] != name("REFUSAL_REASON_", core.Reason(i)) {
			t.Errorf("reason %d is %s and %s", i, ernicv1.RefusalReason_name[i], core.Reason(i))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/history"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

func gid(b byte) [16]byte { return [16]byte{0: 0xfd, 15: b} }

// view is the mesh with nodes 1 and 2, of which 2 is dead.
func view(revision uint64, routes map[[16]byte]uint32) *history.View {
	v := &history.View{}
	v.Apply(&history.Update{
		To: history.Point{History: [16]byte{1}, Revision: revision}, Snapshot: true,
		Nodes: map[uint32]history.Node{1: {Live: true}, 2: {}}, Routes: routes,
	})
	return v
}

func TestTheModelFindsWhatCannotBe(t *testing.T) {
	one := map[[16]byte]uint32{gid(1): 1}
	for name, c := range map[string]struct {
		before, now *history.View
		want        string // part of the finding, empty for none
	}{
		"all is well":                {view(1, one), view(2, nil), ""},
		"the same again":             {view(1, one), view(1, one), ""},
		"a dead owner":               {view(1, nil), view(2, map[[16]byte]uint32{gid(1): 2}), "resolves to node 2, which is dead"},
		"an owner that is not there": {view(1, nil), view(2, map[[16]byte]uint32{gid(1): 3}), "resolves to node 3, which is not there"},
		"two views of one revision":  {view(1, one), view(1, nil), "at revision 1 of 01000000 first sees the routes"},
	} {
		var m history.Model
		if err := m.See("first", c.before); err != nil {
			t.Errorf("%s: the first view: %v", name, err)
		}
		err := m.See("second", c.now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClaimsAreHeldAgainstEachOther(t *testing.T) {
	live := func(node uint32) bool { return node != 9 }
	a, w, c := history.Active, history.Withdrawn, history.Conflict
	for name, tc := range map[string]struct {
		claims []history.Claim
		want   string
	}{
		"all is well":           {[]history.Claim{{gid(1), 1, a}, {gid(1), 9, w}, {gid(2), 1, c}, {gid(2), 2, c}}, ""},
		"two active":            {[]history.Claim{{gid(1), 1, a}, {gid(1), 2, a}}, "of which 2 count"},
		"a conflict of one":     {[]history.Claim{{gid(1), 1, c}}, "of which 1 count"},
		"active and conflict":   {[]history.Claim{{gid(1), 1, a}, {gid(1), 2, c}}, "of which 2 count"},
		"an active dead one":    {[]history.Claim{{gid(1), 9, a}}, "live is false"},
		"a withdrawn live one":  {[]history.Claim{{gid(1), 1, w}}, "live is true"},
		"one claim twice":       {[]history.Claim{{gid(1), 1, c}, {gid(1), 1, c}}, "twice"},
		"nothing of a state":    {[]history.Claim{{gid(1), 1, 0}}, "of which 1 count"},
		"different addresses":   {[]history.Claim{{gid(1), 1, a}, {gid(2), 2, a}}, ""},
		"withdrawn beside live": {[]history.Claim{{gid(1), 9, w}, {gid(1), 2, a}}, ""},
	} {
		err := history.CheckClaims(tc.claims, live)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// TestG8_ARealMeshIsRecordedThroughAConflictAndARestart records a manager and its workers.
func TestG8_ARealMeshIsRecordedThroughAConflictAndARestart(t *testing.T) {
	m := managertest.Start(t, manager.Config{Store: managertest.NewStore()})
	conn, err := grpc.NewClient("passthrough:///"+managertest.Addr, m.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := history.Record(ernicv1.NewManagerServiceClient(conn))
	workers := map[string]*session.Session{}
	clients := map[string]ernicv1.WorkerServiceClient{}
	for _, name := range []string{"w1", "w2"} {
		s, err := session.New(session.Config{
			Manager: managertest.Addr, Name: name, Addr: name + ".test:7000", Dial: m.DialOptions(), Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		workers[name] = s
		clients[name] = serve(t, s)
		if err := s.Claim(gid(1), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() {
		t.Helper()
		for name, c := range clients {
			if err := r.Worker(t.Context(), name, c); err != nil {
				t.Error(err)
			}
		}
	}
	ask()
	eventually(t, "the conflict", func() bool { return conflicts(t, m) == 1 })
	ask()
	m.Stop()
	m.Start()
	workers["w2"].Release(gid(1))
	eventually(t, "the end of the conflict", func() bool {
		ask()
		owner, ok := workers["w2"].Resolve(gid(1))
		return ok && owner != 0 && conflicts(t, m) == 0
	})
	eventually(t, "a recording of it", func() bool {
		_, revisions, lists := r.Seen()
		return revisions > 2 && lists > 1
	})
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

func conflicts(t *testing.T, m *managertest.Manager) uint64 {
	t.Helper()
	return m.Server().Counters()["gid_conflicts"]
}

// serve runs a session, and its answers to operators.
func serve(t *testing.T, s *session.Session) ernicv1.WorkerServiceClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Run(ctx) }()
	go func() { done <- s.ServeStatus(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return ernicv1.NewWorkerServiceClient(conn)
}

// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

func TestI3_NoCommonProtocolIsAnErrorWithBothRangesOnBothSides(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, log := start(t, manager.Config{})
		s, err := session.New(session.Config{
			Manager: managertest.Addr, Dial: m.DialOptions(), Name: "new", MinProtocol: 2, MaxProtocol: 3, Log: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run(t.Context())
		var refused *session.RefusedError
		if !errors.As(err, &refused) || refused.Reason != ernicv1.RefusalReason_REFUSAL_REASON_PROTOCOL {
			t.Fatalf("error %v", err)
		}
		const ranges = "the manager speaks 1 to 1, the worker 2 to 3"
		if !strings.Contains(err.Error(), ranges) {
			t.Errorf("the worker's error is %q", err)
		}
		if !strings.Contains(log.String(), ranges) {
			t.Errorf("the manager's log is\n%s", log)
		}
	})
}

func TestI3_AWorkerThatWasRegisteredOutlivesAManagerItCannotTalkTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		w.claim("10.0.0.1")
		settle()
		m.Stop()
		// The manager is replaced by one that speaks another protocol, and that one by the old one.
		other := managertest.Start(t, manager.Config{Log: zerolog.Nop(), Core: coreWithVersions(5, 6)})
		w.cable.Redirect(other)
		time.Sleep(time.Minute)
		w.wantRoute("10.0.0.1", 1)
		if n := strings.Count(w.log.String(), "no common protocol version"); n != 1 {
			t.Errorf("the refusal is %d times in the log:\n%s", n, w.log)
		}
		m.Start()
		w.cable.Redirect(m)
		time.Sleep(5 * time.Second)
		w.wantNode(1)
	})
}

func TestAManagerThatCannotBeReachedIsAskedForEverAndSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		m.Stop()
		w := startWorker(t, m, "w1")
		time.Sleep(10 * time.Minute)
		if n := strings.Count(w.log.String(), "cannot be reached"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, w.log)
		}
		if !strings.Contains(w.log.String(), managertest.Addr) || !strings.Contains(w.log.String(), "connection refused") {
			t.Errorf("the log does not name the manager and the cause:\n%s", w.log)
		}
		// Between one and two seconds apart, once the wait is at its longest.
		if n := w.cable.Dials(); n < 300 || n > 620 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		if st := w.Status(); st.GetSession() != ernicv1.SessionState_SESSION_STATE_CONNECTING || st.GetSessionError() == "" || st.GetNodeId() != 0 {
			t.Errorf("status %v", st)
		}
		m.Start()
		time.Sleep(3 * time.Second)
		w.wantNode(1)
		m.Stop()
		time.Sleep(time.Minute)
		if n := strings.Count(w.log.String(), "cannot be reached"); n != 2 {
			t.Errorf("after the second loss the log says it %d times:\n%s", n, w.log)
		}
	})
}

func TestAWorkerThatStopsDoesNotWaitForAManagerThatIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		w.cable.Silence()
		begin := time.Now()
		w.stop()
		if d := time.Since(begin); d > time.Second {
			t.Errorf("it took %s", d)
		}
	})
}

func TestAManagerThatFallsSilentIsLeftAfterThreeIntervals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		w.cable.Silence()
		time.Sleep(3*interval - time.Second)
		if st := w.Status(); st.GetSession() != ernicv1.SessionState_SESSION_STATE_REGISTERED {
			t.Errorf("after less than three intervals: %v", st)
		}
		time.Sleep(2 * time.Second)
		if st := w.Status(); st.GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED ||
			!strings.Contains(st.GetSessionError(), "three health intervals") {
			t.Errorf("after three intervals: %v", st)
		}
	})
}

func TestReportsReachTheManagerSoonAndAreTrue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		var guest atomic.Bool
		const up = ernicv1.LinkState_LINK_STATE_UP
		w := startWorker(t, m, "w1", func(c *session.Config) {
			c.Report = func() session.Report {
				return session.Report{GuestAttached: guest.Load(), Links: []session.Link{
					{Peer: 2, State: up}, {Peer: 3, State: up}, {Peer: 4, State: up}, {Peer: 5, State: ernicv1.LinkState_LINK_STATE_BACKOFF, LastError: "no\nroute"},
				}}
			}
		})
		settle()
		report := func() *ernicv1.NodeReport {
			resp, err := m.Client().ListNodes(t.Context(), &ernicv1.ListNodesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetNodes()[1].GetReport()
		}
		if r := report(); r.GetGuestAttached() || r.GetLinks() != 3 || len(r.GetLinkReports()) != 4 ||
			r.GetLinkReports()[3].GetLastError() != "no route" {
			t.Errorf("report %v", r)
		}
		guest.Store(true)
		w.ReportChanged()
		settle()
		if r := report(); !r.GetGuestAttached() {
			t.Errorf("report %v", r)
		}
		// A round trip is known from the second heartbeat on, which does not keep one waiting for a whole interval.
		time.Sleep(time.Second)
		if r := report(); r.GetRtt().AsDuration() <= 0 || r.GetMeshRevision() != w.Mesh().Revision {
			t.Errorf("report %v, mesh revision %d", r, w.Mesh().Revision)
		}
	})
}

func TestRefusedConfigurationNamesTheFault(t *testing.T) {
	dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	for name, tc := range map[string]struct {
		cfg  session.Config
		want string
	}{
		"no manager":          {session.Config{Dial: dial}, "manager address"},
		"manager with a path": {session.Config{Dial: dial, Manager: "http://host"}, `manager address "http://host"`},
		"port out of range":   {session.Config{Dial: dial, Manager: "host:99999"}, "manager address"},
		"port zero":           {session.Config{Dial: dial, Manager: "host:0"}, "manager address"},
		"no credentials":      {session.Config{Manager: "host"}, "credentials"},
		"advertise port only": {session.Config{Dial: dial, Manager: "host", Addr: ":7000"}, "advertised address"},
		"advertise wildcard":  {session.Config{Dial: dial, Manager: "host", Addr: "0.0.0.0:7000"}, "unspecified"},
		"advertise no port":   {session.Config{Dial: dial, Manager: "host", Addr: "host"}, "advertised address"},
	} {
		if _, err := session.New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestCausesAreShort(t *testing.T) {
	for in, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "dial tcp 127.0.0.1:1: connect: connection refused",
		`connection error: desc = "transport: authentication handshake failed: tls: \"x\""`:                            `authentication handshake failed: tls: "x"`,
		`last connection error: connection error: desc = "error reading server preface: EOF"`:                          "error reading server preface: EOF",
		"node 1 was evicted": "node 1 was evicted",
	} {
		if got := session.Cause(status.Error(codes.Unavailable, in)); got != want {
			t.Errorf("%s is %q, want %q", in, got, want)
		}
	}
}

func TestManagerAddrIsCompleted(t *testing.T) {
	for in, want := range map[string]string{
		"host":           "host:6320",
		"host:1":         "host:1",
		"10.0.0.1":       "10.0.0.1:6320",
		"fd00::1":        "[fd00::1]:6320",
		"[fd00::1]:77":   "[fd00::1]:77",
		"m.example.org.": "m.example.org.:6320",
	} {
		if got, err := session.ManagerAddr(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", ":6320", "host:", "host:x", "a b", "[fd00::1]", "host:1:2"} {
		if got, err := session.ManagerAddr(in); err == nil {
			t.Errorf("%q was taken for %s", in, got)
		}
	}
}

// TestAStrangerOnTheManagersPortIsSaid connects to a gRPC server that is no manager.
func TestAStrangerOnTheManagersPortIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	log := &logBuffer{}
	s, err := session.New(session.Config{
		Manager: l.Addr().String(), Log: zerolog.New(log),
		Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	for i := 0; !strings.Contains(log.String(), "no manager"); i++ {
		if i == 6000 {
			t.Fatalf("the log is\n%s", log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAWorkerAnswersForItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		w.claim("10.0.0.1")
		settle()
		g := grpc.NewServer()
		w.RegisterStatus(g)
		if _, ok := g.GetServiceInfo()["ernic.v1.WorkerService"]; !ok {
			t.Error("the service is not registered")
		}
		st := w.Status()
		if st.GetNodeId() != 1 || st.GetName() != "w1" || st.GetRegistrations() != 1 || st.GetMeshNodes() != 1 || st.GetMeshRoutes() != 1 ||
			len(st.GetClaims()) != 1 || st.GetMesh().GetRevision() != w.Mesh().Revision || st.GetSessionSince() == nil {
			t.Errorf("status %v", st)
		}
	})
}

func coreWithVersions(low, high uint32) (c core.Config) {
	c.Versions = core.Versions{Min: low, Max: high}
	return c
}

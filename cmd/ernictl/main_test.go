// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/session"
)

// ernictl runs the program and returns its exit status and what it printed.
func ernictl(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := command()
	root.SetOut(&out)
	status = cli.Run(t.Context(), root, args, &errs)
	return status, out.String(), errs.String()
}

// mesh is a manager and workers on loopback ports.
type mesh struct {
	t       *testing.T
	address string
	server  *manager.Server
	drained atomic.Int32 // workers that were asked to end
	cut     atomic.Int32 // workers whose link is taken down
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := manager.New(manager.Config{
		Log: zerolog.Nop(), Name: "head", Address: l.Addr().String(), Version: "v-manager",
		// Long enough that no worker is given up on a machine that is busy: its report would be gone until the next.
		Core: core.Config{HealthInterval: 10 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &mesh{t: t, address: l.Addr().String(), server: server}
}

// worker starts a worker that ends with the test or when stop is called, and waits until it is registered.
func (m *mesh) worker(name string, addresses ...string) (s *session.Session, stop func()) {
	m.t.Helper()
	var down atomic.Bool // the link
	s, err := session.New(session.Config{
		Manager: m.address, Name: name, Addr: name + ":7000", Version: "v-worker", Log: zerolog.Nop(),
		Handlers: session.Handlers{
			Drain: func(string) { m.drained.Add(1) },
			SetLink: func(up bool) {
				if down.Store(!up); up {
					m.cut.Add(-1)
				} else {
					m.cut.Add(1)
				}
			},
		},
		Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
		Report: func() session.Report {
			return session.Report{GuestAttached: name == "alpha", Carrier: !down.Load(), LinkDown: down.Load(), Links: []session.Link{
				{Peer: 8, State: ernicv1.LinkState_LINK_STATE_UP, Lanes: 4, RTT: 40 * time.Microsecond},
				{Peer: 9, State: ernicv1.LinkState_LINK_STATE_UP, Lanes: 4},
			}}
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, a := range addresses {
		g, err := gid.Parse(a)
		if err != nil {
			m.t.Fatal(err)
		}
		if err := s.Claim(g, ernicv1.ClaimSource_CLAIM_SOURCE_CONFIG); err != nil {
			m.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			if err := <-done; err != nil {
				m.t.Error(err)
			}
		}
	}
	m.t.Cleanup(stop)
	eventually(m.t, func() bool {
		st := s.Status()
		for _, c := range st.GetClaims() {
			if !c.GetAcknowledged() {
				return false
			}
		}
		return st.GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED && m.reported(name)
	})
	return s, stop
}

// reported reports whether the manager knows of a worker what that says of itself.
func (m *mesh) reported(name string) bool {
	m.t.Helper()
	resp, err := m.server.ListNodes(m.t.Context(), &ernicv1.ListNodesRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range resp.GetNodes() {
		if n.GetName() == name {
			return n.GetReport() != nil
		}
	}
	return false
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("did not come about")
}

// cells splits a table into its fields; no cell of the tests below has a space in it.
func cells(table string) [][]string {
	var rows [][]string
	for line := range strings.Lines(table) {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}

func TestSection6_NodesShowsManagerAndWorkers(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha")
	m.worker("beta")
	// A round trip is reported with the heartbeat after the one it was measured with.
	var rows [][]string
	eventually(t, func() bool {
		status, out, errs := ernictl(t, "nodes", "--manager", m.address)
		if status != 0 || errs != "" {
			t.Fatalf("status %d, %s", status, errs)
		}
		rows = cells(out)
		return len(rows) == 4 && rows[2][8] != "-" && rows[3][8] != "-"
	})
	if got := strings.Join(rows[0], " "); got != "ID NAME ADDRESS STATE SESSION INCARNATION GUEST LINKS RTT VERSION" {
		t.Errorf("columns %s", got)
	}
	for i, want := range [][]string{
		{"0", "head", m.address, "alive", "-", "", "-", "-", "-", "v-manager"},
		{"1", "alpha", "alpha:7000", "alive", "", "", "attached", "2", "", "v-worker"},
		{"2", "beta", "beta:7000", "alive", "", "", "none", "2", "", "v-worker"},
	} {
		for j, cell := range want {
			if cell != "" && rows[i+1][j] != cell {
				t.Errorf("row %d is %q, want %q", i, rows[i+1], want)
				break
			}
		}
		if i > 0 {
			if _, err := time.ParseDuration(rows[i+1][8]); err != nil {
				t.Errorf("round trip %q", rows[i+1][8])
			}
		}
	}
	status, out, _ := ernictl(t, "nodes", "--manager", m.address, "-o", "wide")
	if header := cells(out)[0]; status != 0 || len(header) != len(nodeColumns) {
		t.Errorf("wide: status %d, columns %v", status, header)
	}
}

func TestSection6_NodesAndGidsAreTheSameInEveryFormat(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha", "fe80::1", "10.0.0.1")
	_, out, _ := ernictl(t, "gids", "--manager", m.address, "-o", "json")
	var fromJSON, fromYAML []claim
	if err := json.Unmarshal([]byte(out), &fromJSON); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	_, out, _ = ernictl(t, "gids", "--manager", m.address, "-o", "yaml")
	if err := yaml.Unmarshal([]byte(out), &fromYAML); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(fromJSON) != 2 || fmt.Sprint(describe(fromJSON)) != fmt.Sprint(describe(fromYAML)) {
		t.Errorf("JSON has %v, YAML %v", describe(fromJSON), describe(fromYAML))
	}
	if want := (claim{GID: "::ffff:10.0.0.1", IPv4: "10.0.0.1", Node: 1, Source: "config", State: "active"}); fromJSON[0].GID != want.GID ||
		fromJSON[0].IPv4 != want.IPv4 || fromJSON[0].Node != 1 || fromJSON[0].Source != want.Source || fromJSON[0].State != want.State ||
		fromJSON[0].Since == nil {
		t.Errorf("first claim %+v, want %+v", fromJSON[0], want)
	}
	_, out, _ = ernictl(t, "gids", "--manager", m.address)
	rows := cells(out)
	if got := strings.Join(rows[0], " "); got != "GID IPV4 NODE SOURCE STATE SINCE" {
		t.Errorf("columns %s", got)
	}
	if got := strings.Join(rows[2][:5], " "); got != "fe80::1 - 1 config active" {
		t.Errorf("row %s", got)
	}
	var nodes []node
	_, out, _ = ernictl(t, "nodes", "--manager", m.address, "-o", "json")
	if err := json.Unmarshal([]byte(out), &nodes); err != nil || len(nodes) != 2 || nodes[0].Role != "manager" || nodes[1].Role != "worker" ||
		nodes[1].Claims != 2 || nodes[1].SessionSince == nil || nodes[1].GuestAttached == nil || !*nodes[1].GuestAttached {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
}

func describe(claims []claim) []string {
	var list []string
	for _, c := range claims {
		list = append(list, fmt.Sprint(c.GID, c.IPv4, c.Node, c.Source, c.State, c.Since.UTC(), c.Incarnation))
	}
	return list
}

func TestListsAreEmptyNotNull(t *testing.T) {
	m := startMesh(t)
	if _, out, _ := ernictl(t, "gids", "--manager", m.address, "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("no claims are %s", out)
	}
}

func TestSection6_WatchShowsChangesUntilItIsEnded(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha", "10.0.0.1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	read, write := io.Pipe()
	root := command()
	root.SetOut(write)
	done := make(chan int, 1)
	go func() {
		status := cli.Run(ctx, root, []string{"gids", "-w", "-o", "json", "--manager", m.address}, io.Discard)
		_ = write.Close()
		done <- status
	}()
	lines := bufio.NewScanner(read)
	next := func() change[claim] {
		t.Helper()
		var c change[claim]
		if !lines.Scan() {
			t.Fatal("no more output")
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := next(); c.Change != "shown" || c.Item.GID != "::ffff:10.0.0.1" {
		t.Errorf("first %+v", c)
	}
	// Steps in between, such as a claim that is withdrawn before its node goes,
	// are shown to who is quick.
	until := func(what, state string) {
		t.Helper()
		for {
			c := next()
			if c.Item.GID == "::ffff:10.0.0.2" && c.Item.Node == 2 && c.Change == what && c.Item.State == state {
				return
			}
			if c.Change != "changed" {
				t.Fatalf("%+v, want %s to %s", c, what, state)
			}
		}
	}
	_, stop := m.worker("beta", "10.0.0.2")
	until("changed", "active")
	stop()
	until("removed", "gone")
	cancel()
	if status := <-done; status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestEvictRemovesANode(t *testing.T) {
	m := startMesh(t)
	s, _ := m.worker("alpha", "10.0.0.1")
	m.worker("beta")
	status, out, errs := ernictl(t, "node", "evict", "1", "--reason", "test", "--manager", m.address)
	if status != 0 || !strings.Contains(out, "node 1 is evicted") {
		t.Fatalf("status %d, %s%s", status, out, errs)
	}
	eventually(t, func() bool {
		id, _ := s.NodeID()
		return id == 3
	})
	if status, _, errs := ernictl(t, "node", "evict", "99", "--manager", m.address); status != 1 || !strings.Contains(errs, "no node 99") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestNodeIDsAreCompleted(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha")
	t.Setenv("ERNIC_MANAGER", m.address)
	_, out, _ := ernictl(t, "__complete", "node", "evict", "")
	if !strings.Contains(out, "1\talpha, alive") || strings.Contains(out, "head") {
		t.Errorf("completions %q", out)
	}
	_, out, _ = ernictl(t, "__complete", "nodes", "-o", "")
	for _, f := range formats {
		if !strings.Contains(out, f+"\n") {
			t.Errorf("format %s is not among %q", f, out)
		}
	}
}

func TestTheManagerComesFromTheEnvironment(t *testing.T) {
	m := startMesh(t)
	t.Setenv("ERNIC_MANAGER", m.address)
	if status, out, errs := ernictl(t, "nodes"); status != 0 || !strings.Contains(out, "head") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	// The command line has the last word.
	if status, _, errs := ernictl(t, "nodes", "--manager", "127.0.0.1:1"); status != 1 || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestSection6_ExitStatusAndOneClearSentence(t *testing.T) {
	m := startMesh(t)
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"nodes", "--manager", "127.0.0.1:1"}, 1, "the manager at 127.0.0.1:1 cannot be reached"},
		{[]string{"gids", "--watch", "--manager", "127.0.0.1:1"}, 1, "cannot be reached"},
		{[]string{"status", "127.0.0.1:1"}, 1, "the worker at 127.0.0.1:1 cannot be reached"},
		{[]string{"status", m.address}, 1, "is no worker"},
		{[]string{"nodes", "-o", "xml"}, 2, `"xml" is none of table, wide, json, yaml`},
		{[]string{"nodes", "--nope"}, 2, "unknown flag: --nope"},
		{[]string{"nodes", "extra"}, 2, "extra"},
		{[]string{"frobnicate"}, 2, "frobnicate"},
		{[]string{"node", "evict"}, 2, "arg"},
		{[]string{"node", "evict", "one"}, 2, `"one" is no node id`},
		{[]string{"node", "evict", "0", "--manager", m.address}, 1, "node 0 is the manager"},
		{[]string{"nodes", "--manager", "http://x"}, 2, `manager address "http://x"`},
		{[]string{"nodes", "--tls-cert", "x", "--manager", m.address}, 2, "--tls-key"},
		{[]string{"nodes", "--tls-ca", "/nonexistent/ca.pem", "--manager", m.address}, 1, "/nonexistent/ca.pem"},
		{[]string{"status", "nowhere"}, 2, `worker address "nowhere"`},
	} {
		status, out, errs := ernictl(t, tc.args...)
		if status != tc.status || !strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("%v: status %d, want %d and %q; printed %q and\n%s", tc.args, status, tc.status, tc.want, out, errs)
		}
	}
	if status, out, _ := ernictl(t, "version"); status != 0 || !strings.HasPrefix(out, "ernictl ") {
		t.Errorf("version: status %d, %q", status, out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, out, _ := ernictl(t, "completion", shell); status != 0 || len(out) < 100 {
			t.Errorf("completion %s: status %d, %d bytes", shell, status, len(out))
		}
	}
}

func TestStatusAsksAWorker(t *testing.T) {
	m := startMesh(t)
	s, _ := m.worker("alpha", "fe80::1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ServeStatus(ctx, l) }()
	var list []workerStatus
	_, out, errs := ernictl(t, "status", l.Addr().String(), "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v in %s%s", err, out, errs)
	}
	st := list[0]
	if st.Node != 1 || st.Name != "alpha" || st.Session != "registered" || st.Manager != m.address || len(st.Claims) != 1 ||
		st.Claims[0] != (statusClaim{GID: "fe80::1", Source: "config", Acknowledged: true}) || !st.GuestAttached || st.Links != 2 {
		t.Errorf("status %+v", st)
	}
	if _, out, _ := ernictl(t, "status", l.Addr().String()); !strings.Contains(out, "registered") {
		t.Errorf("table %s", out)
	}
	// A connection that says nothing does not keep the listener from ending.
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the listener does not end")
	}
}

func TestAgesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		12 * time.Second:              "12s",
		3*time.Minute + 5*time.Second: "3m5s",
		26 * time.Hour:                "1d2h",
		5*time.Hour + 7*time.Minute:   "5h7m",
		-time.Hour:                    "0s",
	} {
		then := time.Now().Add(-d)
		if got := age(&then); got != want {
			t.Errorf("%s is shown as %s, want %s", d, got, want)
		}
	}
}

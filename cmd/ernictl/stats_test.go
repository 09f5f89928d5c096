// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/worker/session"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// countingWorker starts a worker that answers for its counters, and returns where.
func (m *mesh) countingWorker(name string, told bool) (id, address string) {
	m.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	report := session.Report{}
	if told {
		report.Status = l.Addr().String()
	}
	registered := make(chan struct{}, 8)
	s, err := session.New(session.Config{
		Manager: m.address, Name: name, Addr: name + ":7000", Version: "v-worker", Log: zerolog.Nop(),
		Dial:     []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
		Report:   func() session.Report { return report },
		Handlers: session.Handlers{Registered: func(uint32) { registered <- struct{}{} }},
		Stats: func(qps int) []section.Section {
			s := []section.Section{
				{Title: "LIF Statistics", Key: "lif", Fields: []section.Field{section.Number("rx_ucast_bytes", uint64(1<<63))}},
				{Title: "Per-QP Statistics", Key: "per_qp", RowsKey: "qp"},
			}
			for i := range qps {
				s[1].Rows = append(s[1].Rows, section.Row{ID: uint32(i + 2), Fields: []section.Field{section.TextField("type", "RC")}})
			}
			return s
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Run(ctx) }()
	go func() { done <- s.ServeStatus(ctx, l) }()
	m.t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				m.t.Error(err)
			}
		}
	})
	select {
	case <-registered:
	case <-time.After(time.Minute):
		m.t.Fatal("the worker is not registered")
	}
	n, _ := s.NodeID()
	return strconv.FormatUint(uint64(n), 10), l.Addr().String()
}

func TestStats_OfANodeAndOfAnAddress(t *testing.T) {
	m := startMesh(t)
	id, address := m.countingWorker("alpha", true)
	const want = "LIF Statistics\n--------------\nrx_ucast_bytes : 9223372036854775808\n\n" +
		"Per-QP Statistics\n-----------------\nqp.2.type : RC\n"
	// The manager hears of the address with the first heartbeat.
	var status int
	var out, errs string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if status, out, errs = ernictl(t, "--manager", m.address, "stats", id, "--qps", "1"); status == cli.ExitOK {
			break
		}
	}
	if status != cli.ExitOK || out != want {
		t.Errorf("stats %s: status %d, %s\n%s", id, status, errs, out)
	}
	status, out, errs = ernictl(t, "--manager", "127.0.0.1:1", "stats", address, "-o", "json")
	var v map[string]map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil || status != cli.ExitOK || len(v["lif"]) != 1 {
		t.Errorf("stats %s: status %d, %v, %s\n%s", address, status, err, errs, out)
	}
}

func TestStats_SaysWhyNot(t *testing.T) {
	m := startMesh(t)
	id, _ := m.countingWorker("alpha", false)
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{id, cli.ExitFailure, "needs --status"},
		{"77", cli.ExitFailure, "there is no node 77"},
		{"0", cli.ExitUsage, "is the manager"},
		{"alpha", cli.ExitUsage, `"alpha" is neither a node id nor host:port`},
		{"127.0.0.1:1", cli.ExitFailure, "the worker at 127.0.0.1:1 cannot be reached"},
		{"-o yaml " + id, cli.ExitUsage, `--output "yaml" is none of text, json`},
		{m.address, cli.ExitFailure, "is no worker of this version"},
	} {
		status, out, errs := ernictl(t, append([]string{"--manager", m.address, "stats"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("stats %s: status %d, %q, %q", c.args, status, out, errs)
		}
	}
}

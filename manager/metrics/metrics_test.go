// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager"
)

func TestAManagersCountersAreMetrics(t *testing.T) {
	m, err := manager.New(manager.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&Collector{Counters: m.Counters}).Serve(ctx, l) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	for _, want := range []string{
		"# TYPE ernic_manager_gid_conflicts gauge\nernic_manager_gid_conflicts 0\n",
		"# TYPE ernic_manager_relay_opened_total counter\nernic_manager_relay_opened_total 0\n",
		"ernic_manager_gid_conflict_total 0\n", "ernic_manager_nodes 0\n", "go_goroutines ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

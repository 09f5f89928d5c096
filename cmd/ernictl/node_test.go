// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
)

func TestLinksShowsBothEndsAsTheyWereReported(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha")
	m.worker("beta")
	status, out, errs := ernictl(t, "links", "--manager", m.address)
	if status != 0 || len(cells(out)) != 5 || strings.Join(cells(out)[1], " ") != "1 8 up 4 direct 40µs 0 0 0 -" {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	status, out, _ = ernictl(t, "links", "2", "--manager", m.address, "-o", "json")
	var links []link
	if err := json.Unmarshal([]byte(out), &links); err != nil || status != 0 || len(links) != 2 || links[0].Node != 2 || links[1].Peer != 9 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
	if status, _, errs := ernictl(t, "links", "7", "--manager", m.address); status != 1 || !strings.Contains(errs, "no node 7") {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, _, errs := ernictl(t, "links", "one", "--manager", m.address); status != 2 || !strings.Contains(errs, `"one" is no node id`) {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestNodeShowTellsAllThatIsKnown(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha", "10.0.0.1")
	status, out, errs := ernictl(t, "node", "show", "1", "--manager", m.address)
	for _, want := range []string{"alpha:7000", "attached", "10.0.0.1", "v-worker", "ms to the manager's", "40µs", "active"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q: status %d\n%s%s", want, status, out, errs)
		}
	}
	_, out, _ = ernictl(t, "node", "show", "0", "1", "--manager", m.address, "-o", "json")
	var asJSON []map[string]any
	if err := json.Unmarshal([]byte(out), &asJSON); err != nil || len(asJSON) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	if n := asJSON[1]; n["name"] != "alpha" || len(n["link_ends"].([]any)) != 2 || len(n["claimed_gids"].([]any)) != 1 || n["clock_skew_ms"] == nil {
		t.Errorf("%v", n)
	}
	_, out, _ = ernictl(t, "node", "show", "1", "--manager", m.address, "-o", "yaml")
	var asYAML []map[string]any
	if err := yaml.Unmarshal([]byte(out), &asYAML); err != nil || len(asYAML) != 1 || len(asYAML[0]) != len(asJSON[1]) {
		t.Errorf("%v: %s", err, out)
	}
	if status, _, errs := ernictl(t, "node", "show", "9", "--manager", m.address); status != 1 || !strings.Contains(errs, "no node 9") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestEventsTellWhatHappenedAndWhy(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha", "10.0.0.7")
	m.worker("beta", "10.0.0.7")
	if status, _, errs := ernictl(t, "node", "evict", "1", "--reason", "broken fan", "--manager", m.address); status != 0 {
		t.Fatal(errs)
	}
	_, out, _ := ernictl(t, "events", "--manager", m.address, "-o", "json")
	var order []string
	for line := range strings.Lines(out) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Time == nil || e.Sequence != uint64(len(order)+1) {
			t.Errorf("event %s", line)
		}
		order = append(order, e.Event)
		if e.Event == "node_evicted" && (!strings.Contains(e.Text, "broken fan (by somebody at 127.0.0.1:") || !e.Grave || e.Node != 1) {
			t.Errorf("event %s", line)
		}
	}
	got := strings.Join(order, " ")
	for _, want := range []string{
		"node_joined gid_claimed gid_owner node_joined gid_claimed gid_owner gid_conflict", "node_evicted gid_owner gid_conflict_over",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("events %s, want %s", got, want)
		}
	}
	_, out, _ = ernictl(t, "events", "--last", "2", "--manager", m.address)
	if rows := cells(out); len(rows) != 3 {
		t.Errorf("the last two:\n%s", out)
	}
}

// TestEventsFollow shows an event that comes later, and ends without an error when the user has seen enough.
func TestEventsFollow(t *testing.T) {
	m := startMesh(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		root := command()
		root.SetOut(w)
		done <- cli.Run(ctx, root, []string{"events", "--follow", "--manager", m.address, "-o", "json"}, &bytes.Buffer{})
		w.Close()
	}()
	m.worker("late")
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `worker \"late\" at`) {
			cancel()
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if status := <-done; status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestNodeDrainAsksAWorkerToEnd(t *testing.T) {
	m := startMesh(t)
	alpha, _ := m.worker("alpha") // has a guest
	_, stop := m.worker("beta")
	status, out, errs := ernictl(t, "node", "drain", "1", "2", "--manager", m.address)
	if status != 0 || !strings.Contains(out, "node 1 ends when its guest leaves") || !strings.Contains(out, "node 2 has no guest") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	eventually(t, func() bool { return m.drained.Load() == 2 })
	if _, ok := alpha.NodeID(); !ok {
		t.Error("the worker is gone")
	}
	stop()
	if status, _, errs := ernictl(t, "node", "drain", "2", "--manager", m.address); status != 1 || !strings.Contains(errs, "no node 2") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestNodeLinkTakesALinkDownAndLeavesItToItsWire(t *testing.T) {
	m := startMesh(t)
	m.worker("alpha")
	shows := func(want string) {
		t.Helper()
		eventually(t, func() bool {
			_, out, _ := ernictl(t, "node", "show", "1", "--manager", m.address)
			return strings.Contains(out, want)
		})
	}
	shows("carrier up")
	status, out, errs := ernictl(t, "node", "link", "1", "down", "--manager", m.address)
	if status != 0 || !strings.Contains(out, "node 1 takes its link down") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	eventually(t, func() bool { return m.cut.Load() == 1 })
	shows("link taken down by an operator")
	if status, out, errs := ernictl(t, "node", "link", "1", "up", "--manager", m.address); status != 0 {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	eventually(t, func() bool { return m.cut.Load() == 0 })
	shows("carrier up")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"1", "sideways"}, 2, `link state "sideways" is neither up nor down`},
		{[]string{"7", "down"}, 1, "no node 7"},
		{[]string{"0", "down"}, 1, "node 0 is the manager"},
		{[]string{"1"}, 2, "2 arg"},
	} {
		args := append(append([]string{"node", "link"}, c.args...), "--manager", m.address)
		if status, _, errs := ernictl(t, args...); status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, errs)
		}
	}
}

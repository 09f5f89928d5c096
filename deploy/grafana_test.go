// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/meshport"
)

// shown are the metrics that there are, with the values of their label
// "counter".
type shown map[string]map[string]bool

func (s shown) add(name, counter string) {
	if s[name] == nil {
		s[name] = map[string]bool{}
	}
	s[name][counter] = true
}

var (
	sample      = regexp.MustCompile(`(?m)^([a-z][a-z0-9_]*)(?:\{(.*)\})? `)
	counterOf   = regexp.MustCompile(`counter="([^"]*)"`)
	metricUse   = regexp.MustCompile(`\b(?:ernic|process|go)_[a-z0-9_]+`)
	selectorUse = regexp.MustCompile(`\b((?:ernic|process|go)_[a-z0-9_]+)\{counter=(~?)"([^"]*)"`)
)

// metrics asks a worker and a manager what they show.
func metrics(t *testing.T) shown {
	t.Helper()
	s := shown{}
	m, err := manager.New(manager.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Counters() {
		s.add("ernic_manager_"+name, "")
	}
	for _, found := range sample.FindAllStringSubmatch(scrape(t), -1) {
		counter := ""
		if c := counterOf.FindStringSubmatch(found[2]); c != nil {
			counter = c[1]
		}
		s.add(found[1], counter)
	}
	(&meshport.Counters{}).Each(func(name string, _ uint64) { s.add("ernic_carrier_stats_total", "lan_"+name) })
	return s
}

// scrape returns the metrics of a worker that talks to itself.
func scrape(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ernic-deploy-") // short, for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	set, err := profile.Load("small-vm")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // complete when New returns, and read before Run
	w, err := worker.New(worker.Config{
		Name: "vm1", Socket: filepath.Join(dir, "s"), MAC: [6]byte{2, 0, 0, 0, 0, 1}, Profile: set,
		Fabric: worker.FabricLoopback, Observe: worker.Observe{Metrics: "127.0.0.1:0"}, Log: zerolog.New(zerolog.SyncWriter(&log)),
	})
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Address, Message string }
	for line := range bytes.Lines(log.Bytes()) {
		if err := json.Unmarshal(line, &said); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(said.Message, "metrics are at") {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + said.Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", r.StatusCode, err)
	}
	return string(body)
}

func TestDashboard_ShowsMetricsThatThereAre(t *testing.T) {
	there := metrics(t)
	var board struct {
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/ernic.json")), &board); err != nil {
		t.Fatal(err)
	}
	asked := 0
	check := func(where, text string) {
		for _, name := range metricUse.FindAllString(text, -1) {
			asked++
			if there[name] == nil {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
		for _, use := range selectorUse.FindAllStringSubmatch(text, -1) {
			choices := []string{regexp.QuoteMeta(use[3])}
			if use[2] == "~" {
				choices = []string{use[3]}
				if !strings.Contains(use[3], "(") {
					choices = strings.Split(use[3], "|")
				}
			}
			for _, choice := range choices {
				wanted, found := regexp.MustCompile("^(?:"+choice+")$"), false
				for counter := range there[use[1]] {
					found = found || wanted.MatchString(counter)
				}
				if !found {
					t.Errorf("%s: %s has no counter %s", where, use[1], choice)
				}
			}
		}
	}
	for _, v := range board.Templating.List {
		check("variable "+v.Name, v.Definition)
	}
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			before := asked
			if check("panel "+p.Title, target.Expr); asked == before {
				t.Errorf("panel %q asks for nothing: %s", p.Title, target.Expr)
			}
		}
	}
	if asked < 40 {
		t.Errorf("the dashboard asks for %d metrics only", asked)
	}
}

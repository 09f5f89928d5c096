// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// alone is the configuration of a worker without mesh and port.
func alone(t *testing.T, o Observe) Config {
	t.Helper()
	set, err := profile.Load("small-vm")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Name: "vm1", Socket: filepath.Join(t.TempDir(), "s"), MAC: [6]byte{2, 0, 0, 0, 0, 1},
		Profile: set, Fabric: FabricLoopback, Observe: o, Log: zerolog.Nop(),
	}
}

func TestObserve_FileAndMetricsShowTheWorker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats.json")
	w, err := New(alone(t, Observe{StatsFile: path, StatsFormat: section.JSON, Metrics: "127.0.0.1:0"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	b, err := os.ReadFile(path) // there before Run
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Instance struct {
			Name    string `json:"name"`
			Profile string `json:"nic_profile"`
			Hash    string `json:"nic_profile_hash"`
			LIF     string `json:"lif"`
		} `json:"instance"`
		Mesh struct {
			Peer map[string]struct {
				State string `json:"state"`
			} `json:"peer"`
		} `json:"mesh"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if i := v.Instance; i.Name != "vm1" || !strings.Contains(i.Profile, "small-vm") || len(i.Hash) != 16 || i.LIF != "none" {
		t.Errorf("instance %+v", i)
	}
	if v.Mesh.Peer["1"].State != "up" {
		t.Errorf("the loopback is shown as %+v", v.Mesh.Peer)
	}
	client := &http.Client{Timeout: 20 * time.Second}
	r, err := client.Get("http://" + w.observers.metrics.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	client.CloseIdleConnections()
	if err != nil || !strings.Contains(string(body), `ernic_lif_counter_total{counter="tx_ucast_bytes"} 0`) {
		t.Errorf("metrics: %v\n%s", err, body)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	after, err := os.Stat(path)
	if err != nil || os.SameFile(before, after) {
		t.Errorf("the file is not written at the end (%v)", err)
	}
	if _, err := net.Dial("tcp", w.observers.metrics.Addr().String()); err == nil {
		t.Error("the metrics listener is left open")
	}
}

func TestObserve_ASecondWorkerOfTheHostTakesTheMetricsOverWhenTheFirstLeaves(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().String()
	log := &syncBuffer{}
	c := alone(t, Observe{Metrics: address, MetricsIfFree: true})
	c.Log = zerolog.New(log)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "--metrics-listen") || !strings.Contains(text, address) {
		t.Errorf("the warning names neither flag nor address:\n%s", text)
	}
	w.observers.retry = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if text := log.String(); strings.Contains(text, "metrics are at") {
		t.Errorf("two have the address:\n%s", text)
	}
	first.Close()
	client := &http.Client{Timeout: 20 * time.Second}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := client.Get("http://" + address + "/metrics")
		if err == nil {
			r.Body.Close()
			client.CloseIdleConnections()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nobody answers at the address that is free: %v\n%s", err, log.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	c = alone(t, Observe{Metrics: second.Addr().String()})
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), c.Observe.Metrics) {
		t.Errorf("an address that was asked for and is taken: %v", err)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestObserve_RefusesAtTheStartWhatCannotWork(t *testing.T) {
	for name, o := range map[string]Observe{
		"no directory": {StatsFile: filepath.Join(t.TempDir(), "missing", "f")},
		"format":       {StatsFormat: "xml"},
		"queue pairs":  {StatsQPs: 1 << 20},
		"address":      {Metrics: "127.0.0.1:notaport"},
	} {
		c := alone(t, o)
		if _, err := New(c); err == nil {
			t.Errorf("%s: the worker starts", name)
		}
		if _, err := os.Stat(c.Socket); err == nil {
			t.Errorf("%s: the socket is left behind", name)
		}
	}
}

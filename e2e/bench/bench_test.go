// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMedianAndQuantiles(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v = %v, want %v", c.v, got, c.want)
		}
	}
	var d []time.Duration
	for i := 101; i > 0; i-- {
		d = append(d, time.Duration(i)*time.Microsecond)
	}
	if q := quantilesOf(d); q != (quantiles{51, 100}) {
		t.Errorf("quantiles of 1..101 us: %+v", q)
	}
	if q := medianQuantiles([]quantiles{{1, 9}, {3, 5}, {2, 7}}); q != (quantiles{2, 7}) {
		t.Errorf("median of quantiles: %+v", q)
	}
}

func TestSinkCopiesAndAnswersTheLastMessage(t *testing.T) {
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- sink(far, 1000) }()
	rate, err := tcpBandwidth(near, 1000, time.Millisecond)
	if err != nil || rate <= 0 {
		t.Errorf("bandwidth %v, %v", rate, err)
	}
	near.Close()
	if err := <-done; err != nil {
		t.Errorf("sink: %v", err)
	}
}

func TestEchoMeasuresRoundTrips(t *testing.T) {
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- echo(far) }()
	trips, err := tcpPing(near, time.Millisecond)
	if err != nil || len(trips) == 0 {
		t.Errorf("%d round trips, %v", len(trips), err)
	}
	near.Close()
	if err := <-done; err != nil {
		t.Errorf("echo: %v", err)
	}
}

func TestCPUTimeGrowsWithWork(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for x := 0; ; x++ {
		if x%1e6 != 0 {
			continue
		}
		if now, err := cpuTime(os.Getpid()); err != nil || now > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no CPU time was counted in a minute of work")
		}
	}
}

func TestReportSaysWhatItFound(t *testing.T) {
	r := newReport(options{bins: []string{"bin", "old"}, rounds: 3, round: time.Second})
	for i := range r.Builds {
		b := &r.Builds[i]
		b.Bandwidth = []bandwidth{{Size: 1 << 20, RDMA: 1.5e9, TCP: 3e9, Ratio: 0.5, CPU: 432}}
		b.Latency.TCP.P50 = 20
		b.Idle = []idle{{"worker 1", 0.25}}
	}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{"1 MiB", "1500 MB/s", "0.50", "432 us/MiB", "0.25 %", "old"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, &out)
		}
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(b, &back); err != nil || len(back.Builds) != 2 || back.Builds[1].Bandwidth[0] != r.Builds[1].Bandwidth[0] {
		t.Errorf("JSON reads back as %+v, %v", back, err)
	}
}

func TestMissingWorkerIsNamed(t *testing.T) {
	_, err := start(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "ernic-worker") {
		t.Errorf("error %v does not name the program", err)
	}
}

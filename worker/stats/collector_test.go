// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

func TestMetrics_NamesAreWhatPrometheusAsksFor(t *testing.T) {
	c := &Collector{Source: newSource(t, twoPeers()...), QPs: 10}
	problems, err := testutil.GatherAndLint(c.Registry())
	if err != nil {
		t.Fatal(err)
	}
	wantLinted(t, problems)
	// A pedantic registry finds what Describe does not announce.
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "ernic_") || f.GetHelp() == "" {
			t.Errorf("metric %s has no help or another prefix", f.GetName())
		}
	}
}

// snapshotMetrics collects the parts of a made-up snapshot.
type snapshotMetrics struct{ s *Snapshot }

func (m snapshotMetrics) Describe(ch chan<- *prometheus.Desc) { (&Collector{}).Describe(ch) }

func (m snapshotMetrics) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	e.block(lifCounter, m.s.LIF[:], abi.LIFStatNames[:])
	e.block(portStats, m.s.Port[:], abi.PortStatNames[:])
	e.qps(m.s.QPs)
	e.mesh(m.s)
}

func TestMetrics_QueuePairsAndPeersPassTheLinter(t *testing.T) {
	problems, err := testutil.CollectAndLint(snapshotMetrics{full()})
	if err != nil {
		t.Fatal(err)
	}
	wantLinted(t, problems)
}

// wantLinted accepts one remark: ernic_lif_counter_total is the name under which
// dashboards for this NIC know the LIF counters.
func wantLinted(t *testing.T, problems []promlint.Problem) {
	t.Helper()
	for _, p := range problems {
		if p.Metric != "ernic_lif_counter_total" || p.Text != "metric name should not include type 'counter'" {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMetrics_CarryEveryCounterUnderItsName(t *testing.T) {
	s := full()
	for i := range s.Port {
		s.Port[i] = 5000 + uint64(i)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(snapshotMetrics{s})
	got := scrape(t, r)
	want := map[string]uint64{
		`ernic_qp_info{peer_qp="9",qp="2",state="RTS",type="RC"}`:              1,
		`ernic_qp_stats_total{counter="tx_rdma_ucast_bytes",qp="77"}`:          12,
		`ernic_mesh_peers{state="backoff"}`:                                    1,
		`ernic_mesh_stats_total{counter="tx_frames"}`:                          8,
		`ernic_mesh_peer_frames_total{direction="tx",peer="3"}`:                1000,
		`ernic_mesh_peer_bytes_total{direction="rx",peer="4"}`:                 900,
		`ernic_mesh_peer_drops_total{peer="4"}`:                                6,
		`ernic_mesh_stats_total{counter="drop_link_down"}`:                     6,
		`ernic_mesh_stats_total{counter="connect_failures"}`:                   2,
		fmt.Sprintf(`ernic_lif_counter_total{counter=%q}`, "tx_ucast_packets"): 1017,
	}
	for i, name := range abi.LIFStatNames {
		if name != "" {
			want[fmt.Sprintf("ernic_lif_counter_total{counter=%q}", name)] = s.LIF[i]
		}
	}
	for i, name := range abi.PortStatNames {
		want[fmt.Sprintf("ernic_port_stats_total{counter=%q}", name)] = s.Port[i]
	}
	for name, v := range want {
		if got[name] != fmt.Sprint(v) {
			t.Errorf("%s is %q, want %d", name, got[name], v)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "ernic_mesh_stats_total") && (strings.Contains(name, "rtt") || strings.Contains(name, "queued_")) {
			t.Errorf("%s can go down and is a counter", name)
		}
	}
	if got[`ernic_mesh_peer_rtt_seconds{peer="4"}`] != "0.002" {
		t.Errorf("round trip %q", got[`ernic_mesh_peer_rtt_seconds{peer="4"}`])
	}
}

// scrape is what a registry shows, by series.
func scrape(t *testing.T, r *prometheus.Registry) map[string]string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = fmt.Sprint(v)
		}
	}
	return out
}

func TestServe_AnswersAndEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := &Collector{Source: newSource(t, twoPeers()...)}
	go func() { done <- c.Serve(ctx, l) }()
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	status, body := get("/metrics")
	for _, w := range []string{
		`ernic_lif_counter_total{counter="rx_ucast_bytes"} 0`, `ernic_lif_counter_total{counter="rdma_resp_tx_rnr_retry_err"} 0`,
		`ernic_port_stats_total{counter="frames_tx_truncated"} 0`, `ernic_mesh_peers{state="up"} 1`,
		`ernic_carrier_stats_total{counter="packets_no_route"} 5`, `ernic_vfio_user_stats_total{counter="sessions"} 0`,
		`nic_profile="compat > small-vm"`, "process_cpu_seconds_total", "go_goroutines",
	} {
		if status != http.StatusOK || !strings.Contains(body, w) {
			t.Errorf("status %d, and the answer lacks %s", status, w)
		}
	}
	if strings.Contains(body, "ernic_qp_") {
		t.Error("queue pairs have series nobody asked for")
	}
	if status, _ := get("/"); status != http.StatusNotFound {
		t.Errorf("status %d for another path", status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, peers := range []int{2, 128} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			r := (&Collector{Source: newSource(b, manyPeers(peers)...)}).Registry()
			b.ReportAllocs()
			series := 0
			for b.Loop() {
				families, err := r.Gather()
				if err != nil {
					b.Fatal(err)
				}
				series = 0
				for _, f := range families {
					series += len(f.GetMetric())
				}
			}
			b.ReportMetric(float64(series), "series")
		})
	}
}

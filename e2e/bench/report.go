// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report is what one run found. Rates are medians over the rounds; bandwidth is
// in bytes per second, time in microseconds.
type report struct {
	When        time.Time   `json:"when"`
	Machine     machine     `json:"machine"`
	Rounds      int         `json:"rounds"`
	RoundTime   string      `json:"round_time"`
	Bandwidth   []bandwidth `json:"rc_write_bandwidth"`
	Latency     latency     `json:"latency_64_bytes"`
	Messages    messages    `json:"send_64_bytes"`
	Allocations []allocs    `json:"allocations"`
	Idle        []idle      `json:"idle_workers"`
}

type machine struct {
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

type bandwidth struct {
	Size  int     `json:"size"`
	RDMA  float64 `json:"rc_write"`
	TCP   float64 `json:"tcp"`
	Ratio float64 `json:"ratio"`
}

type quantiles struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

type latency struct {
	Send     quantiles `json:"send_post_to_completion"`
	PingPong quantiles `json:"send_ping_pong"`
	TCP      quantiles `json:"tcp_ping_pong"`
}

type messages struct {
	PerSecond float64 `json:"per_second"`
}

// allocs are heap allocations of the two workers and the driver together.
type allocs struct {
	What       string  `json:"what"`
	Messages   int     `json:"messages"`
	PerMessage float64 `json:"per_message"`
}

type idle struct {
	Worker  string  `json:"worker"`
	Percent float64 `json:"cpu_percent"`
}

func newReport(o options) *report {
	return &report{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine{runtime.NumCPU(), runtime.Version()},
		Rounds: o.rounds, RoundTime: o.round.String(),
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func quantilesOf(d []time.Duration) quantiles {
	if len(d) == 0 {
		return quantiles{}
	}
	d = slices.Sorted(slices.Values(d))
	us := func(q float64) float64 { return float64(d[int(q*float64(len(d)-1))]) / float64(time.Microsecond) }
	return quantiles{us(0.5), us(0.99)}
}

func medianQuantiles(q []quantiles) quantiles {
	var p50, p99 []float64
	for _, v := range q {
		p50, p99 = append(p50, v.P50), append(p99, v.P99)
	}
	return quantiles{median(p50), median(p99)}
}

func bytesText(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) {
		for _, c := range cells {
			fmt.Fprint(w, c, "\t")
		}
		fmt.Fprintln(w)
	}
	num := func(format string, v float64) string { return fmt.Sprintf(format, v) }
	fmt.Fprintf(out, "medians of %d rounds of %s, %d CPUs, %s\n\n", r.Rounds, r.RoundTime, r.Machine.CPUs, r.Machine.Go)
	row("RC WRITE", "this fabric", "plain TCP", "ratio")
	for _, b := range r.Bandwidth {
		row(bytesText(b.Size), num("%.0f MB/s", b.RDMA/1e6), num("%.0f MB/s", b.TCP/1e6), num("%.2f", b.Ratio))
	}
	row()
	row("64 bytes", "p50", "p99", "p50 : TCP")
	for _, l := range []struct {
		name string
		q    quantiles
	}{{"SEND, post to completion", r.Latency.Send}, {"SEND ping-pong", r.Latency.PingPong}, {"TCP ping-pong", r.Latency.TCP}} {
		row(l.name, num("%.1f us", l.q.P50), num("%.1f us", l.q.P99), num("%.2f", l.q.P50/r.Latency.TCP.P50))
	}
	row()
	row("64-byte SENDs", num("%.0f/s", r.Messages.PerSecond))
	for _, a := range r.Allocations {
		row("allocations per "+a.What, num("%.4f", a.PerMessage))
	}
	for _, i := range r.Idle {
		row("CPU of idle "+i.Worker, num("%.2f %%", i.Percent))
	}
	w.Flush()
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

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
	When        time.Time `json:"when"`
	Machine     machine   `json:"machine"`
	Rounds      int       `json:"rounds"`
	RoundTime   string    `json:"round_time"`
	Builds      []build   `json:"builds"`
	Allocations []allocs  `json:"allocations"` // of this program's own build
}

// build is what was found of one build of the worker. CPU is the CPU time of
// both workers in microseconds: per MiB, per SEND with its wait, per SEND.
type build struct {
	Bin       string      `json:"bin"`
	Bandwidth []bandwidth `json:"rc_write_bandwidth"`
	Latency   latency     `json:"latency_64_bytes"`
	Messages  messages    `json:"send_64_bytes"`
	Idle      []idle      `json:"idle_workers"`
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
	CPU   float64 `json:"worker_cpu_us_per_mib"`
}

type quantiles struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

type latency struct {
	Send     quantiles `json:"send_post_to_completion"`
	PingPong quantiles `json:"send_ping_pong"`
	TCP      quantiles `json:"tcp_ping_pong"`
	CPU      float64   `json:"worker_cpu_us"`
}

type messages struct {
	PerSecond float64 `json:"per_second"`
	CPU       float64 `json:"worker_cpu_us"`
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
	r := &report{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine{runtime.NumCPU(), runtime.Version()},
		Rounds: o.rounds, RoundTime: o.round.String(),
	}
	for _, bin := range o.bins {
		r.Builds = append(r.Builds, build{Bin: bin})
	}
	return r
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
	for i := range r.Builds {
		b := &r.Builds[i]
		if len(r.Builds) > 1 {
			row(b.Bin)
		}
		row("RC WRITE", "this fabric", "plain TCP", "ratio", "workers' CPU")
		for _, v := range b.Bandwidth {
			row(bytesText(v.Size), num("%.0f MB/s", v.RDMA/1e6), num("%.0f MB/s", v.TCP/1e6), num("%.2f", v.Ratio), num("%.0f us/MiB", v.CPU))
		}
		row()
		row("64 bytes", "p50", "p99", "p50 : TCP", "workers' CPU")
		l := &b.Latency
		row("SEND, post to completion", num("%.1f us", l.Send.P50), num("%.1f us", l.Send.P99), num("%.2f", l.Send.P50/l.TCP.P50), num("%.1f us", l.CPU))
		row("SEND ping-pong", num("%.1f us", l.PingPong.P50), num("%.1f us", l.PingPong.P99), num("%.2f", l.PingPong.P50/l.TCP.P50))
		row("TCP ping-pong", num("%.1f us", l.TCP.P50), num("%.1f us", l.TCP.P99))
		row()
		row("64-byte SENDs", num("%.0f/s", b.Messages.PerSecond), "", "", num("%.2f us", b.Messages.CPU))
		for _, i := range b.Idle {
			row("CPU of idle "+i.Worker, num("%.2f %%", i.Percent))
		}
		row()
	}
	for _, a := range r.Allocations {
		row("allocations per "+a.What, num("%.4f", a.PerMessage))
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

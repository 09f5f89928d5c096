// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report is what one run found. Times are in milliseconds, sizes in bytes.
type report struct {
	When    time.Time `json:"when"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Workers int       `json:"workers"`
	Claims  int       `json:"claims"`

	Storm          storm          `json:"registration_storm"`
	Claim          quantiles      `json:"claim_propagation"`
	Release        quantiles      `json:"release_propagation"`
	Rest           atRest         `json:"manager_at_rest"`
	WorkerRestart  quantiles      `json:"worker_killed_and_started"`
	ManagerRestart managerRestart `json:"manager_killed_and_started"`
}

// storm is the start of all workers at once.
type storm struct {
	Registered float64 `json:"registered_ms"` // until the last one had its id
	Whole      float64 `json:"whole_ms"`      // until all knew of all
	ManagerCPU float64 `json:"manager_cpu_s"`
}

type quantiles struct {
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Worst   float64 `json:"worst_ms"`
}

type atRest struct {
	CPU      float64 `json:"cpu_percent"`
	Resident uint64  `json:"resident_bytes"`
	Peak     uint64  `json:"peak_bytes"`
	Stored   int64   `json:"stored_bytes"`
}

type managerRestart struct {
	Listening float64 `json:"listening_ms"` // from the start of the process
	Whole     float64 `json:"whole_ms"`     // likewise
}

func newReport(o options) *report {
	return &report{
		When: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), Workers: o.workers, Claims: o.claims,
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantilesOf(d []time.Duration) quantiles {
	if len(d) == 0 {
		return quantiles{}
	}
	d = slices.Sorted(slices.Values(d))
	// The least sample that a share q of all is not above.
	at := func(q float64) float64 { return milliseconds(d[max(0, int(math.Ceil(q*float64(len(d))))-1)]) }
	return quantiles{len(d), at(0.5), at(0.99), at(1)}
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "%d workers, %d addresses, one manager; all on %d CPUs, %s\n\n", r.Workers, r.Claims, r.CPUs, r.Go)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50\tp99\tworst\t")
	for _, q := range []struct {
		name string
		quantiles
	}{
		{"claim resolves at a worker", r.Claim}, {"release is known at a worker", r.Release},
		{"killed worker, from its next start: address resolves at a worker", r.WorkerRestart},
	} {
		fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t\n", q.name, q.P50, q.P99, q.Worst)
	}
	w.Flush()
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	const mib = 1 << 20
	for _, l := range []struct {
		name   string
		value  float64
		format string
	}{
		{"start of all at once: all registered", r.Storm.Registered / 1000, "%.2f s"},
		{"start of all at once: all know of all", r.Storm.Whole / 1000, "%.2f s"},
		{"CPU time of the manager for that", r.Storm.ManagerCPU, "%.2f s"},
		{"killed manager, from its next start: it listens", r.ManagerRestart.Listening / 1000, "%.2f s"},
		{"killed manager, from its next start: all are back", r.ManagerRestart.Whole / 1000, "%.2f s"},
		{"manager at rest: CPU", r.Rest.CPU, "%.2f %%"},
		{"manager at rest: memory", float64(r.Rest.Resident) / mib, "%.0f MiB"},
		{"manager: most memory", float64(r.Rest.Peak) / mib, "%.0f MiB"},
		{"manager: state on disk", float64(r.Rest.Stored) / mib, "%.1f MiB"},
	} {
		fmt.Fprintf(w, "%s\t"+l.format+"\t\n", l.name, l.value)
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

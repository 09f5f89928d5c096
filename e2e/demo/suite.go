// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

// result is the median of one test.
type result struct {
	Test   string  `json:"test"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	// LessIsBetter is true for times.
	LessIsBetter bool      `json:"less_is_better"`
	Runs         []float64 `json:"runs"`
}

type results []result

// suite is a pair of guests with an RDMA device.
type suite struct {
	pair           *site.Pair
	device         string
	server, client string // IPv4 addresses
	runs           int
	progress       *image.Progress
	gids           [2]string // index of each guest's RoCEv2 GID
}

func guestShell(format string, args ...any) guest.Cmd { return guest.Shellf(format, args...) }

// gidIndex looks up the entry of an IPv4 address in the GID table.
const gidIndex = `cd /sys/class/infiniband/%s/ports/1
for i in $(seq 0 255); do
  g=$(cat gids/$i 2>/dev/null) || break
  [ "$g" = "%s" ] && grep -q v2 gid_attrs/types/$i && { echo $i; exit 0; }
done
echo 'no RoCEv2 GID for the address' >&2; exit 1`

func (s *suite) prepare(ctx context.Context) error {
	for i, g := range []*guest.Guest{s.pair.Server, s.pair.Client} {
		ip := []string{s.server, s.client}[i]
		var a, b, c, d int
		if _, err := fmt.Sscanf(ip, "%d.%d.%d.%d", &a, &b, &c, &d); err != nil {
			return fmt.Errorf("address %q: %w", ip, err)
		}
		gid := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a, b, c, d)
		r, err := g.Run(ctx, guestShell(gidIndex, s.device, gid))
		if err != nil {
			return err
		}
		s.gids[i] = strings.TrimSpace(r.Stdout)
	}
	return nil
}

// test is one line of the table.
type test struct {
	name, unit   string
	lessIsBetter bool
	server       func(s *suite, port int) string
	client       func(s *suite, port int) string
	read         func(o site.Outcome) (float64, error)
}

func tests() []test {
	t := []test{
		{
			name: "ibv_rc_pingpong 4 KiB", unit: "us/iter", lessIsBetter: true,
			server: func(s *suite, port int) string {
				return fmt.Sprintf("ibv_rc_pingpong -d %s -c -n 300 -g %s -p %d", s.device, s.gids[0], port)
			},
			client: func(s *suite, port int) string {
				return fmt.Sprintf("ibv_rc_pingpong -d %s -c -n 300 -g %s -p %d %s", s.device, s.gids[1], port, s.server)
			},
			read: func(o site.Outcome) (float64, error) {
				p, err := toolout.ParsePingpong(o.Client.Stdout + o.Client.Stderr)
				return p.PerIter, err
			},
		},
		{
			name: "iperf3 TCP, 3 s", unit: "Mbit/s",
			server: func(_ *suite, port int) string { return fmt.Sprintf("iperf3 -s -1 -p %d", port) },
			client: func(s *suite, port int) string { return fmt.Sprintf("iperf3 -J -t 3 -p %d -c %s", port, s.server) },
			read: func(o site.Outcome) (float64, error) {
				r, err := toolout.ParseIperf(o.Client.Stdout)
				return r / 1e6, err
			},
		},
	}
	for _, p := range []struct {
		program string
		size    int
		label   string
		n       int
	}{
		{"ib_write_bw", 65536, "64 KiB", 300}, {"ib_write_bw", 1 << 20, "1 MiB", 60},
		{"ib_send_bw", 65536, "64 KiB", 300}, {"ib_read_bw", 65536, "64 KiB", 300},
		{"ib_send_lat", 64, "64 B", 300}, {"ib_send_lat", 4096, "4 KiB", 300},
		{"ib_write_lat", 64, "64 B", 300}, {"ib_read_lat", 64, "64 B", 300},
	} {
		line := func(s *suite, i, port int) string {
			return fmt.Sprintf("%s -F -d %s -x %s -s %d -n %d -p %d", p.program, s.device, s.gids[i], p.size, p.n, port)
		}
		latency := strings.HasSuffix(p.program, "_lat")
		unit := "MiB/s"
		if latency {
			unit = "us, typical"
		}
		t = append(t, test{
			name: p.program + " " + p.label, unit: unit, lessIsBetter: latency,
			server: func(s *suite, port int) string { return line(s, 0, port) },
			client: func(s *suite, port int) string { return line(s, 1, port) + " " + s.server },
			read: func(o site.Outcome) (float64, error) {
				if latency {
					l, err := toolout.ParseLatency(o.Client.Stdout)
					return l.Typical, err
				}
				b, err := toolout.ParseBandwidth(o.Client.Stdout)
				return b.Average, err
			},
		})
	}
	return t
}

// measure pings both ways and then runs every test as often as asked.
func measure(ctx context.Context, s *suite) (results, error) {
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	for i, g := range []*guest.Guest{s.pair.Client, s.pair.Server} {
		r, err := g.Run(ctx, guestShell("ping -c 1 -w 60 %s >/dev/null; ping -i 0.1 -c 5 -W 60 %[1]s", []string{s.server, s.client}[i]))
		if err != nil {
			return nil, err
		}
		sent, got, err := toolout.ParsePing(r.Stdout)
		if err != nil {
			return nil, err
		}
		s.progress.Sayf("ping from %s: %d of %d answered", g.Name(), got, sent)
	}
	var all results
	for _, t := range tests() {
		r := result{Test: t.name, Unit: t.unit, LessIsBetter: t.lessIsBetter}
		for range s.runs {
			v, err := s.run(ctx, t)
			if err != nil {
				return nil, err
			}
			r.Runs = append(r.Runs, v)
		}
		sorted := slices.Sorted(slices.Values(r.Runs))
		r.Median = sorted[len(sorted)/2]
		s.progress.Sayf("%-24s %10.1f %s", r.Test, r.Median, r.Unit)
		all = append(all, r)
	}
	return all, nil
}

// attempts is how often a run is tried that could not measure.
const attempts = 5

// run runs a test once. perftest has to find out how fast the processor's clock is,
// which may fail on a busy emulated machine: then its rates are 0 and its times
// endless, and it runs again. 0 is returned if it never can.
func (s *suite) run(ctx context.Context, t test) (float64, error) {
	for range attempts {
		port := s.pair.Port()
		o, err := s.pair.Run(ctx, port, t.server(s, port), t.client(s, port))
		if err != nil {
			return 0, err
		}
		v, err := t.read(o)
		if err != nil {
			return 0, err
		}
		if v > 0 && !math.IsInf(v, 0) {
			return v, nil
		}
	}
	s.progress.Sayf("%s: the machine is too busy to measure its clock", t.name)
	return 0, nil
}

// SPDX-License-Identifier: Apache-2.0

// Command ethbench measures the Ethernet half in real guests, from one run: pairs
// of guests whose LIFs are on the mesh or on TAPs, with offloads and without, and
// a pair with virtio-net between them. All pairs are there at the same time and
// take turns, so that what disturbs the machine disturbs all; medians are told.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

func main() {
	bin := flag.String("bin", "bin", "`directory` with the built programs")
	rounds := flag.Int("rounds", 3, "`number` of runs of each test; the median counts")
	seconds := flag.Int("seconds", 5, "`seconds` of a run")
	asJSON := flag.Bool("json", false, "print the figures as JSON")
	flag.Parse()
	if *rounds < 1 || *seconds < 1 || flag.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "ethbench: rounds and seconds must be positive, and there are no arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b := &bench{bin: *bin, rounds: *rounds, seconds: *seconds, progress: image.NewProgress(os.Stderr)}
	err := b.run(ctx)
	stop()
	if err == nil {
		err = b.print(*asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ethbench:", err)
		os.Exit(1)
	}
}

// pair is two guests that are measured.
type pair struct {
	Name string
	site.Pair
	server string // address of the first
	close  func() error

	Runs [][]float64 // by test
}

// test is one line of the table.
type test struct {
	name    string
	mtu     int
	options string
}

var tests = []test{
	{"TCP, 1 stream", 1500, ""},
	{"TCP, 4 streams", 1500, "-P 4"},
	{"TCP, 1 stream", 9000, ""},
}

type bench struct {
	bin             string
	rounds, seconds int
	progress        *image.Progress
	pairs           []*pair
}

func (b *bench) run(ctx context.Context) (err error) {
	defer func() {
		for _, p := range b.pairs {
			err = errors.Join(err, p.close())
		}
	}()
	for _, s := range []struct {
		name string
		mesh bool
		args []string
	}{
		{"mesh, offloads", true, []string{"--nic-profile", "generic-100g"}},
		{"mesh", true, nil},
		{"TAP, offloads", false, []string{"--nic-profile", "generic-100g"}},
		{"TAP", false, nil},
	} {
		if err := b.ernic(ctx, s.name, s.mesh, s.args); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := b.virtio(ctx); err != nil {
		return fmt.Errorf("virtio-net: %w", err)
	}
	for _, p := range b.pairs {
		p.Runs = make([][]float64, len(tests))
	}
	for i, t := range tests {
		for _, p := range b.pairs {
			for _, g := range []*guest.Guest{p.Server, p.Client} {
				if _, err := g.Run(ctx, guest.Shellf("ip link set eth0 mtu %d", t.mtu)); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
			if _, err := p.Client.Run(ctx, guest.Shellf("ping -c 3 -w 30 %s", p.server)); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		for range b.rounds {
			for _, p := range b.pairs {
				rate, err := b.iperf(ctx, p, t.options)
				if err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
				p.Runs[i] = append(p.Runs[i], rate)
				b.progress.Sayf("%-16s MTU %d %-16s %8.0f Mbit/s", t.name, t.mtu, p.Name, rate)
			}
		}
	}
	return nil
}

// ernic adds a pair with the emulated NIC.
func (b *bench) ernic(ctx context.Context, name string, mesh bool, args []string) error {
	s, err := site.New(ctx, site.Options{
		Bin: b.bin, Name: fmt.Sprintf("eb%d", len(b.pairs)), Guests: 2, OverMesh: mesh, MTU: 9000,
		WorkerArgs: append(args, "--metrics-listen", "off"), Progress: b.progress,
	})
	if err != nil {
		return err
	}
	p := &pair{Name: name, close: s.Close}
	b.pairs = append(b.pairs, p)
	b.progress.Sayf("booting two guests: %s", name)
	if err := s.Boot(ctx); err != nil {
		return err
	}
	p.Server, p.Client, p.server = s.Nodes[0].Guest, s.Nodes[1].Guest, s.Nodes[0].IP
	return nil
}

// virtio adds a pair with QEMU's virtio-net and a cable between both.
func (b *bench) virtio(ctx context.Context) error {
	l, err := lab.New(ctx, lab.Options{Name: "ebv", Progress: b.progress})
	if err != nil {
		return err
	}
	p := &pair{Name: "virtio-net", server: "192.168.201.1", close: l.Close}
	b.pairs = append(b.pairs, p)
	b.progress.Sayf("booting two guests: virtio-net")
	one, two := l.Link("cable")
	one.MTU, two.MTU = 9000, 9000
	guests, err := l.Boot(ctx, guest.Config{Name: "v1", Links: []guest.Link{one}}, guest.Config{Name: "v2", Links: []guest.Link{two}})
	if err != nil {
		return err
	}
	p.Server, p.Client = guests[0], guests[1]
	for i, g := range guests {
		if _, err := g.Run(ctx, guest.Shellf("modprobe virtio_net; ip link set eth0 up; ip addr add 192.168.201.%d/24 dev eth0", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// iperf returns the rate from the second guest to the first, Mbit/s.
func (b *bench) iperf(ctx context.Context, p *pair, options string) (float64, error) {
	port := p.Port()
	o, err := p.Run(ctx, port, fmt.Sprintf("iperf3 -s -1 -p %d", port),
		fmt.Sprintf("iperf3 -J -t %d -O 1 -p %d -c %s %s", b.seconds, port, p.server, options))
	if err != nil {
		return 0, err
	}
	rate, err := toolout.ParseIperf(o.Client.Stdout)
	return rate / 1e6, err
}

func (b *bench) print(asJSON bool) error {
	type line struct {
		Test    string             `json:"test"`
		MTU     int                `json:"mtu"`
		Medians map[string]float64 `json:"mbit_s"`
	}
	var lines []line
	for i, t := range tests {
		l := line{t.name, t.mtu, map[string]float64{}}
		for _, p := range b.pairs {
			sorted := slices.Sorted(slices.Values(p.Runs[i]))
			l.Medians[p.Name] = sorted[len(sorted)/2]
		}
		lines = append(lines, l)
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(lines)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "MBIT/S\tMTU")
	for _, p := range b.pairs {
		fmt.Fprintf(w, "\t%s", p.Name)
	}
	fmt.Fprintln(w)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d", l.Test, l.MTU)
		for _, p := range b.pairs {
			fmt.Fprintf(w, "\t%.0f", l.Medians[p.Name])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

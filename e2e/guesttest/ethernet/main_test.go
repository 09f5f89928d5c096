// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

var (
	bin    = flag.String("bin", filepath.Join("..", "..", "..", "bin"), "directory with the built programs (make build)")
	logDir = flag.String("logs", "", "directory for logs of programs and guests")
	long   = flag.Bool("long", false, "repeat every lifecycle 20 times and send the large files")
)

// TestMain lets the test program be the one that listens to a TAP.
func TestMain(m *testing.M) {
	if tap := os.Getenv(tapToCapture); tap != "" {
		if err := captureTo(os.Stdout, tap); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// times is how often a lifecycle is gone through: what takes long is shortened
// unless the long tests are wanted.
func times(short int) int {
	if *long {
		return 20
	}
	return short
}

// start makes a site with two guests that are up. It ends with the test.
func start(t *testing.T, o site.Options) *site.Site {
	t.Helper()
	s := workers(t, o)
	if err := s.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// workers makes a site with workers for two guests, or as many as o says, and does
// not boot them.
func workers(t *testing.T, o site.Options) *site.Site {
	t.Helper()
	o.Bin, o.Progress = *bin, image.NewProgress(os.Stderr)
	if o.Guests == 0 {
		o.Guests = 2
	}
	o.LogDir = t.TempDir()
	if *logDir != "" {
		o.LogDir = filepath.Join(*logDir, o.Name)
	}
	s, err := site.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Lab.Diagnose(context.Background()))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// must runs a command in a guest and fails the test when it fails.
func must(t *testing.T, g *guest.Guest, format string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := g.Run(ctx, guest.Shellf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(r.Stdout)
}

// shell is a command for a guest.
func shell(format string, args ...any) guest.Cmd { return guest.Shellf(format, args...) }

// ping wants an answer to each of the first ten packets from a node. More are sent
// while answers are late, which on a busy machine they are.
func ping(t *testing.T, n *site.Node, to, options string) {
	t.Helper()
	out := must(t, n.Guest, "ping -i 0.05 -c 10 -w 60 %s %s", options, to)
	for seq := range 10 {
		if !strings.Contains(out, fmt.Sprintf("icmp_seq=%d ", seq+1)) {
			t.Errorf("ping %s %s from %s: packet %d is not answered\n%s", options, to, n.Name, seq+1, out)
			return
		}
	}
}

// iperf returns Mbit/s from the second guest to the first.
func iperf(t *testing.T, s *site.Site, options string) float64 {
	t.Helper()
	p := &site.Pair{Server: s.Nodes[0].Guest, Client: s.Nodes[1].Guest}
	port := p.Port()
	o, err := p.Run(t.Context(), port, fmt.Sprintf("iperf3 -s -1 -p %d", port),
		fmt.Sprintf("iperf3 -c %s -p %d -t 1 -J %s", s.Nodes[0].IP, port, options))
	if err != nil {
		t.Fatal(err)
	}
	rate, err := toolout.ParseIperf(o.Client.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("iperf3 %s: %.0f Mbit/s", options, rate/1e6)
	return rate / 1e6
}

// poll waits until a command in a guest prints what is wanted.
func poll(t *testing.T, g *guest.Guest, want, format string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := site.Poll(ctx, func() error {
		if got := must(t, g, format, args...); got != want {
			return fmt.Errorf("%s: prints %q, want %q", fmt.Sprintf(format, args...), got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// quiet fails the test when the guest's kernel has complained about its network
// since the last look.
func quiet(t *testing.T, g *guest.Guest, allowed ...string) {
	t.Helper()
	bad, starved := guest.Complaints(must(t, g, "dmesg --level=emerg,alert,crit,err,warn; dmesg -C"), complaints, append(allowed, guest.DriverRemarks...))
	if len(starved) > 0 {
		t.Logf("%s: the machine gave the guest no time:\n%s", g.Name(), strings.Join(starved, "\n"))
	}
	for _, line := range bad {
		t.Errorf("%s: the guest's kernel complains: %s", g.Name(), line)
	}
}

var complaints = []string{
	"ionic", "BUG", "Oops", "WARNING", "Call Trace", "hw csum failure", "hung task", "NETDEV WATCHDOG", "eth0",
	"corruption", "Poison", "pciehp", "AER",
}

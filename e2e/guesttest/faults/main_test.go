// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

var (
	bin    = flag.String("bin", filepath.Join("..", "..", "..", "bin"), "directory with the built programs (make build)")
	logDir = flag.String("logs", "", "directory for logs of programs and guests; default: kept only on failure, in the temporary directory")
)

// two is the installation that all tests share.
var two *site.Site

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	flag.Parse()
	logs := *logDir
	if logs == "" {
		var err error
		if logs, err = os.MkdirTemp("", "ernic-guestfaults-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := image.NewProgress(os.Stderr)
	s, err := site.New(ctx, site.Options{Bin: *bin, Name: "flt", Guests: 2, OverMesh: true, Cables: true, LogDir: logs, Progress: progress})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	progress.Sayf("booting two guests (%s)", s.Lab.Accel)
	if err := s.Boot(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s\n", err, s.Lab.Diagnose(ctx))
		s.Close()
		return 1
	}
	two = s
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "%s\nlogs are in %s\n", s.Lab.Diagnose(ctx), logs)
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	verdict.Summarize(os.Stderr)
	if code == 0 && *logDir == "" {
		os.RemoveAll(logs)
	}
	return code
}

// must runs a command in a guest and fails the test when it fails.
func must(t *verdict.T, g *guest.Guest, format string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := g.Run(ctx, guest.Shellf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(r.Stdout)
}

// start runs a program in a guest while the test goes on.
func start(t *verdict.T, g *guest.Guest, cmd guest.Cmd) *guest.Command {
	t.Helper()
	c, err := g.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Signal(syscall.SIGKILL)
	})
	return c
}

// running fails the test if a program has ended.
func running(t *verdict.T, c *guest.Command, what string) {
	t.Helper()
	if ended(c) {
		_, err := c.Wait()
		t.Fatalf("%s ended too early: %v\n%s", what, err, c.Output())
	}
}

// gidIndex is the place of the guest's IPv4 address in its table of GIDs.
func gidIndex(t *verdict.T, n *site.Node) string {
	t.Helper()
	var a, b, c, d int
	if _, err := fmt.Sscanf(n.IP, "%d.%d.%d.%d", &a, &b, &c, &d); err != nil {
		t.Fatal(err)
	}
	return must(t, n.Guest, `cd /sys/class/infiniband/ionic_0/ports/1
		for i in $(seq 0 255); do
			[ "$(cat gids/$i)" = 0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x ] && { echo $i; exit 0; }
		done
		exit 1`, a, b, c, d)
}

// counter reads one of the counters of a guest's RDMA port.
func counter(t *verdict.T, n *site.Node, name string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(must(t, n.Guest, "cat /sys/class/infiniband/ionic_0/ports/1/hw_counters/%s", name), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// programs is a program of the libibverbs or perftest kind that runs in two
// guests.
type programs struct {
	line           string
	from           *site.Node // of the client
	server, client *guest.Command
}

// startPrograms starts one with its server in the first guest.
func startPrograms(t *verdict.T, line string) *programs {
	t.Helper()
	return startProgramsIn(t, line, two.Nodes[0], two.Nodes[1])
}

func startProgramsIn(t *verdict.T, line string, a, b *site.Node) *programs {
	t.Helper()
	p := &programs{line: line, from: b}
	port := (&site.Pair{}).Port()
	flag := "-g"
	if strings.HasPrefix(line, "ib_") {
		flag = "-x"
	}
	p.server = start(t, a.Guest, guest.Shellf("exec %s -d ionic_0 -p %d %s %s", line, port, flag, gidIndex(t, a)))
	index := gidIndex(t, b)
	t.Eventually(line+" to listen", func() bool {
		running(t, p.server, "the server of "+line)
		r, err := a.Guest.Run(t.Context(), guest.Shellf("ss -Hltn 'sport = :%d'", port))
		return err == nil && r.Output() != ""
	})
	p.client = start(t, b.Guest, guest.Shellf("exec %s -d ionic_0 -p %d %s %s %s", line, port, flag, index, a.IP))
	return p
}

// ended reports whether a program has ended.
func ended(c *guest.Command) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// moving waits until a counter of the client's guest has gone on by so much.
func (p *programs) moving(t *verdict.T, name string, by uint64) {
	t.Helper()
	if !p.moves(t, name, by) {
		running(t, p.client, p.line)
	}
}

// moves is moving of a program that may end before; it then returns false.
func (p *programs) moves(t *verdict.T, name string, by uint64) (moved bool) {
	t.Helper()
	before := counter(t, p.from, name)
	t.Eventually(p.line+" to go on", func() bool {
		over := ended(p.client)
		moved = counter(t, p.from, name) >= before+by
		return moved || over
	})
	return moved
}

// finish wants both to end well.
func (p *programs) finish(t *verdict.T) (server, client guest.Result) {
	t.Helper()
	wait := func(c *guest.Command, what string) guest.Result {
		select {
		case <-c.Done():
		case <-time.After(2 * time.Minute):
			t.Fatalf("the %s of %s still runs\n%s", what, p.line, c.Output())
		}
		r, err := c.Wait()
		if err != nil && !noClock(r) {
			t.Errorf("the %s of %s: %v\n%s%s", what, p.line, err, r.Stdout, r.Stderr)
		}
		return r
	}
	client = wait(p.client, "client")
	server = wait(p.server, "server")
	return server, client
}

// noClock tells of a perftest program that it has moved everything and could not
// say how fast: it measures the processor's clock first, in vain on a busy host.
func noClock(r guest.Result) bool {
	return strings.Contains(r.Stderr, "Correlation coefficient") && strings.Contains(r.Stderr, "Can't produce a report") &&
		!strings.Contains(r.Stderr, "Completion with error") && !strings.Contains(r.Stderr, "Failed status")
}

// pingpong proves that a new connection works, and every byte over it.
func pingpong(t *verdict.T) {
	t.Helper()
	const n, size = 50, 4096
	s, c := startPrograms(t, fmt.Sprintf("ibv_rc_pingpong -c -s %d -n %d", size, n)).finish(t)
	for _, r := range []guest.Result{s, c} {
		got, err := toolout.ParsePingpong(r.Stdout + r.Stderr)
		if err != nil {
			t.Error(err)
		} else if got.Iterations != n || got.Bytes != 2*n*size {
			t.Errorf("moved %+v, want %d times %d bytes", got, n, size)
		}
	}
}

// quiet fails the test when a guest's kernel has complained about its network.
func quiet(t *verdict.T, nodes ...*site.Node) {
	t.Helper()
	for _, n := range nodes {
		bad, starved := guest.Complaints(must(t, n.Guest, "dmesg --level=emerg,alert,crit,err,warn; dmesg -C"),
			[]string{"ionic", "infiniband", "BUG", "Oops", "WARNING", "hung task", "NETDEV WATCHDOG"}, guest.DriverRemarks)
		if len(starved) > 0 {
			t.Logf("%s: the machine gave the guest no time:\n%s", n.Name, strings.Join(starved, "\n"))
		}
		for _, line := range bad {
			t.Errorf("%s: the guest's kernel complains: %s", n.Name, line)
		}
	}
}

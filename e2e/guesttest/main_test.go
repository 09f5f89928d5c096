// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
	"github.com/ernic-dev/ernic/e2e/site"
)

var (
	bin     = flag.String("bin", "", "directory with the built programs (make build)")
	labName = flag.String("name", "gt", "of the lab: another for a second run on the same machine at the same time")
	logDir  = flag.String("logs", "", "directory for logs of programs and guests; default: kept only on failure, in the temporary directory")
)

// two is the site with two guests that most tests share.
var two *site.Site

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	flag.Parse()
	if *bin == "" {
		*bin = filepath.Join("..", "..", "bin")
	}
	logs := *logDir
	if logs == "" {
		var err error
		if logs, err = os.MkdirTemp("", "ernic-guesttest-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := image.NewProgress(os.Stderr)
	s, err := site.New(ctx, site.Options{Bin: *bin, Name: *labName, Guests: 2, LogDir: logs, Stats: true, Progress: progress})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	progress.Sayf("booting two guests (%s)", s.Lab.Accel)
	if err := s.Boot(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s\nno test has run: %v\n", s.Lab.Diagnose(ctx), err)
		s.Close()
		return 1
	}
	progress.Sayf("two guests are up")
	two = s
	version, err := s.Lab.Run(ctx, s.Program("ernic-worker"), "version")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		s.Close()
		return 1
	}
	underTest = oneLine(version)
	code := m.Run()
	if err := writeReport(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "%s\nlogs are in %s\n", s.Lab.Diagnose(ctx), logs)
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 && *logDir == "" {
		os.RemoveAll(logs)
	}
	return code
}

// listPatience is how long the manager may take to hear of what is so.
const listPatience = time.Minute

// nodeID is the id of the worker that n has now.
func nodeID(t *testing.T, n *site.Node) (id int) {
	t.Helper()
	eventually(t, func(ctx context.Context) (err error) {
		id, err = two.NodeID(ctx, n)
		return err
	})
	return id
}

// eventually calls f until it returns nil, and fails the test when that takes too
// long.
func eventually(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listPatience)
	defer cancel()
	if err := site.Poll(ctx, func() error { return f(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// must runs a command in a guest and fails the test when it fails.
func must(t *testing.T, g *guest.Guest, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := g.Run(ctx, guest.Shell(script))
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout
}

func wantContains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q:\n%s", what, p, text)
		}
	}
}

// quietKernel fails the test when the guest's kernel has warned of the device or of
// itself since the last look.
func quietKernel(t *testing.T, g *guest.Guest) {
	t.Helper()
	out := must(t, g, `dmesg --level=emerg,alert,crit,err,warn; dmesg -C`)
	bad, starved := guest.Complaints(out, []string{
		"ionic", "infiniband", "rdma", "BUG", "Oops", "WARNING", "Call Trace", "hung task", "blocked for more than", "eth0",
	}, guest.DriverRemarks)
	if len(starved) > 0 {
		t.Logf("%s: the machine gave the guest no time:\n%s", g.Name(), strings.Join(starved, "\n"))
	}
	if len(bad) > 0 {
		t.Errorf("%s: the guest's kernel complains:\n%s", g.Name(), strings.Join(bad, "\n"))
	}
}

func shell(format string, args ...any) guest.Cmd { return guest.Shellf(format, args...) }

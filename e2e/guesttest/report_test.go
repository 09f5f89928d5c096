// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ernic-dev/ernic/e2e/conformance"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

var (
	reportPath  = flag.String("report", "", "file to write the table of the conformance results to, as Markdown")
	resultsPath = flag.String("results", "", "file that keeps the results: the report then shows those of earlier runs beside those of this one")
)

// found is what the conformance cases found.
var found conformance.Report

// underTest is the version of the worker.
var underTest string

// keepResults writes the file that -results names, as it is at this moment: a
// run that is cut off leaves what it found.
func keepResults() error {
	found.Stamp(time.Now().UTC().Format(time.DateOnly), underTest)
	if *resultsPath == "" {
		return nil
	}
	return found.Keep(*resultsPath)
}

// writeReport writes the files that -results and -report name.
func writeReport(ctx context.Context, s *site.Site) error {
	if *reportPath == "" && *resultsPath == "" {
		return nil
	}
	if err := keepResults(); err != nil {
		return err
	}
	if *reportPath == "" {
		return nil
	}
	head, err := reportHead(ctx, s)
	if err != nil {
		return err
	}
	return os.WriteFile(*reportPath, []byte(found.Markdown(head)), 0o644)
}

const reportIntro = `# Conformance

What suites that nobody here wrote say of this device, in real guests: the upstream Linux drivers, rdma-core, perftest and
the kernel's own RDMA consumers. The file is written by the run itself:

` + "```" + `
make test-long        # all cases; make test runs the representative ones of each group
` + "```" + `

A part of the cases is run with ` + "`go test -run`" + ` and ` + "`-results FILE`" + `, which keeps what earlier runs found; the summary says
of each group when it ran and what was under test. A skip is a suite's own: what the device, as its driver shows it, does not have.

Two guests on two workers and a manager, joined by the mesh; loopback cases run inside one guest. "Patched provider" means
rdma-core's libionic with the patches of ` + "`ansible/files/patches`" + `: the released one refuses UC queue pairs, and loses receives when it
flushes. Every other case runs with the released one.

`

func reportHead(ctx context.Context, s *site.Site) (string, error) {
	var b strings.Builder
	b.WriteString(reportIntro)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| Date | %s |\n", time.Now().UTC().Format(time.DateOnly))
	versions := maps.Clone(s.Lab.Artifacts.Versions)
	for _, n := range s.Nodes {
		if n.Guest == nil {
			continue
		}
		out, err := n.Guest.Run(ctx, guest.Shell("dpkg-query -W -f '${Package} ${Version}\\n' python3-pyverbs rdmacm-utils nvme-cli fio"))
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(out.Stdout) {
			if f := strings.Fields(line); len(f) == 2 {
				versions[f[0]] = f[1]
			}
		}
		break
	}
	for _, k := range slices.SortedFunc(maps.Keys(versions), cmp.Compare[string]) {
		fmt.Fprintf(&b, "| %s | %s |\n", k, versions[k])
	}
	fmt.Fprintf(&b, "| Guests | 4 processors, 1 GiB, accelerator %s |\n", s.Lab.Accel)
	fmt.Fprintf(&b, "| Host | %s/%s, %d processors, %s |\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return b.String(), nil
}

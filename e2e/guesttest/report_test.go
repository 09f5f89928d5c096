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
	"sync"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

var reportPath = flag.String("report", "", "file to write the table of the conformance results to, as Markdown")

// result is one line of the report.
type result struct {
	Group, Name string
	Failed      bool
	Skipped     bool // a suite of others skipped it; Note says why
	Note        string
	Took        time.Duration
}

func (r result) verdict() string {
	switch {
	case r.Failed:
		return "**fail**"
	case r.Skipped:
		return "skip"
	}
	return "pass"
}

type report struct {
	mu   sync.Mutex // guards all below
	list []result
	// remarks stand below the table of a group.
	remarks map[string][]string
}

var results = report{remarks: map[string][]string{}}

func (r *report) add(e result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *report) remark(group, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remarks[group] = append(r.remarks[group], text)
}

// groups in the order they first appear.
func (r *report) groups() []string {
	var names []string
	for _, e := range r.list {
		if !slices.Contains(names, e.Group) {
			names = append(names, e.Group)
		}
	}
	return names
}

// markdown is the whole report.
func (r *report) markdown(head string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("\n## Summary\n\n| Group | pass | skip | fail | time |\n|---|---|---|---|---|\n")
	for _, g := range r.groups() {
		count := map[string]int{}
		var took time.Duration
		for _, e := range r.list {
			if e.Group == g {
				count[e.verdict()]++
				took += e.Took
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s |\n", g, count["pass"], count["skip"], count["**fail**"], took.Round(time.Second))
	}
	for _, g := range r.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| Case | Result | Note | s |\n|---|---|---|---|\n", g)
		for _, e := range r.list {
			if e.Group == g {
				fmt.Fprintf(&b, "| %s | %s | %s | %.1f |\n", cell(e.Name), e.verdict(), cell(e.Note), e.Took.Seconds())
			}
		}
		for _, text := range r.remarks[g] {
			b.WriteString("\n" + text + "\n")
		}
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(oneLine(s), "|", `\|`) }

// writeReport writes the file that -report names.
func writeReport(ctx context.Context, s *site.Site) error {
	if *reportPath == "" {
		return nil
	}
	head, err := reportHead(ctx, s)
	if err != nil {
		return err
	}
	return os.WriteFile(*reportPath, []byte(results.markdown(head)), 0o644)
}

const reportIntro = `# Conformance

What suites that nobody here wrote say of this device, in real guests: the upstream Linux drivers, rdma-core, perftest and
the kernel's own RDMA consumers. The file is written by the run itself:

` + "```" + `
make test-long        # all cases; make test runs the representative ones of each group
` + "```" + `

Two guests on two workers and a manager, joined by the mesh; loopback cases run inside one guest. "Patched provider" means
rdma-core's libionic with the patches of ` + "`ansible/files/patches`" + `: the released one refuses UC queue pairs, and loses receives when it
flushes. Every other case runs with the released one.

`

func reportHead(ctx context.Context, s *site.Site) (string, error) {
	var b strings.Builder
	b.WriteString(reportIntro)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| Date | %s |\n", time.Now().UTC().Format(time.DateOnly))
	version, err := s.Lab.Run(ctx, s.Program("ernic-worker"), "version")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "| Under test | %s |\n", cell(version))
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

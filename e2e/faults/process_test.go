// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/program"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces: run them as root")
		os.Exit(1)
	}
	os.Exit(program.Main(m, "ernic-manager", "ernic-worker"))
}

// process is a program on a host.
type process struct {
	*program.Process
	t     *verdict.T
	stats string // file with what it counts, "" if it keeps none
}

func (h *host) start(name string, args ...string) *process {
	h.net.t.Helper()
	// ip becomes the program, under the same process id.
	command := append([]string{"ip", "netns", "exec", h.ns, program.Path(name), "--log-format", "json"}, args...)
	return &process{Process: program.Start(h.net.t, h.name, command...), t: h.net.t}
}

// goroutinesField finds their number in a stats file.
var goroutinesField = regexp.MustCompile(`(?m)^\s*goroutines\s*:\s*(\d+)`)

// holdings returns what the process holds now.
func (p *process) holdings() (h holdings) {
	p.t.Helper()
	begin := time.Now()
	h.descriptors = len(p.descriptors())
	if p.stats == "" {
		return h
	}
	p.t.Eventually("the stats file of "+p.Name, func() bool {
		info, err := os.Stat(p.stats)
		if err != nil || info.ModTime().Before(begin) {
			return false
		}
		text, err := os.ReadFile(p.stats)
		found := goroutinesField.FindSubmatch(text)
		if err != nil || found == nil {
			p.t.Fatalf("stats file of %s: %v\n%s", p.Name, err, text)
		}
		h.goroutines, err = strconv.Atoi(string(found[1]))
		p.t.Must(err)
		return true
	})
	return h
}

// limit lets the process open no descriptor above those it has, and returns how many it still can, below, and what undoes
// the limit.
func (p *process) limit() (room int, lift func()) {
	p.t.Helper()
	set := func(to unix.Rlimit) (was unix.Rlimit) {
		p.t.Helper()
		if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &to, &was); err != nil {
			p.t.Fatal(err)
		}
		return was
	}
	var now unix.Rlimit
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, nil, &now); err != nil {
		p.t.Fatal(err)
	}
	most := p.highest() + 1
	was := set(unix.Rlimit{Cur: uint64(most), Max: now.Max})
	return most - len(p.descriptors()), func() { set(was) }
}

// exhausted reports whether the process can open nothing more. It counts from outside: the process itself could not even
// open the file with its statistics.
func (p *process) exhausted() bool {
	p.t.Helper()
	var now unix.Rlimit
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, nil, &now); err != nil {
		p.t.Fatal(err)
	}
	return uint64(len(p.descriptors())) >= now.Cur
}

// descriptors lists what the process has open.
func (p *process) descriptors() []os.DirEntry {
	p.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

// highest is the highest descriptor that is open: the limit is on numbers.
func (p *process) highest() (most int) {
	p.t.Helper()
	for _, e := range p.descriptors() {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			most = max(most, n)
		}
	}
	return most
}

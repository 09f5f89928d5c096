// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bin is the directory with the programs.
var bin string

var built = flag.String("bin", "", "directory with the built programs (make build); default: they are built")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces: run them as root")
		return 1
	}
	flag.Parse()
	if bin = *built; bin != "" {
		return m.Run()
	}
	var err error
	if bin, err = os.MkdirTemp("", "ernic-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	out, err := exec.Command("go", "build", "-o", bin, "../../cmd/ernic-manager", "../../cmd/ernic-worker").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// log keeps what a process writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// process is a program on a host.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	log   log
	done  chan struct{}
	stats string // file with what it counts, "" if it keeps none
}

func (h *host) start(program string, args ...string) *process {
	t := h.net.t
	t.Helper()
	p := &process{t: t, name: h.name, done: make(chan struct{})}
	// ip becomes the program, under the same process id.
	p.cmd = exec.Command("ip", append([]string{"netns", "exec", h.ns, filepath.Join(bin, program), "--log-format", "json"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of %s on %s:\n%s", program, h.name, tail(p.log.String()))
		}
	})
	return p
}

func tail(s string) string { return s[max(0, len(s)-6000):] }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
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
	eventually(p.t, "the stats file of "+p.name, func() bool {
		info, err := os.Stat(p.stats)
		if err != nil || info.ModTime().Before(begin) {
			return false
		}
		text, err := os.ReadFile(p.stats)
		found := goroutinesField.FindSubmatch(text)
		if err != nil || found == nil {
			p.t.Fatalf("stats file of %s: %v\n%s", p.name, err, text)
		}
		h.goroutines, err = strconv.Atoi(string(found[1]))
		must(p.t, err)
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
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &to, &was); err != nil {
			p.t.Fatal(err)
		}
		return was
	}
	var now unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &now); err != nil {
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
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &now); err != nil {
		p.t.Fatal(err)
	}
	return uint64(len(p.descriptors())) >= now.Cur
}

// descriptors lists what the process has open.
func (p *process) descriptors() []os.DirEntry {
	p.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
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

// eventually waits until ok, and returns how long that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	const patience = 30 * time.Second
	begin := time.Now()
	for time.Since(begin) < patience {
		if ok() {
			return time.Since(begin)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come about within %s", what, patience)
	return 0
}

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
	"sync"
	"syscall"
	"testing"
	"time"
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
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  log
	done chan struct{}
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

// descriptors counts the open descriptors.
func (p *process) descriptors() int {
	p.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(list)
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

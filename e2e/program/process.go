// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/child"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

// log keeps what a process writes.
type log struct {
	mu  sync.Mutex // guards buf
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

// Process is a program that runs, or has run, for a test.
type Process struct {
	Name string
	t    *verdict.T
	cmd  *exec.Cmd
	log  log
	done chan struct{} // closed when it has ended
}

// Start starts a command. The process ends with the test, and with the process of the test however that ends. Of a test that
// has failed the last lines of the log are printed.
func Start(t *verdict.T, name string, command ...string) *Process {
	t.Helper()
	p := &Process{Name: name, t: t, cmd: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := child.Start(p.cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.Tail())
		}
	})
	return p
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what it has written so far.
func (p *Process) Log() string { return p.log.String() }

// Tail is the last lines of that.
func (p *Process) Tail() string {
	const most = 15
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// Running reports whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends it a signal, which one that has ended does not mind.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%s: %v: %v", p.Name, s, err)
	}
}

// End sends a signal that ends it, and waits until it has ended.
func (p *Process) End(s syscall.Signal) {
	p.t.Helper()
	p.Signal(s)
	p.Wait()
}

// Wait waits until it has ended.
func (p *Process) Wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(verdict.Patience):
		p.t.Fatalf("%s does not end", p.Name)
	}
}

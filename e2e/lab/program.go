// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopPatience is how long a program may take to end after SIGTERM before it is
// killed and reported: long enough for a machine that is busy with guests.
const stopPatience = 30 * time.Second

// Program says what to start on the host.
type Program struct {
	// Name names the log and appears in errors.
	Name string
	Path string
	Args []string
	// Env is added to this process's environment, as NAME=value.
	Env []string
	// Outside keeps the program out of the lab's network.
	Outside bool
}

// Process is a program that a lab has started.
type Process struct {
	Program
	cmd  *exec.Cmd
	out  *outputLog
	done chan struct{} // closed when it has ended
	err  error         // valid after done: how it ended

	mu      sync.Mutex // guards stopped
	stopped bool       // someone here asked it to end
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log is what it has written to standard output and error so far.
func (p *Process) Log() string { return p.out.text() }

// LogPath is the file with the same.
func (p *Process) LogPath() string { return p.out.file.Name() }

// Signal sends it a signal.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

// WaitLog waits until the log contains text.
func (p *Process) WaitLog(ctx context.Context, text string) error {
	for {
		more := p.out.changed()
		if strings.Contains(p.Log(), text) {
			return nil
		}
		select {
		case <-more:
		case <-p.done:
			if strings.Contains(p.Log(), text) {
				return nil
			}
			return fmt.Errorf("%s ended (%w) before it said %q%s", p.Name, p.exitStatus(), text, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s did not say %q: %w%s", p.Name, text, context.Cause(ctx), p.tail())
		}
	}
}

// Wait waits for its end. Another exit status than 0 is an error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s: %w%s", p.Name, p.err, p.tail())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.Name, context.Cause(ctx))
	}
}

// Stop sends SIGTERM and waits. A program that does not end by itself, or with
// another status than 0, is an error.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
	default:
		if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopPatience, fmt.Errorf("%v after SIGTERM", stopPatience))
	defer cancel()
	select {
	case <-p.done:
		return p.Wait(ctx)
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s had to be killed: %w%s", p.Name, context.Cause(ctx), p.tail())
	}
}

// Kill ends it with SIGKILL, as a crash would, and waits for its end.
func (p *Process) Kill() {
	// An error means that it has ended already.
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// endedUnasked tells whether it ended though nobody here wanted it to.
func (p *Process) endedUnasked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return !p.stopped
	default:
		return false
	}
}

func (p *Process) exitStatus() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

func (p *Process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return fmt.Sprintf("\nlast lines of %s:\n%s", p.LogPath(), strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

// outputLog writes to a file, remembers, and tells who waits.
type outputLog struct {
	file *os.File
	mu   sync.Mutex // guards what follows
	buf  bytes.Buffer
	more chan struct{} // closed at the next write
}

func (o *outputLog) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b)
	close(o.more)
	o.more = make(chan struct{})
	return o.file.Write(b)
}

func (o *outputLog) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.more
}

func (o *outputLog) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startProgram starts p with its output in a file.
func startProgram(p Program, logPath string, start func(*exec.Cmd) error) (*Process, error) {
	file, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	out := &outputLog{file: file, more: make(chan struct{})}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if err := start(cmd); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	proc := &Process{Program: p, cmd: cmd, out: out, done: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		_ = file.Close()
		close(proc.done)
	}()
	return proc, nil
}

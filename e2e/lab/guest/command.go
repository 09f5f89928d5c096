// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

// killPatience is how long a cancelled command may take to die before its
// waiter is let go.
const killPatience = 30 * time.Second

// Cmd says what to run in a guest.
type Cmd struct {
	// Argv is the program and its arguments. The program is looked up in the
	// guest's PATH.
	Argv []string
	// Env is added to the guest's environment, as NAME=value.
	Env []string
	Dir string
	// Stdin is read to its end. Nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes, besides Result. They must
	// not block: one reader serves all commands of a guest.
	Stdout, Stderr io.Writer
}

// Shell is a Cmd that runs a script with sh -e -u in the guest.
func Shell(script string) Cmd { return Cmd{Argv: []string{"/bin/sh", "-euc", script}} }

// Shellf is Shell with a formatted script.
func Shellf(format string, args ...any) Cmd { return Shell(fmt.Sprintf(format, args...)) }

// With returns c with environment variables added, as NAME=value.
func (c Cmd) With(env ...string) Cmd {
	c.Env = append(c.Env[:len(c.Env):len(c.Env)], env...)
	return c
}

func (c Cmd) String() string {
	s := strings.Join(c.Argv, " ")
	if len(c.Argv) == 3 && c.Argv[1] == "-euc" {
		s = c.Argv[2]
	}
	if len(c.Env) > 0 {
		s = strings.Join(c.Env, " ") + " " + s
	}
	return s
}

// Result is what a command left behind.
type Result struct {
	Stdout, Stderr string
	Code           int            // exit status, -1 if it has none
	Signal         syscall.Signal // the signal that ended it, or 0
	Elapsed        time.Duration  // from Start to Exit, as the host saw it
}

// Output is standard output without white space around it.
func (r Result) Output() string { return strings.TrimSpace(r.Stdout) }

// ExitError says that a command ran and ended with another status than 0.
type ExitError struct {
	Cmd Cmd
	Result
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = "killed by " + e.Signal.String()
	}
	msg := fmt.Sprintf("guest command %q: %s after %v", e.Cmd.String(), how, e.Elapsed.Round(time.Millisecond))
	for _, o := range []struct{ name, text string }{{"stdout", e.Stdout}, {"stderr", e.Stderr}} {
		if t := strings.TrimSpace(o.text); t != "" {
			msg += "\n" + o.name + ":\n" + lastLines(t, 40)
		}
	}
	return msg
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	if len(lines) <= n {
		return s
	}
	return fmt.Sprintf("[%d lines before]\n%s", len(lines)-n, strings.Join(lines[len(lines)-n:], "\n"))
}

// Command is a command in a guest that has been started.
type Command struct {
	cmd     Cmd
	client  *Client
	stream  uint32
	started time.Time

	mu             sync.Mutex // guards the two buffers, which Output reads early
	stdout, stderr *bytes.Buffer

	once   sync.Once
	done   chan struct{} // closed when status and err are final
	status wire.Status
	err    error
	took   time.Duration
}

// Start starts cmd and returns at once. When ctx ends before the command does,
// the command is killed.
func (c *Client) Start(ctx context.Context, cmd Cmd) (*Command, error) {
	s := newCommand(cmd)
	err := c.open(s, wire.Command{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir})
	if err != nil {
		return nil, fmt.Errorf("guest command %q: %w", cmd, err)
	}
	go func() { _ = s.feed(cmd.Stdin) }()
	go s.watch(ctx)
	return s, nil
}

// Run starts cmd and waits for its end. A command that ends with another status
// than 0 gives an *ExitError besides its result.
func (c *Client) Run(ctx context.Context, cmd Cmd) (Result, error) {
	s, err := c.Start(ctx, cmd)
	if err != nil {
		return Result{Code: -1}, err
	}
	return s.Wait()
}

// Upload writes r to a file in the guest. Missing directories are made.
func (c *Client) Upload(ctx context.Context, path string, mode os.FileMode, r io.Reader) error {
	s := newCommand(Cmd{Argv: []string{"upload", path}})
	if err := c.open(s, wire.Command{WriteFile: path, Mode: uint32(mode.Perm())}); err != nil {
		return fmt.Errorf("upload %s: %w", path, err)
	}
	go s.watch(ctx)
	if err := s.feed(r); err != nil {
		return fmt.Errorf("upload %s: %w", path, err)
	}
	_, err := s.Wait()
	return err
}

func newCommand(cmd Cmd) *Command {
	return &Command{cmd: cmd, started: time.Now(), done: make(chan struct{}),
		stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
}

func (s *Command) feed(r io.Reader) error {
	if r != nil {
		b := make([]byte, wire.MaxPayload)
		for {
			n, err := r.Read(b)
			if n > 0 {
				if err := s.client.write(wire.Frame{Type: wire.Stdin, Stream: s.stream, Payload: b[:n]}); err != nil {
					return err
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				_ = s.Signal(syscall.SIGKILL)
				s.finish(wire.Status{Code: -1}, fmt.Errorf("read what the guest's standard input should be: %w", err))
				return err
			}
		}
	}
	return s.client.write(wire.Frame{Type: wire.Stdin, Stream: s.stream})
}

// watch kills the command when ctx ends first.
func (s *Command) watch(ctx context.Context) {
	select {
	case <-s.done:
		return
	case <-ctx.Done():
	}
	// The line may be down; then the receiver has ended the command already.
	_ = s.Signal(syscall.SIGKILL)
	t := time.NewTimer(killPatience)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
		s.finish(wire.Status{Code: -1}, fmt.Errorf("guest command %q: %w, and it does not die", s.cmd, context.Cause(ctx)))
	}
}

// Signal sends sig to the command's process group.
func (s *Command) Signal(sig syscall.Signal) error {
	return s.client.write(wire.Frame{Type: wire.Signal, Stream: s.stream, Payload: []byte{byte(sig)}})
}

// Done is closed when the command has ended.
func (s *Command) Done() <-chan struct{} { return s.done }

// Output returns what the command has written to standard output so far.
func (s *Command) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout.String()
}

// Wait waits for the end of the command. See Client.Run for the error.
func (s *Command) Wait() (Result, error) {
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Result{Stdout: s.stdout.String(), Stderr: s.stderr.String(), Code: s.status.Code,
		Signal: syscall.Signal(s.status.Signal), Elapsed: s.took}
	switch {
	case s.err != nil:
		return r, s.err
	case s.status.Error != "":
		return r, fmt.Errorf("guest command %q: %s", s.cmd, s.status.Error)
	case r.Code != 0:
		return r, &ExitError{Cmd: s.cmd, Result: r}
	}
	return r, nil
}

func (s *Command) out(to *bytes.Buffer, b []byte) {
	s.mu.Lock()
	to.Write(b)
	s.mu.Unlock()
	w := s.cmd.Stdout
	if to == s.stderr {
		w = s.cmd.Stderr
	}
	if w != nil {
		// The output is in the result whatever becomes of the copy.
		_, _ = w.Write(b)
	}
}

func (s *Command) exit(b []byte) {
	var st wire.Status
	if err := json.Unmarshal(b, &st); err != nil {
		s.finish(wire.Status{Code: -1}, fmt.Errorf("guest command %q: the agent's exit message: %w", s.cmd, err))
		return
	}
	s.finish(st, nil)
}

func (s *Command) finish(st wire.Status, err error) {
	s.once.Do(func() {
		s.status, s.err, s.took = st, err, time.Since(s.started)
		close(s.done)
	})
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

// pipePatience is how long output is still read after the command ended. A
// daemon that the command left behind may hold its pipes for ever.
const pipePatience = 300 * time.Millisecond

// stdinBacklog bounds the frames that wait for a command to read them. The
// session's reader blocks beyond it, and with it the host: virtio-serial has
// no other flow control.
const stdinBacklog = 64

// command is one open stream. Only the session's reader feeds and closes stdin.
type command struct {
	stdin  chan []byte
	closed bool          // stdin is closed
	gone   chan struct{} // closed when the command has ended
	run    func(emit func(wire.Type, []byte)) wire.Status
	pid    int // 0 for a file being written
}

// newCommand starts what w asks for. run then waits for its end.
func newCommand(r *reaper, w wire.Command) (*command, error) {
	c := &command{stdin: make(chan []byte, stdinBacklog), gone: make(chan struct{})}
	if w.WriteFile != "" {
		c.run = func(func(wire.Type, []byte)) wire.Status {
			if err := c.writeFile(w.WriteFile, os.FileMode(w.Mode).Perm()); err != nil {
				return wire.Status{Code: -1, Error: err.Error()}
			}
			return wire.Status{}
		}
		return c, nil
	}
	p, err := spawn(r, w)
	if err != nil {
		return nil, err
	}
	c.pid = p.pid
	c.run = func(emit func(wire.Type, []byte)) wire.Status {
		go c.feed(p.stdin)
		return p.wait(emit)
	}
	return c, nil
}

// give hands a piece of standard input over, or drops it when nobody reads.
func (c *command) give(b []byte) {
	if c.closed {
		return
	}
	select {
	case c.stdin <- b:
	case <-c.gone:
	}
}

func (c *command) closeStdin() {
	if !c.closed {
		c.closed = true
		close(c.stdin)
	}
}

// feed copies standard input into the command until either ends.
func (c *command) feed(stdin *os.File) {
	defer func() { _ = stdin.Close() }()
	for {
		select {
		case b, more := <-c.stdin:
			if !more {
				return
			}
			if _, err := stdin.Write(b); err != nil {
				// The command reads no more. What follows is dropped, as a
				// closed pipe would.
				for more {
					select {
					case _, more = <-c.stdin:
					case <-c.gone:
						return
					}
				}
				return
			}
		case <-c.gone:
			return
		}
	}
}

func (c *command) writeFile(path string, mode os.FileMode) error {
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	for b := range c.stdin {
		if _, err := f.Write(b); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// process is a running program and the agent's ends of its pipes.
type process struct {
	pid   int
	stdin *os.File
	out   [2]*os.File // standard output, standard error
	done  <-chan syscall.WaitStatus
}

func spawn(r *reaper, w wire.Command) (p *process, err error) {
	if len(w.Argv) == 0 {
		return nil, errors.New("a command without a program")
	}
	env := append(environment[:len(environment):len(environment)], w.Env...)
	path, err := lookPath(w.Argv[0], env)
	if err != nil {
		return nil, err
	}
	var child, mine [3]*os.File
	defer func() {
		for i := range child {
			if child[i] != nil {
				_ = child[i].Close()
			}
			if err != nil && mine[i] != nil {
				_ = mine[i].Close()
			}
		}
	}()
	for i := range child {
		rd, wr, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		child[i], mine[i] = wr, rd
		if i == 0 {
			child[i], mine[i] = rd, wr
		}
	}
	pid, done, err := r.start(path, w.Argv, &syscall.ProcAttr{
		Dir: w.Dir, Env: env,
		Files: []uintptr{child[0].Fd(), child[1].Fd(), child[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return &process{pid: pid, stdin: mine[0], out: [2]*os.File{mine[1], mine[2]}, done: done}, nil
}

func (p *process) wait(emit func(wire.Type, []byte)) wire.Status {
	var readers sync.WaitGroup
	for i, f := range p.out {
		readers.Go(func() { pump(f, wire.Stdout+wire.Type(i), emit) })
	}
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()
	ws := <-p.done
	select {
	case <-drained:
	case <-time.After(pipePatience):
		for _, f := range p.out {
			// A pipe that is closed already has been read to its end.
			_ = f.SetReadDeadline(time.Now())
		}
		<-drained
	}
	if ws.Signaled() {
		return wire.Status{Code: -1, Signal: int(ws.Signal())}
	}
	return wire.Status{Code: ws.ExitStatus()}
}

func pump(f *os.File, t wire.Type, emit func(wire.Type, []byte)) {
	defer func() { _ = f.Close() }()
	b := make([]byte, wire.MaxPayload)
	for {
		n, err := f.Read(b)
		if n > 0 {
			emit(t, b[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lastWords(f, t, b, emit)
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				logf("read the output of a command: %v", err)
			}
			return
		}
	}
}

// pipeCapacity is what a pipe holds unless somebody made it larger.
const pipeCapacity = 1 << 16

// lastWords hands over what a command had written when it ended, without
// waiting. A read whose deadline has gone does not even look; on a busy machine
// that may be the first one.
func lastWords(f *os.File, t wire.Type, b []byte, emit func(wire.Type, []byte)) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	// The pipe does not block. Whoever holds its other end may go on writing.
	_ = conn.Control(func(fd uintptr) {
		for rest := pipeCapacity; rest > 0; {
			n, err := syscall.Read(int(fd), b[:min(rest, len(b))])
			if err != nil || n <= 0 {
				return
			}
			emit(t, b[:n])
			rest -= n
		}
	})
}

// lookPath finds a program in the PATH of env, whose last PATH counts.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var dirs string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	for _, d := range filepath.SplitList(dirs) {
		p := filepath.Join(d, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("no program %q in %s", name, dirs)
}

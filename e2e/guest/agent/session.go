// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

// hostAbsence is the pause between looks at a port to which no host is
// connected. Such a port reads as end of file, without blocking.
const hostAbsence = 250 * time.Millisecond

// servePorts serves each agent port and returns when a host asks for the end.
func servePorts(r *reaper) error {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return err
	}
	end := make(chan struct{})
	var once sync.Once
	served := 0
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(b), wire.PortPrefix) {
			continue
		}
		dev := "/dev/" + filepath.Base(filepath.Dir(n))
		// One blocking descriptor each way: the runtime's poller would spin on
		// the hang-up that an unconnected port reports for ever.
		fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", dev, err)
		}
		p := &port{fd: fd, reaper: r, powerOff: func() { once.Do(func() { close(end) }) }}
		go p.serve()
		served++
	}
	if served == 0 {
		return fmt.Errorf("no virtio-serial port named %s*", wire.PortPrefix)
	}
	logf("ready, %d ports, %.2f s after the kernel's start", served, uptime())
	<-end
	return nil
}

// port serves one host at a time.
type port struct {
	fd       int
	reaper   *reaper
	powerOff func()

	writeMu    sync.Mutex
	generation int    // guarded by writeMu; output of earlier sessions is dropped
	scratch    []byte // guarded by writeMu

	mu       sync.Mutex // guards commands
	commands map[uint32]*command
}

// Read lets port be an io.Reader. End of file means that no host is connected.
func (p *port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (p *port) serve() {
	in := bufio.NewReaderSize(p, wire.MaxPayload)
	for {
		f, err := wire.Read(in)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			p.endSession()
			time.Sleep(hostAbsence)
			in.Reset(p)
		case errors.Is(err, wire.ErrMagic):
			// The tail of a frame whose host went away. Hello is looked for in
			// what follows.
			if err := skipToMagic(in); err != nil {
				in.Reset(p)
			}
		case err != nil:
			logf("port: %v", err)
			time.Sleep(hostAbsence)
			in.Reset(p)
		default:
			p.handle(f)
		}
	}
}

func skipToMagic(in *bufio.Reader) error {
	for {
		b, err := in.Peek(len(wire.Magic))
		if err != nil {
			return err
		}
		if string(b) == wire.Magic {
			return nil
		}
		if _, err := in.Discard(1); err != nil {
			return err
		}
	}
}

func (p *port) handle(f wire.Frame) {
	switch f.Type {
	case wire.Hello:
		p.startSession(f.Payload)
	case wire.PowerOff:
		p.powerOff()
	case wire.Start:
		p.startCommand(f)
	case wire.Stdin:
		if c := p.command(f.Stream); c != nil {
			if len(f.Payload) == 0 {
				c.closeStdin()
				return
			}
			c.give(f.Payload)
		}
	case wire.Signal:
		if c := p.command(f.Stream); c != nil && len(f.Payload) == 1 {
			p.reaper.signal(c.pid, syscall.Signal(f.Payload[0]))
		}
	default:
		p.send(p.currentGeneration(), wire.Frame{Type: wire.Reject, Stream: f.Stream,
			Payload: fmt.Appendf(nil, "agent: a host does not send %v", f.Type)})
	}
}

func (p *port) startSession(nonce []byte) {
	p.endSession()
	p.writeMu.Lock()
	p.generation++
	gen := p.generation
	p.writeMu.Unlock()
	info, err := json.Marshal(wire.Info{Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Uptime: uptime()})
	if err != nil || len(nonce) != wire.NonceSize {
		logf("port: hello with a nonce of %d bytes: %v", len(nonce), err)
		return
	}
	p.send(gen, wire.Frame{Type: wire.Welcome, Payload: append(nonce, info...)})
}

// endSession kills what the host that is gone had started.
func (p *port) endSession() {
	p.writeMu.Lock()
	p.generation++
	p.writeMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.commands {
		c.closeStdin()
		p.reaper.signal(c.pid, syscall.SIGKILL)
	}
	p.commands = map[uint32]*command{}
}

func (p *port) command(stream uint32) *command {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands[stream]
}

func (p *port) currentGeneration() int {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	return p.generation
}

func (p *port) send(gen int, f wire.Frame) {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if gen != p.generation {
		return
	}
	p.scratch = wire.Append(p.scratch[:0], f)
	for b := p.scratch; len(b) > 0; {
		n, err := unix.Write(p.fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			logf("port: write %v: %v", f.Type, err)
			return
		}
		b = b[max(n, 0):]
	}
}

func (p *port) startCommand(f wire.Frame) {
	gen := p.currentGeneration()
	exit := func(st wire.Status) {
		b, err := json.Marshal(st)
		if err != nil {
			b = []byte(`{"code":-1,"error":"the status cannot be encoded"}`)
		}
		p.send(gen, wire.Frame{Type: wire.Exit, Stream: f.Stream, Payload: b})
	}
	var w wire.Command
	if err := json.Unmarshal(f.Payload, &w); err != nil {
		exit(wire.Status{Code: -1, Error: fmt.Sprintf("agent: the command cannot be read: %v", err)})
		return
	}
	if p.command(f.Stream) != nil {
		exit(wire.Status{Code: -1, Error: fmt.Sprintf("agent: stream %d is in use", f.Stream)})
		return
	}
	c, err := newCommand(p.reaper, w)
	if err != nil {
		exit(wire.Status{Code: -1, Error: "agent: " + err.Error()})
		return
	}
	p.mu.Lock()
	p.commands[f.Stream] = c
	p.mu.Unlock()
	go func() {
		st := c.run(func(t wire.Type, b []byte) {
			p.send(gen, wire.Frame{Type: t, Stream: f.Stream, Payload: b})
		})
		close(c.gone)
		p.mu.Lock()
		if p.commands[f.Stream] == c {
			delete(p.commands, f.Stream)
		}
		p.mu.Unlock()
		exit(st)
	}()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/manager"
)

const (
	guestMemory = 256 << 20
	startTime   = 15 * time.Second
	endTime     = 5 * time.Second
)

// stack is a manager, two worker processes and a guest on each.
type stack struct {
	dir     string
	manager context.CancelFunc
	ended   chan error // of the manager
	workers []*process
	ends    [2]*end
}

// process is a worker process.
type process struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan error
}

// end is a guest with a process in it.
type end struct {
	guest *guest.Guest
	addr  netip.Addr
	ctx   *verbs.Context
	pd    *verbs.PD
}

func macOf(n int) net.HardwareAddr { return net.HardwareAddr{0x02, 0xbe, 0xc4, 0, 0, byte(n)} }

func addrOf(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 66, 0, byte(n)}) }

func start(ctx context.Context, bin string) (s *stack, err error) {
	s = &stack{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "ernic-bench"); err != nil {
		return s, err
	}
	managerAddr, err := s.startManager()
	if err != nil {
		return s, err
	}
	for i := range s.ends {
		p, err := startWorker(bin, i+1, managerAddr, s.socket(i))
		if err != nil {
			return s, err
		}
		s.workers = append(s.workers, p)
	}
	for i := range s.ends {
		if err := s.workers[i].await(s.socket(i)); err != nil {
			return s, err
		}
		if s.ends[i], err = boot(ctx, i+1, s.socket(i)); err != nil {
			return s, fmt.Errorf("guest %d: %w", i+1, err)
		}
	}
	return s, nil
}

func (s *stack) socket(i int) string { return filepath.Join(s.dir, fmt.Sprintf("w%d.sock", i+1)) }

func (s *stack) startManager() (string, error) {
	m, err := manager.New(manager.Config{})
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.manager, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- m.Serve(ctx, l) }()
	return l.Addr().String(), nil
}

func startWorker(bin string, n int, managerAddr, socket string) (*process, error) {
	p := &process{done: make(chan error, 1)}
	p.cmd = exec.Command(filepath.Join(bin, "ernic-worker"),
		"--manager", managerAddr, "--name", fmt.Sprintf("bench%d", n), "--socket", socket,
		"--mac", macOf(n).String(), "--gid", addrOf(n).String(), "--log-level", "warn")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	// A bench that is killed takes its workers along.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("worker %d: %w (make build makes the programs)", n, err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

// await waits until the worker's socket is there.
func (p *process) await(socket string) error {
	deadline := time.Now().Add(startTime)
	for time.Now().Before(deadline) {
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("worker ended: %w: %s", err, p.log.Bytes())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("worker did not open %s in %v", socket, startTime)
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("worker: %w: %s", err, p.log.Bytes())
		}
		return nil
	case <-time.After(endTime):
		return errors.Join(fmt.Errorf("worker did not end in %v", endTime), p.cmd.Process.Kill())
	}
}

func boot(ctx context.Context, n int, socket string) (*end, error) {
	g, err := guest.Boot(ctx, socket, guest.Options{Memory: guestMemory})
	// A worker may lose the CPU between making the socket and listening on it.
	for tries := 0; errors.Is(err, syscall.ECONNREFUSED) && tries < 100; tries++ {
		time.Sleep(10 * time.Millisecond)
		g, err = guest.Boot(ctx, socket, guest.Options{Memory: guestMemory})
	}
	if err != nil {
		return nil, err
	}
	g.NIC.Memory().SetGuard(false)
	e := &end{guest: g, addr: addrOf(n)}
	if e.ctx, err = g.RDMA.OpenUser(); err != nil {
		return nil, err
	}
	e.pd, err = e.ctx.AllocPD()
	return e, err
}

func (s *stack) stop() error {
	var errs []error
	for _, e := range s.ends {
		if e != nil {
			errs = append(errs, e.guest.Shutdown())
		}
	}
	for _, p := range s.workers {
		errs = append(errs, p.stop())
	}
	if s.manager != nil {
		s.manager()
		errs = append(errs, <-s.ended)
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

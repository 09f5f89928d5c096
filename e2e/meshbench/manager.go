// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// managerProcess is a manager that is started and killed.
type managerProcess struct {
	program string
	address string
	state   string // directory
	log     *os.File

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// newManager prepares a manager that keeps its state and log in a directory. Its
// address is this process's alone, so that a second life finds its port free.
func newManager(bin, dir string) (*managerProcess, error) {
	pid := os.Getpid()
	m := &managerProcess{
		program: filepath.Join(bin, "ernic-manager"), state: filepath.Join(dir, "state"),
		address: fmt.Sprintf("127.%d.%d.%d:6320", 128+pid>>16&63, pid>>8&255, pid&255),
	}
	var err error
	m.log, err = os.Create(filepath.Join(dir, "manager.log"))
	return m, err
}

func (m *managerProcess) start() error {
	m.cmd = exec.Command(m.program, "--listen", m.address, "--state-dir", m.state, "--gossip", "off", "--log-level", "warn")
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start the manager: %w", err)
	}
	m.done = make(chan struct{})
	go func() {
		_ = m.cmd.Wait() // how it ended is told by alive
		close(m.done)
	}()
	return nil
}

// listening waits until the manager takes connections.
func (m *managerProcess) listening(ctx context.Context) error {
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "tcp", m.address)
		if err == nil {
			return c.Close()
		}
		if alive := m.alive(); alive != nil {
			return alive
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the manager does not listen: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// alive returns an error, with the end of its log, if the manager has ended.
func (m *managerProcess) alive() error {
	select {
	case <-m.done:
	default:
		return nil
	}
	text, err := os.ReadFile(m.log.Name())
	return errors.Join(fmt.Errorf("the manager has ended: %s\n%s", m.cmd.ProcessState, strings.TrimSpace(string(text[max(0, len(text)-2000):]))), err)
}

// kill ends it as a crash would.
func (m *managerProcess) kill() {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = m.cmd.Process.Kill() // it may have ended
		<-m.done
	}
}

func (m *managerProcess) close() error {
	m.kill()
	return m.log.Close()
}

// usage is what a process has used and holds.
type usage struct {
	cpu      time.Duration
	resident uint64 // bytes
	peak     uint64 // bytes, the most that was resident
}

func (m *managerProcess) usage() (u usage, err error) {
	p, err := procfs.NewProc(m.cmd.Process.Pid)
	if err != nil {
		return u, err
	}
	stat, err := p.Stat()
	if err != nil {
		return u, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return u, err
	}
	return usage{
		cpu:      time.Duration(stat.CPUTime() * float64(time.Second)),
		resident: uint64(max(stat.ResidentMemory(), 0)), peak: status.VmHWM,
	}, nil
}

// stored is the size of the state on disk, in bytes.
func (m *managerProcess) stored() (n int64, err error) {
	err = filepath.WalkDir(m.state, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

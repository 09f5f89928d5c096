// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/songgao/water"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/netport"
)

// maxQueues is the most queues a TAP interface has (MAX_TAP_QUEUES).
const maxQueues = 256

const device = "/dev/net/tun"

// attachFirst attaches the first queue and finds out whether the interface was made
// with multi_queue: the kernel refuses the wrong one of the two.
func (p *Port) attachFirst(multi bool) error {
	var err error
	for _, p.multi = range [...]bool{multi, !multi} {
		if err = p.attachNext(); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return err
}

func (p *Port) attachNext() error {
	q := &queue{vnet: p.vnet}
	q.readFn, q.writeFn = q.read, q.write
	if err := p.attach(q); err != nil {
		return err
	}
	p.queues = append(p.queues, q)
	return nil
}

// attach makes q a queue of the interface.
func (p *Port) attach(q *queue) error {
	open := p.openPlain
	if q.vnet {
		open = p.openOffloading
	}
	file, err := open()
	if err != nil {
		return p.refusal(err)
	}
	conn, err := file.SyscallConn()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil && p.closed.Load() {
		err = netport.ErrClosed
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("tap %s: %w", p.name, err)
	}
	if q.file != nil {
		_ = q.file.Close()
	}
	q.file, q.conn = file, conn
	return nil
}

// openPlain opens the interface for finished frames.
func (p *Port) openPlain() (*os.File, error) {
	ifc, err := water.New(water.Config{
		DeviceType: water.TAP,
		PlatformSpecificParams: water.PlatformSpecificParams{
			Name: p.name,
			// The interface is its maker's: it stays when we leave.
			Persist:    true,
			MultiQueue: p.multi,
		},
	})
	if err != nil {
		return nil, err
	}
	file, ok := ifc.ReadWriteCloser.(*os.File)
	if !ok {
		_ = ifc.Close()
		return nil, errors.New("the interface did not open as a file")
	}
	return file, control(file, func(fd int) error {
		unix.CloseOnExec(fd)
		// Who had the interface before may have left it with offloads.
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0)
	})
}

// control calls f with the descriptor of file, and closes file if that fails.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err == nil {
		ferr := error(nil)
		err = conn.Control(func(fd uintptr) { ferr = f(int(fd)) })
		err = errors.Join(err, ferr)
	}
	if err != nil {
		_ = file.Close()
	}
	return err
}

// reattach attaches q again after the interface vanished.
func (p *Port) reattach(q *queue) error {
	if err := p.exists(); err != nil {
		return err
	}
	if err := p.attach(q); err != nil {
		return err
	}
	q.broken = false
	return nil
}

// exists looks for the interface. TUNSETIFF would make it, for a process that
// may.
func (p *Port) exists() error {
	if _, err := net.InterfaceByName(p.name); err != nil {
		return fmt.Errorf("tap %s: the host has no such interface; make it with: ip tuntap add dev %s mode tap user $USER",
			p.name, p.name)
	}
	return nil
}

// refusal says what the host's refusal to open the interface means.
func (p *Port) refusal(err error) error {
	name := p.name
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("tap %s: another process has the interface open: %w", name, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("tap %s: the interface belongs to another user, or %s may not be opened: %w", name, device, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("tap %s: the host has no %s: %w", name, device, err)
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("tap %s: another process has queues of the interface open: %w", name, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("tap %s: the interface is no TAP: %w", name, err)
	}
	return fmt.Errorf("tap %s: %w", name, err)
}

// SPDX-License-Identifier: Apache-2.0

// Package tap is a [netport.Port] over a host TAP interface, the usual host side
// of a LIF. The interface must exist: a missing one is an error that names it,
// never a silently dead link.
package tap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/songgao/water"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/netport"
)

// Port is an open TAP interface.
type Port struct {
	name   string
	multi  bool
	queues []*queue
	closed atomic.Bool
}

var _ netport.Port = (*Port)(nil)

// queue is one queue of the interface. Reads and writes go through the netpoller
// by functions made once, so that a frame costs no allocation.
type queue struct {
	// Changed by the one receiving goroutine, which therefore reads them without
	// mu, when the interface vanished and is there again.
	file *os.File
	conn syscall.RawConn

	// For the one receiving goroutine.
	readFn func(fd uintptr) bool
	batch  *netport.Batch
	n      int
	rerr   error
	broken bool // the last read failed

	mu      sync.Mutex // guards a send, and changes of file and conn
	writeFn func(fd uintptr) bool
	frame   []byte
	werr    error
}

// Open attaches to the existing TAP interface name with n queues. More than one
// needs an interface that was made with multi_queue.
func Open(name string, n int) (*Port, error) {
	if n < 1 {
		return nil, fmt.Errorf("tap %s: %d queues, want at least 1", name, n)
	}
	if name == "" || len(name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("tap %q: the name of an interface has 1 to %d characters", name, unix.IFNAMSIZ-1)
	}
	p := &Port{name: name, multi: n > 1}
	if err := p.exists(); err != nil {
		return nil, err
	}
	for range n {
		q := &queue{}
		q.readFn, q.writeFn = q.read, q.write
		if err := p.open(q); err != nil {
			_ = p.Close()
			return nil, err
		}
		p.queues = append(p.queues, q)
	}
	return p, nil
}

// open attaches q to the interface.
func (p *Port) open(q *queue) error {
	name, multi := p.name, p.multi
	ifc, err := water.New(water.Config{
		DeviceType: water.TAP,
		PlatformSpecificParams: water.PlatformSpecificParams{
			Name: name,
			// The interface is its maker's: it stays when we leave.
			Persist:    true,
			MultiQueue: multi,
		},
	})
	if err != nil {
		return openError(name, multi, err)
	}
	file, ok := ifc.ReadWriteCloser.(*os.File)
	if !ok {
		_ = ifc.Close()
		return fmt.Errorf("tap %s: the interface did not open as a file", name)
	}
	conn, err := file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { unix.CloseOnExec(int(fd)) })
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil && p.closed.Load() {
		err = netport.ErrClosed
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("tap %s: %w", name, err)
	}
	if q.file != nil {
		_ = q.file.Close()
	}
	q.file, q.conn = file, conn
	return nil
}

// reopen attaches q again after the interface vanished.
func (p *Port) reopen(q *queue) error {
	if err := p.exists(); err != nil {
		return err
	}
	if err := p.open(q); err != nil {
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

// openError says what the host's refusal means.
func openError(name string, multi bool, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("tap %s: another process has the interface open: %w", name, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("tap %s: the interface belongs to another user, or /dev/net/tun may not be opened: %w", name, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("tap %s: the host has no /dev/net/tun: %w", name, err)
	case errors.Is(err, unix.EINVAL) && multi:
		return fmt.Errorf("tap %s: no TAP interface, or one made without multi_queue: %w", name, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("tap %s: no TAP interface, or one made with multi_queue: %w", name, err)
	}
	return fmt.Errorf("tap %s: %w", name, err)
}

// Name implements [netport.Port].
func (p *Port) Name() string { return "tap:" + p.name }

// Queues implements [netport.Port].
func (p *Port) Queues() int { return len(p.queues) }

// Receive implements [netport.Port]. After an error it attaches to the interface
// again, which may have been removed and made anew.
func (p *Port) Receive(q int, b *netport.Batch) (int, error) {
	k := p.queues[q]
	if k.broken && !p.closed.Load() {
		if err := p.reopen(k); err != nil && !p.closed.Load() {
			return 0, err
		}
	}
	k.batch, k.n, k.rerr = b, 0, nil
	err := k.conn.Read(k.readFn)
	k.batch = nil
	switch {
	case k.n > 0:
		return k.n, nil // an error after some frames shows again
	case p.closed.Load():
		return 0, netport.ErrClosed
	case err == nil && k.rerr == nil:
		return 0, nil
	case err == nil:
		err = k.rerr
	}
	k.broken = true
	return 0, fmt.Errorf("tap %s: read: %w", p.name, err)
}

// read takes frames until there are no more. It returns false to be called again
// when there are.
func (q *queue) read(fd uintptr) bool {
	for q.n < q.batch.Len() {
		n, err := unix.Read(int(fd), q.batch.Buffer(q.n))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return q.n > 0
		case err != nil:
			q.rerr = err
			return true
		}
		q.batch.SetLen(q.n, n)
		q.n++
	}
	return true
}

// Send implements [netport.Port].
func (p *Port) Send(q int, frame []byte) error {
	k := p.queues[q%len(p.queues)]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frame, k.werr = frame, nil
	err := k.conn.Write(k.writeFn)
	k.frame = nil
	switch {
	case p.closed.Load():
		return netport.ErrClosed
	case err != nil:
		return err
	case errors.Is(k.werr, unix.EAGAIN):
		return netport.ErrFull
	}
	return k.werr
}

// write makes one attempt: a frame that the interface cannot take now is lost.
func (q *queue) write(fd uintptr) bool {
	for {
		_, q.werr = unix.Write(int(fd), q.frame)
		if !errors.Is(q.werr, unix.EINTR) {
			return true
		}
	}
}

// Close implements [netport.Port].
func (p *Port) Close() error {
	p.closed.Store(true)
	var errs []error
	for _, q := range p.queues {
		q.mu.Lock()
		errs = append(errs, q.file.Close())
		q.mu.Unlock()
	}
	return errors.Join(errs...)
}

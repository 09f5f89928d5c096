// SPDX-License-Identifier: Apache-2.0

// Package tap is a [netport.Port] over a host TAP interface, the usual host side
// of a LIF. The interface must exist: a missing one is an error that names it,
// never a silently dead link. One that goes down, vanishes or comes back takes the
// carrier along.
//
// An interface that was made with multi_queue has several queues. With offloads
// the interface carries frames whose checksum or segmentation is left open, behind
// a virtio-net header:
//
//	 0       1          2         4          6            8             10
//	| flags | gso type | hdr len | gso size | csum start | csum offset | frame ...
//
//	flags     bit 0: the checksum is open
//	gso type  0 none, 1 TCP over IPv4, 4 TCP over IPv6; bit 7: CWR is set
//
// All numbers are in the byte order of the host.
package tap

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/netport"
)

// Options says how to use an interface.
type Options struct {
	// Queues is the most queues to use, 1 unless set. An interface that was made
	// without multi_queue has one.
	Queues int
	// Offloads asks for frames with work left in them. On a host that cannot, the
	// interface carries finished frames only, and the log says so.
	Offloads bool
	Log      zerolog.Logger
}

// Port is an open TAP interface that carries finished frames.
type Port struct {
	name    string
	log     zerolog.Logger
	multi   bool // the interface was made with multi_queue
	vnet    bool // frames have a virtio-net header
	queues  []*queue
	closed  atomic.Bool
	monitor monitor
}

var _ netport.Carrier = (*Port)(nil)

// queue is one queue of the interface. Reads and writes go through the netpoller
// by functions made once, so that a frame costs no allocation.
type queue struct {
	vnet bool

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
	header  [headerLen]byte
	parts   [2][]byte // header and frame
	werr    error
}

// Open attaches to the existing TAP interface name. The port is a
// [netport.Offloader] if it carries frames with work left in them.
func Open(name string, o Options) (netport.Port, error) {
	if o.Queues == 0 {
		o.Queues = 1
	}
	if o.Queues < 0 || o.Queues > maxQueues {
		return nil, fmt.Errorf("tap %s: %d queues, want 1 to %d", name, o.Queues, maxQueues)
	}
	if name == "" || len(name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("tap %q: the name of an interface has 1 to %d characters", name, unix.IFNAMSIZ-1)
	}
	p := &Port{name: name, log: o.Log}
	if err := p.exists(); err != nil {
		return nil, err
	}
	if o.Offloads {
		if err := offloadsWork(); err != nil {
			o.Log.Warn().Str("side", "host").Str("tap", name).Err(err).
				Msg("the host's TAP driver cannot pass offloads on: every frame is finished here")
		} else {
			p.vnet = true
		}
	}
	if err := p.attachFirst(o.Queues > 1); err != nil {
		return nil, err
	}
	for p.multi && len(p.queues) < o.Queues {
		if err := p.attachNext(); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
	if p.vnet {
		return offloading{p}, nil
	}
	return p, nil
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
		if err := p.reattach(k); err != nil && !p.closed.Load() {
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
		b := q.batch.Buffer(q.n)
		n, err := unix.Read(int(fd), b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return q.n > 0
		case err != nil:
			q.rerr = err
			return true
		}
		if q.vnet {
			q.batch.Set(q.n, b[min(n, headerLen):n], decode(b[:n]))
		} else {
			q.batch.SetLen(q.n, n)
		}
		q.n++
	}
	return true
}

// Send implements [netport.Port].
func (p *Port) Send(q int, frame []byte) error { return p.send(q, frame, &netport.Offload{}) }

func (p *Port) send(q int, frame []byte, o *netport.Offload) error {
	k := p.queues[q%len(p.queues)]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.vnet {
		encode(&k.header, frame, o)
		k.parts[0] = k.header[:]
	}
	k.parts[1], k.werr = frame, nil
	err := k.conn.Write(k.writeFn)
	k.parts[1] = nil
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
		if q.vnet {
			_, q.werr = unix.Writev(int(fd), q.parts[:])
		} else {
			_, q.werr = unix.Write(int(fd), q.parts[1])
		}
		if !errors.Is(q.werr, unix.EINTR) {
			return true
		}
	}
}

// Close implements [netport.Port].
func (p *Port) Close() error {
	p.closed.Store(true)
	errs := []error{p.monitor.close()}
	for _, q := range p.queues {
		q.mu.Lock()
		errs = append(errs, q.file.Close())
		q.mu.Unlock()
	}
	return errors.Join(errs...)
}

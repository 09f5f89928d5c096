// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

const (
	// takeoverWait is how long a new client waits for the end of a session
	// whose client is gone. QEMU waits five seconds for an answer.
	takeoverWait = 4 * time.Second
	// maxWaiting bounds the clients that are being refused at a time.
	maxWaiting = 64

	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// Server offers one device to one client at a time. The zero value is ready
// for use; Options must not change after the first call of a method.
type Server struct {
	Options  Options
	counters counters

	memOnce sync.Once
	mem     *guestmem.Space

	mu   sync.Mutex // guards live
	live *Session   // session that holds the device, nil if none
}

// Mem returns the guest memory, which lives as long as the server.
func (s *Server) Mem() *guestmem.Space {
	s.memOnce.Do(func() {
		if s.mem = s.Options.Mem; s.mem == nil {
			s.mem = guestmem.New(s.Options.Memory)
		}
	})
	return s.mem
}

// Serve accepts clients on l and serves dev to one after the other. While one
// is connected others are refused with EBUSY. It closes l and returns nil when
// ctx ends, after the last session has been torn down, or an error if l fails.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener, dev Device) error {
	info := dev.Info()
	if err := info.check(dev); err != nil {
		l.Close()
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	// The listener may be closed before the sessions' context is cancelled, so
	// why accept failed is asked of the caller's.
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	o := s.Options.withDefaults()
	device := make(chan struct{}, 1) // a token: who holds it serves the device
	waiting := make(chan struct{}, maxWaiting)
	backoff := acceptBackoffMin
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if outer.Err() != nil {
				return nil
			}
			if !transient(err) {
				return fmt.Errorf("vfio-user: accept on %s: %w", l.Addr(), err)
			}
			s.counters.acceptErrors.Add(1)
			o.Logger.Warn().Err(err).Dur("retry_in", backoff).Msg("vfio-user accept failed")
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
				return nil
			}
			backoff = min(2*backoff, acceptBackoffMax)
			continue
		}
		backoff = acceptBackoffMin
		select {
		case waiting <- struct{}{}:
		default:
			s.counters.refusedBusy.Add(1)
			c.Close()
			continue
		}
		wg.Go(func() {
			s.admit(ctx, c, dev, &o, device, func() { <-waiting })
		})
	}
}

// transient reports whether accept may succeed later.
func transient(err error) bool {
	for _, e := range []syscall.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// admit serves the client if the device is free, else refuses it. settled is
// called when it is known which.
func (s *Server) admit(ctx context.Context, c *net.UnixConn, dev Device, o *Options, device chan struct{}, settled func()) {
	if !s.acquire(ctx, device) {
		s.refuse(ctx, c, o)
		settled()
		return
	}
	settled()
	defer func() { <-device }()
	switch err := s.serve(ctx, c, dev, o); {
	case errors.Is(err, io.EOF): // somebody looked whether we listen
		o.Logger.Debug().Err(err).Msg("vfio-user client left before it began")
	case err != nil:
		o.Logger.Warn().Err(err).Msg("vfio-user session ended")
	}
}

// acquire takes the device's token. If another session holds it but its client
// is gone, it waits until that session is torn down.
func (s *Server) acquire(ctx context.Context, device chan struct{}) bool {
	select {
	case device <- struct{}{}:
		return true
	default:
	}
	if !s.clientGone() {
		return false
	}
	t := time.NewTimer(takeoverWait)
	defer t.Stop()
	select {
	case device <- struct{}{}:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// clientGone reports whether the client of the live session has hung up, also
// if the session has not noticed yet.
func (s *Server) clientGone() bool {
	s.mu.Lock()
	se := s.live
	s.mu.Unlock()
	if se == nil {
		return true // between two sessions
	}
	gone := true // stays so if the connection is already closed
	_ = se.sock.raw.Control(func(fd uintptr) {
		gone = ready(int(fd), unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR)
	})
	return gone
}

// refuse answers a client's VERSION with EBUSY.
func (s *Server) refuse(ctx context.Context, c *net.UnixConn, o *Options) {
	defer c.Close()
	s.counters.refusedBusy.Add(1)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	k, err := newSocket(c, o)
	if err != nil {
		return
	}
	defer k.closeFDs()
	k.spin.tries = 0
	se := &Session{opts: o, m: &s.counters, sock: k, out: make([]byte, headerLen)}
	se.req.fds = make([]int, 0, maxMessageFDs)
	c.SetReadDeadline(time.Now().Add(o.HandshakeTimeout))
	if se.await() != nil {
		return
	}
	se.dropFDs()
	_ = se.answer(se.req.header, nil, -1, syscall.EBUSY)
}

// ServeConn serves dev to the client on c until it leaves, ctx ends, or the
// client breaks the protocol; only the latter is an error. It closes c. One
// call at a time for a Server.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn, dev Device) error {
	o := s.Options.withDefaults()
	return s.serve(ctx, c, dev, &o)
}

func (s *Server) serve(ctx context.Context, c *net.UnixConn, dev Device, o *Options) error {
	if err := s.checkPeer(c, o); err != nil {
		c.Close()
		return err
	}
	se, err := s.newSession(c, o, dev)
	if err != nil {
		c.Close()
		return err
	}
	s.setLive(se)
	defer s.setLive(nil)
	err = se.run(ctx)
	if errors.Is(err, ErrClientGone) || ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) setLive(se *Session) {
	s.mu.Lock()
	s.live = se
	s.mu.Unlock()
}

// checkPeer compares the client's user with the list of those allowed.
func (s *Server) checkPeer(c *net.UnixConn, o *Options) error {
	if len(o.AllowUIDs) == 0 {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("vfio-user: credentials of the client: %w", err)
	}
	for _, uid := range o.AllowUIDs {
		if uid == cred.Uid {
			return nil
		}
	}
	s.counters.refusedUID.Add(1)
	return fmt.Errorf("vfio-user: client of user %d (process %d) is not allowed", cred.Uid, cred.Pid)
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// ErrClientGone is the reason given to Detach when the client closed the
// connection in an orderly way.
var ErrClientGone = errors.New("vfio-user: client closed the connection")

// Session is the connection of one client. Its exported methods may be called
// from any goroutine between Attach and Detach, and harmlessly later.
type Session struct {
	opts   *Options
	log    zerolog.Logger
	m      *counters
	mem    *guestmem.Space
	dev    Device
	info   Info
	irqMax [NumIRQs]uint32

	vectors  [NumIRQs][]Vector
	listener DMAListener // nil if dev is none
	masker   IRQMasker   // nil if dev is none

	sock      *socket
	sendMu    sync.Mutex // guards the send half of sock
	client    clientVersion
	ready     atomic.Bool // VERSION was answered
	goroutine uint64      // id of the goroutine that handles requests
	dma       dmaTable

	req request
	out []byte // reply under construction, header first
}

// request is the message being handled.
type request struct {
	header
	payload []byte
	fds     []int // -1: taken by the handler
}

// errDrop wraps an error after which the stream or the client cannot be
// trusted any more.
type errDrop struct{ error }

func (e errDrop) Unwrap() error { return e.error }

func isDrop(err error) bool {
	var d errDrop
	return errors.As(err, &d)
}

const replyBufferLen = 4096 + headerLen + regionAccessLen // a whole configuration space

func (s *Server) newSession(c *net.UnixConn, o *Options, dev Device) (*Session, error) {
	k, err := newSocket(c, o)
	if err != nil {
		return nil, err
	}
	se := &Session{
		opts: o, log: o.Logger, m: &s.counters, mem: s.Mem(),
		dev: dev, info: dev.Info(), sock: k,
		out: make([]byte, replyBufferLen),
	}
	se.req.fds = make([]int, 0, maxMessageFDs)
	se.dma.ops = make(map[uint16]*dmaOp)
	if err := se.info.check(dev); err != nil {
		return nil, err
	}
	for i, q := range se.info.IRQs {
		se.irqMax[i] = uint32(q.Count)
		se.vectors[i] = make([]Vector, q.Count)
		for n := range se.vectors[i] {
			se.vectors[i][n].m = se.m
		}
	}
	se.listener, _ = dev.(DMAListener)
	se.masker, _ = dev.(IRQMasker)
	return se, nil
}

// Mem returns the guest memory. It outlives the session.
func (s *Session) Mem() *guestmem.Space { return s.mem }

// IRQ returns interrupt n of an index, or nil if there is none. Signal on nil
// is allowed. The handle is good for the whole session.
func (s *Session) IRQ(index IRQIndex, n int) *Vector {
	if index < 0 || index >= NumIRQs || n < 0 || n >= len(s.vectors[index]) {
		return nil
	}
	return &s.vectors[index][n]
}

// run serves the client until it is gone and returns why: ErrClientGone, the
// context's error, or what went wrong.
func (s *Session) run(ctx context.Context) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s.goroutine = goroutineID()
	stop := context.AfterFunc(ctx, func() { s.sock.conn.Close() })
	defer stop()
	defer s.sock.conn.Close()
	defer s.sock.closeFDs()

	s.sock.conn.SetReadDeadline(time.Now().Add(s.opts.HandshakeTimeout))
	version, err := s.handshake()
	if err != nil {
		s.m.handshakeErrors.Add(1)
		return s.reason(ctx, fmt.Errorf("vfio-user handshake: %w", err))
	}
	s.sock.conn.SetReadDeadline(time.Time{})
	s.m.sessions.Add(1)

	attacher, _ := s.dev.(Attacher)
	if attacher != nil {
		if err := attacher.Attach(s); err != nil {
			_ = s.answer(version, nil, -1, err)
			return fmt.Errorf("vfio-user: device refused the client: %w", err)
		}
	}
	err = s.answer(version, answerVersion(s.client, int(version.size)-headerLen), -1, nil)
	if err == nil {
		s.ready.Store(true)
		s.log.Info().Uint16("minor", s.client.minor).Msg("vfio-user client attached")
		err = s.loop()
	}
	err = s.reason(ctx, err)
	s.teardown(attacher, err)
	return err
}

// reason explains err: closing the connection is how a context ends a session.
func (s *Session) reason(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		if s.ready.Load() {
			return ErrClientGone
		}
	case isDrop(err):
		s.m.protocolErrors.Add(1)
	default:
		s.m.connectionLost.Add(1)
	}
	return err
}

// teardown takes everything of the client away from the device.
func (s *Session) teardown(attacher Attacher, reason error) {
	s.ready.Store(false)
	s.sock.conn.Close()
	s.dma.fail(ErrClientGone)
	if attacher != nil {
		attacher.Detach(reason)
	}
	if r, ok := s.dev.(Resetter); ok {
		if err := r.Reset(ResetLostClient); err != nil {
			s.log.Warn().Err(err).Msg("vfio-user device failed to reset after its client was lost")
		}
	}
	for i := range s.vectors {
		for n := range s.vectors[i] {
			s.vectors[i][n].assign(nil)
		}
	}
	s.mem.UnmapAll()
	s.log.Info().AnErr("reason", reason).Msg("vfio-user client detached")
}

// loop handles requests until an error.
func (s *Session) loop() error {
	for {
		if err := s.await(); err != nil {
			return err
		}
		if err := s.handle(); err != nil {
			return err
		}
	}
}

// await receives until a whole message is at the front of the buffer and
// checks its header.
func (s *Session) await() error {
	for {
		need := headerLen
		if h, ok := s.sock.header(); ok {
			if h.badSize() || h.kind() > typeReply {
				_ = s.answer(h, nil, -1, syscall.EINVAL)
				return errDrop{fmt.Errorf("vfio-user: %v with size %d and flags %#x is not a message", h.cmd, h.size, h.flags)}
			}
			if b, ok := s.sock.message(h.size); ok {
				s.req.header = h
				s.req.payload = b[headerLen:]
				s.req.fds = s.sock.takeFDs(s.req.fds[:0])
				if s.opts.Trace != nil {
					s.opts.Trace.Message(true, b, len(s.req.fds))
				}
				return nil
			}
			need = int(h.size)
		}
		if err := s.sock.receive(need); err != nil {
			if errors.Is(err, errControl) || errors.Is(err, errTooManyFDs) {
				return errDrop{fmt.Errorf("vfio-user: receive: %w", err)}
			}
			return err
		}
	}
}

// handle processes the message in s.req and answers it.
func (s *Session) handle() error {
	q := &s.req
	defer s.sock.skip(q.size)
	if q.kind() == typeReply {
		if !s.dma.deliver(q) {
			s.m.strayReplies.Add(1)
		}
		s.dropFDs()
		return nil
	}
	reply, fd, err := s.dispatch(q)
	s.dropFDs()
	if err != nil && isDrop(err) {
		return err
	}
	return s.answer(q.header, reply, fd, err)
}

// dropFDs closes the descriptors that the handler did not take.
func (s *Session) dropFDs() {
	for _, fd := range s.req.fds {
		if fd >= 0 {
			unix.Close(fd)
			s.m.unusedFDs.Add(1)
		}
	}
	s.req.fds = s.req.fds[:0]
}

// dispatch calls the handler of a request. It returns the reply's payload,
// which lies in s.out behind the header, and a descriptor to attach, or -1.
func (s *Session) dispatch(q *request) (reply []byte, fd int, err error) {
	if q.noReply() {
		s.m.posted.Add(1)
	}
	if int(q.cmd) < len(requestMetricNames) && requestMetricNames[q.cmd] != "" {
		s.m.requests[q.cmd].Add(1)
	} else {
		s.m.unknown.Add(1)
		return nil, -1, syscall.EINVAL
	}
	if (len(q.payload) == 0) != (q.cmd == CmdReset) {
		return nil, -1, syscall.EINVAL
	}
	switch q.cmd {
	case CmdRegionWrite:
		reply, err = s.regionWrite(q.payload)
	case CmdRegionRead:
		reply, err = s.regionRead(q.payload)
	case CmdRegionWriteMulti:
		reply, err = s.regionWriteMulti(q.payload)
	case CmdDMAMap:
		err = s.dmaMap(q)
	case CmdDMAUnmap:
		reply, err = s.dmaUnmap(q.payload)
	case CmdSetIRQs:
		err = s.setIRQs(q)
	case CmdGetInfo:
		reply, err = s.getInfo(q.payload)
	case CmdGetRegionInfo:
		return s.getRegionInfo(q.payload)
	case CmdGetRegionIOFDs:
		reply, err = s.getRegionIOFDs(q.payload)
	case CmdGetIRQInfo:
		reply, err = s.getIRQInfo(q.payload)
	case CmdReset:
		err = s.reset()
	case CmdFeature:
		err = decodeFeature(q.payload)
	default: // a second VERSION, or migration data, which never exists here
		err = syscall.EINVAL
	}
	return reply, -1, err
}

// payload returns n zeroed bytes of reply payload.
func (s *Session) payload(n int) []byte {
	if headerLen+n > len(s.out) {
		s.out = make([]byte, maxMessage) // once in a session
	}
	p := s.out[headerLen : headerLen+n]
	clear(p)
	return p
}

// answer sends the reply to h, unless the client wants none: payload, or
// failure if it is not nil. fd is attached if not negative.
func (s *Session) answer(h header, payload []byte, fd int, failure error) error {
	if failure != nil {
		if h.noReply() {
			s.m.silentErrors.Add(1)
		} else {
			s.m.errorReplies.Add(1)
		}
	}
	if h.noReply() {
		return nil
	}
	r := header{id: h.id, cmd: h.cmd, size: headerLen, flags: typeReply}
	if failure != nil {
		r.flags |= flagError
		r.errno = errnoOf(failure)
		payload, fd = nil, -1
	}
	r.size += uint32(len(payload))
	msg := s.out[:headerLen]
	var body []byte
	if len(payload) > 0 {
		if &payload[0] == &s.out[headerLen] {
			msg = s.out[:headerLen+len(payload)]
		} else {
			body = payload
		}
	}
	r.put(msg)
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.send(msg, body, fd)
}

// send writes a message. Caller holds sendMu.
func (s *Session) send(head, body []byte, fd int) error {
	if s.opts.Trace != nil {
		fds := 0
		if fd >= 0 {
			fds = 1
		}
		s.opts.Trace.Message(false, append(append([]byte(nil), head...), body...), fds)
	}
	err := s.sock.send(head, body, fd)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("vfio-user: client has not read for %v: %w", s.opts.WriteTimeout, err)
	}
	return err
}

// errnoOf returns the errno to report for err, 1 to 4095.
func errnoOf(err error) uint32 {
	var e syscall.Errno
	if errors.As(err, &e) && e > 0 && e <= maxErrno {
		return uint32(e)
	}
	return uint32(syscall.EIO)
}

func (s *Session) reset() error {
	r, ok := s.dev.(Resetter)
	if !ok || !s.info.Resettable {
		return syscall.EINVAL
	}
	return r.Reset(ResetCommand)
}

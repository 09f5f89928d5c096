// SPDX-License-Identifier: Apache-2.0

// Package socket reads and writes a stream connection with vectors: one system
// call moves bytes between the kernel and many pieces of memory.
//
//	Writev   [9][5][16 KiB - 5][9][16 KiB] ...   --sendmsg-->  TCP
//	Readv    [9][16 KiB][9][16 KiB] ... [8 KiB]  <--recvmsg--  TCP
//
// On TCP and unix sockets the calls are raw ones that never block: the Go scheduler
// is not told. A call that moves 256 KiB takes longer than the 20 us after
// which Go's monitor thread takes the processor away from it and wakes another
// thread, which costs more than it can bring. A goroutine waits for the socket
// the usual way.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stream is a connection with vectored reads and writes. One goroutine at a
// time may read and one may write.
type Stream interface {
	// Readv reads at least one byte into the pieces of v, in their order, and
	// returns the number of bytes. The first piece must not be empty.
	Readv(v [][]byte) (int, error)
	// Writev writes all bytes of v. It changes the slices that v holds.
	Writev(v [][]byte) error
}

// New returns the Stream of a connection. Deadlines and Close of the
// connection work as ever.
func New(c net.Conn) (Stream, error) {
	var kernel syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		kernel = c
	case *net.UnixConn:
		kernel = c
	default:
		return plain{c}, nil
	}
	raw, err := kernel.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &kernelStream{raw: raw}
	s.in.try, s.out.try = s.tryRead, s.tryWrite
	return s, nil
}

// maxVectors is the most pieces of one system call.
const maxVectors = 128

// kernelStream is the Stream of a socket.
type kernelStream struct {
	raw     syscall.RawConn
	in, out half
}

// half is what one direction needs for a call.
type half struct {
	v   [][]byte
	n   int
	err error
	msg unix.Msghdr
	iov [maxVectors]unix.Iovec
	try func(fd uintptr) bool
}

var errEmptyRead = errors.New("socket: read into nothing")

// Readv implements Stream.
func (s *kernelStream) Readv(v [][]byte) (int, error) {
	h := &s.in
	h.v, h.n, h.err = v, 0, nil
	if h.load() == 0 {
		return 0, errEmptyRead
	}
	err := s.raw.Read(h.try)
	h.clear()
	switch {
	case err != nil:
		return 0, err
	case h.err != nil:
		return 0, h.err
	case h.n == 0:
		return 0, io.EOF
	}
	return h.n, nil
}

// Writev implements Stream.
func (s *kernelStream) Writev(v [][]byte) error {
	h := &s.out
	h.v, h.err = v, nil
	err := s.raw.Write(h.try)
	h.clear()
	if err != nil {
		return err
	}
	return h.err
}

// load points the system call's vectors at the bytes of v and returns the
// number of vectors.
func (h *half) load() int {
	n := 0
	for _, b := range h.v {
		if len(b) == 0 {
			continue
		}
		if n == maxVectors {
			break
		}
		h.iov[n].Base = &b[0]
		h.iov[n].SetLen(len(b))
		n++
	}
	h.msg.Iov = &h.iov[0]
	h.msg.SetIovlen(n)
	return n
}

// clear forgets the memory of the last call.
func (h *half) clear() {
	clear(h.iov[:h.msg.Iovlen])
	h.msg.Iovlen = 0
	h.v = nil
}

// advance drops the first n bytes of v.
func (h *half) advance(n int) {
	for n > 0 || len(h.v) > 0 && len(h.v[0]) == 0 {
		k := min(n, len(h.v[0]))
		h.v[0] = h.v[0][k:]
		n -= k
		if len(h.v[0]) == 0 {
			h.v = h.v[1:]
		}
	}
}

// tryRead is the callback of raw.Read; false parks the goroutine until the
// socket is readable.
func (s *kernelStream) tryRead(fd uintptr) bool {
	h := &s.in
	for {
		n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&h.msg)), unix.MSG_DONTWAIT)
		switch e {
		case 0:
			h.n = int(n)
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			h.err = os.NewSyscallError("recvmsg", e)
			return true
		}
	}
}

// tryWrite is the callback of raw.Write; false parks the goroutine until the
// socket takes more.
func (s *kernelStream) tryWrite(fd uintptr) bool {
	h := &s.out
	for h.load() > 0 {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch e {
		case 0:
			h.advance(int(n))
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			h.err = os.NewSyscallError("sendmsg", e)
			return true
		}
	}
	return true
}

// plain is the Stream of any other connection.
type plain struct{ conn net.Conn }

// Readv fills the first piece only.
func (p plain) Readv(v [][]byte) (int, error) {
	if len(v) == 0 || len(v[0]) == 0 {
		return 0, errEmptyRead
	}
	return p.conn.Read(v[0])
}

// Writev writes piece by piece.
func (p plain) Writev(v [][]byte) error {
	for _, b := range v {
		if len(b) == 0 {
			continue
		}
		if _, err := p.conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

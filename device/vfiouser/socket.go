// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// recvBufferLen is the initial read-ahead buffer: 300 doorbell writes fit,
	// so a burst of posted writes costs one system call for many.
	recvBufferLen = 16 << 10
	// controlLen takes as many descriptors as the kernel lets a message carry,
	// so they can never be truncated.
	controlLen = 1032 // CMSG_SPACE(253 * 4)
	// pollYield is how many tries of a busy poll pass between two yields to
	// other goroutines.
	pollYield = 16
)

var (
	errControl    = errors.New("malformed or unexpected control message")
	errTooManyFDs = fmt.Errorf("more than %d descriptors with one message", maxMessageFDs)
)

// queuedFD is a received descriptor and the stream position of the first byte
// of the message it belongs to.
type queuedFD struct {
	pos uint64
	fd  int
}

// socket frames messages. Its receive half belongs to the session's goroutine,
// its send half to whoever holds the session's send lock. Neither allocates in
// the steady state.
type socket struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	buf  []byte // buf[r:w] is received and not yet handled
	r, w int
	pos  uint64 // stream position of buf[r]
	fds  []queuedFD

	spin    spin          // receive attempts before parking
	pollFor time.Duration // how long to poll before parking
	recvFn  func(fd uintptr) bool
	rmsg    unix.Msghdr
	riov    unix.Iovec
	rctl    [controlLen]byte
	rn      int
	rerr    syscall.Errno

	writeTimeout time.Duration
	sendFn       func(fd uintptr) bool // one attempt
	sendAllFn    func(fd uintptr) bool // parks until all is sent
	smsg         unix.Msghdr
	siov         [2]unix.Iovec
	sctl         [unix.SizeofCmsghdr + 8]byte
	left         int // bytes not yet sent
	serr         syscall.Errno
}

func newSocket(c *net.UnixConn, o *Options) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	k := &socket{
		conn: c, raw: raw,
		buf:  make([]byte, recvBufferLen),
		spin: spin{tries: o.SpinTries, paid: true}, pollFor: o.PollFor, writeTimeout: o.WriteTimeout,
	}
	k.recvFn, k.sendFn, k.sendAllFn = k.tryRecv, k.trySend, k.trySendAll
	k.rmsg.Iov = &k.riov
	k.rmsg.Iovlen = 1
	k.rmsg.Control = &k.rctl[0]
	return k, nil
}

// header returns the header of the message at the front, if it is there.
func (k *socket) header() (header, bool) {
	if k.w-k.r < headerLen {
		return header{}, false
	}
	return parseHeader(k.buf[k.r:k.w]), true
}

// message returns the whole message at the front, if it is there. The slice is
// valid until the next receive.
func (k *socket) message(size uint32) ([]byte, bool) {
	if uint64(k.w-k.r) < uint64(size) {
		return nil, false
	}
	return k.buf[k.r : k.r+int(size)], true
}

// takeFDs appends the descriptors of the message at the front to into.
func (k *socket) takeFDs(into []int) []int {
	n := 0
	for n < len(k.fds) && k.fds[n].pos == k.pos {
		into = append(into, k.fds[n].fd)
		n++
	}
	if n > 0 {
		k.fds = k.fds[:copy(k.fds, k.fds[n:])]
	}
	return into
}

// skip drops the message at the front.
func (k *socket) skip(size uint32) {
	k.r += int(size)
	k.pos += uint64(size)
}

// receive reads more bytes. need is the length of the message at the front.
// It returns io.EOF when the client closed its end.
func (k *socket) receive(need int) error {
	k.makeRoom(need)
	k.riov.Base = &k.buf[k.w]
	k.riov.SetLen(len(k.buf) - k.w)
	if err := k.raw.Read(k.recvFn); err != nil {
		return err
	}
	if k.rerr != 0 {
		return os.NewSyscallError("recvmsg", k.rerr)
	}
	k.w += k.rn
	if k.rmsg.Controllen > 0 || k.rmsg.Flags&unix.MSG_CTRUNC != 0 {
		if err := k.queueFDs(); err != nil {
			return err
		}
	}
	if k.rn == 0 {
		return io.EOF
	}
	return nil
}

// makeRoom sees to it that a message of need bytes fits behind k.r.
func (k *socket) makeRoom(need int) {
	if k.r == k.w {
		k.r, k.w = 0, 0
	}
	if need > len(k.buf) { // once in a session: the next size is the largest
		b := make([]byte, maxMessage+recvBufferLen)
		k.w = copy(b, k.buf[k.r:k.w])
		k.buf, k.r = b, 0
	} else if k.r > 0 && len(k.buf)-k.r < max(need, recvBufferLen/4) {
		k.w = copy(k.buf, k.buf[k.r:k.w])
		k.r = 0
	}
}

// tryRecv is the callback of raw.Read: false parks the goroutine until the
// socket is readable. A raw system call is right here because it never blocks.
func (k *socket) tryRecv(fd uintptr) bool {
	var began time.Time
	for try, tries := 0, 0; ; {
		k.rmsg.Controllen = controlLen
		k.rmsg.Flags = 0
		n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&k.rmsg)),
			unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch e {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if try++; try == 1 {
				tries = k.spin.start()
			}
			if try < tries {
				continue
			}
			if try > 1 {
				k.spin.end(false)
			}
			if k.pollFor <= 0 {
				return false
			}
			if began.IsZero() {
				began = time.Now()
			}
			if try%pollYield == 0 {
				if time.Since(began) >= k.pollFor {
					return false
				}
				runtime.Gosched()
			}
			continue
		}
		if try > 0 && try < tries {
			k.spin.end(true)
		}
		k.rn, k.rerr = int(n), e
		return true
	}
}

// queueFDs books received descriptors to the message they came with. The
// kernel ends a receive at the segment that carries descriptors, so they
// belong to the last message that has started in the buffer.
func (k *socket) queueFDs() error {
	msgs, err := unix.ParseSocketControlMessage(k.rctl[:k.rmsg.Controllen])
	bad := err != nil || len(msgs) > 1 || k.rmsg.Flags&unix.MSG_CTRUNC != 0
	pos := k.lastStarted()
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			bad = true
			continue
		}
		for _, fd := range got {
			k.fds = append(k.fds, queuedFD{pos, fd})
		}
	}
	if bad {
		return errControl
	}
	n := 0
	for _, q := range k.fds {
		if q.pos == pos {
			n++
		}
	}
	if n > maxMessageFDs {
		return errTooManyFDs
	}
	return nil
}

// lastStarted returns the stream position of the last message of which at
// least one byte is in the buffer.
func (k *socket) lastStarted() uint64 {
	at := k.r
	for k.w-at >= headerLen {
		h := parseHeader(k.buf[at:k.w])
		if h.badSize() || uint64(h.size) >= uint64(k.w-at) {
			break
		}
		at += int(h.size)
	}
	return k.pos + uint64(at-k.r)
}

// closeFDs closes every descriptor not yet taken.
func (k *socket) closeFDs() {
	for _, q := range k.fds {
		unix.Close(q.fd)
	}
	k.fds = k.fds[:0]
}

// send writes head and body as one message, with one sendmsg unless the
// socket's buffer is full. fd is attached unless it is negative. An error
// means that the stream is broken.
func (k *socket) send(head, body []byte, fd int) error {
	k.siov[0].Base = &head[0]
	k.siov[0].SetLen(len(head))
	k.smsg.Iov = &k.siov[0]
	k.smsg.Iovlen = 1
	if len(body) > 0 {
		k.siov[1].Base = &body[0]
		k.siov[1].SetLen(len(body))
		k.smsg.Iovlen = 2
	}
	if fd >= 0 {
		copy(k.sctl[:], unix.UnixRights(fd))
		k.smsg.Control = &k.sctl[0]
		k.smsg.SetControllen(len(k.sctl))
	}
	k.left = len(head) + len(body)
	k.serr = 0
	err := k.raw.Write(k.sendFn)
	if err == nil && k.serr == 0 && k.left > 0 {
		// The client does not read. Give it some time, but not for ever.
		k.conn.SetWriteDeadline(time.Now().Add(k.writeTimeout))
		err = k.raw.Write(k.sendAllFn)
		k.conn.SetWriteDeadline(time.Time{})
	}
	k.siov = [2]unix.Iovec{}
	k.smsg.Control, k.smsg.Controllen = nil, 0
	if err == nil && k.serr != 0 {
		err = os.NewSyscallError("sendmsg", k.serr)
	}
	return err
}

func (k *socket) trySend(fd uintptr) bool {
	k.sendSome(fd)
	return true
}

func (k *socket) trySendAll(fd uintptr) bool {
	k.sendSome(fd)
	return k.left == 0 || k.serr != 0
}

// sendSome sends until all is sent, the socket is full, or an error.
func (k *socket) sendSome(fd uintptr) {
	for k.left > 0 {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&k.smsg)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch e {
		case 0:
			k.advance(int(n))
		case unix.EINTR:
		case unix.EAGAIN:
			return
		default:
			k.serr = e
			return
		}
	}
}

// advance notes that n bytes were sent; descriptors went with the first.
func (k *socket) advance(n int) {
	k.left -= n
	if k.left == 0 {
		return
	}
	k.smsg.Control, k.smsg.Controllen = nil, 0
	for n > 0 {
		v := k.smsg.Iov
		if uint64(n) < v.Len {
			v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
			v.Len -= uint64(n)
			return
		}
		n -= int(v.Len)
		k.smsg.Iov = &k.siov[1]
		k.smsg.Iovlen = 1
	}
}

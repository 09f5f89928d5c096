// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of a test.
const patience = time.Minute

// enc packs integers, strings and bytes as the wire does.
func enc(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		switch x := f.(type) {
		case uint8:
			b = append(b, x)
		case uint16:
			b = le.AppendUint16(b, x)
		case uint32:
			b = le.AppendUint32(b, x)
		case uint64:
			b = le.AppendUint64(b, x)
		case string:
			b = append(b, x...)
		case []byte:
			b = append(b, x...)
		default:
			panic(fmt.Sprintf("enc of %T", f))
		}
	}
	return b
}

type (
	u8  = uint8
	u16 = uint16
	u32 = uint32
	u64 = uint64
)

// message builds a request.
func message(id u16, cmd Command, flags u32, payload []byte) []byte {
	b := make([]byte, headerLen, headerLen+len(payload))
	header{id: id, cmd: cmd, size: u32(headerLen + len(payload)), flags: flags}.put(b)
	return append(b, payload...)
}

var orderMu sync.Mutex

// order tells the race detector what the socket already guarantees: what the
// device did happened before the client read the reply to it. The socket's
// system calls are raw, so the detector cannot see them.
func order() {
	orderMu.Lock()
	defer orderMu.Unlock()
}

// fakeDevice is a Device under the control of a test. Nil functions read zeros
// and drop writes.
type fakeDevice struct {
	info   Info
	read   func(region int, off uint64, p []byte) error
	write  func(region int, off uint64, p []byte) error
	attach func(s *Session) error
	detach func(reason error)

	mu        sync.Mutex
	session   *Session
	resets    []ResetKind
	attached  int
	detached  int
	reason    error
	dma       []string
	masks     []string
	resetFail error
}

// plainInfo is a device with an 8 KiB BAR0, a read-only BAR1, a write-only
// BAR2, 4 KiB of configuration space, 20 MSI-X vectors, ERR and REQ.
func plainInfo() Info {
	var in Info
	in.Resettable = true
	in.Regions[0] = RegionInfo{Size: 8 << 10, Flags: Readable | Writable}
	in.Regions[1] = RegionInfo{Size: 4 << 10, Flags: Readable}
	in.Regions[2] = RegionInfo{Size: 4 << 10, Flags: Writable}
	in.Regions[4] = RegionInfo{Size: 4 << 20, Flags: Readable | Writable}
	in.Regions[RegionConfig] = RegionInfo{Size: 4096, Flags: Readable | Writable}
	in.IRQs[IRQMSIX].Count = 20
	in.IRQs[IRQErr].Count = 1
	in.IRQs[IRQReq].Count = 1
	return in
}

func newFake() *fakeDevice { return &fakeDevice{info: plainInfo()} }

func (d *fakeDevice) Info() Info { return d.info }

func (d *fakeDevice) RegionRead(region int, off uint64, p []byte) error {
	order()
	defer order()
	if d.read == nil {
		return nil
	}
	return d.read(region, off, p)
}

func (d *fakeDevice) RegionWrite(region int, off uint64, p []byte) error {
	order()
	defer order()
	if d.write == nil {
		return nil
	}
	return d.write(region, off, p)
}

func (d *fakeDevice) Attach(s *Session) error {
	order()
	defer order()
	d.mu.Lock()
	d.session = s
	d.attached++
	d.mu.Unlock()
	if d.attach != nil {
		return d.attach(s)
	}
	return nil
}

func (d *fakeDevice) Detach(reason error) {
	order()
	defer order()
	d.mu.Lock()
	d.detached++
	d.reason = reason
	d.mu.Unlock()
	if d.detach != nil {
		d.detach(reason)
	}
}

func (d *fakeDevice) Reset(kind ResetKind) error {
	order()
	defer order()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets = append(d.resets, kind)
	return d.resetFail
}

func (d *fakeDevice) DMAMapped(iova, size uint64) { d.noteDMA("map", iova, size) }

func (d *fakeDevice) DMAUnmapping(iova, size uint64) { d.noteDMA("unmap", iova, size) }

func (d *fakeDevice) noteDMA(what string, iova, size uint64) {
	order()
	defer order()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dma = append(d.dma, fmt.Sprintf("%s %#x+%#x", what, iova, size))
}

func (d *fakeDevice) SetMask(index IRQIndex, start, count int, masked bool) {
	order()
	defer order()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.masks = append(d.masks, fmt.Sprintf("%d:%d+%d %v", index, start, count, masked))
}

// Session returns the live session, which Attach must have seen.
func (d *fakeDevice) Session() *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// leakCheck fails the test if it leaves descriptors or goroutines behind. Call
// it first, so that it looks last.
func leakCheck(t testing.TB) {
	t.Helper()
	fds, routines := openFDs(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			f, r := openFDs(t), runtime.NumGoroutine()
			if len(f) <= len(fds) && r <= routines {
				return
			}
			if time.Now().After(end) {
				buf := make([]byte, 1<<16)
				t.Errorf("descriptors %v -> %v, goroutines %d -> %d\n%s", fds, f, routines, r, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// openFDs lists the open descriptors but the runtime's own epoll and eventfd,
// which appear with the first use of the poller.
func openFDs(t testing.TB) []string {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil { // the directory itself
			continue
		}
		out = append(out, e.Name()+"="+name)
	}
	return out
}

// pair returns a connected stream socket pair: a net.UnixConn for the server
// and a raw descriptor for the client.
func pair(t testing.TB) (*net.UnixConn, int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(p[0]), "server")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn), p[1]
}

// rawClient speaks the protocol over a bare socket.
type rawClient struct {
	t   testing.TB
	fd  int
	id  u16
	srv *Server
	err chan error // result of ServeConn, nil if there is a listener
}

// start serves dev to a new raw client that has not said anything yet. The
// test's cleanup disconnects it and waits for the server.
func start(t testing.TB, dev Device, o Options) *rawClient {
	t.Helper()
	return startServer(t, &Server{Options: o}, dev)
}

func startServer(t testing.TB, srv *Server, dev Device) *rawClient {
	t.Helper()
	conn, fd := pair(t)
	c := &rawClient{t: t, fd: fd, srv: srv, err: make(chan error, 1)}
	c.setTimeout()
	go func() { c.err <- srv.ServeConn(context.Background(), conn, dev) }()
	t.Cleanup(func() {
		c.close()
		if c.err != nil {
			c.wait()
		}
		if st := srv.Mem().Stats(); st.Windows != 0 || st.Files != 0 {
			t.Errorf("guest memory after the session: %+v", st)
		}
	})
	return c
}

// attached is start plus a VERSION exchange.
func attached(t testing.TB, dev Device, o Options) *rawClient {
	t.Helper()
	c := start(t, dev, o)
	c.version()
	return c
}

func (c *rawClient) setTimeout() {
	tv := unix.NsecToTimeval(int64(patience))
	if err := errors.Join(
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)); err != nil {
		c.t.Fatal(err)
	}
}

// wait returns the result of ServeConn.
func (c *rawClient) wait() error {
	c.t.Helper()
	select {
	case err := <-c.err:
		c.err <- err
		return err
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		c.t.Fatalf("ServeConn does not return\n%s", buf[:runtime.Stack(buf, true)])
		return nil
	}
}

func (c *rawClient) close() {
	order()
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

// write sends b, with descriptors on its first byte.
func (c *rawClient) write(b []byte, fds ...int) {
	c.t.Helper()
	if err := c.tryWrite(b, fds...); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *rawClient) tryWrite(b []byte, fds ...int) error {
	order()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(b) > 0 {
		n, err := unix.SendmsgN(c.fd, b, oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b, oob = b[n:], nil
	}
	return nil
}

// reply is a message from the server.
type reply struct {
	header
	payload []byte
	fds     []int
}

// read receives one message. io.EOF means that the server closed.
func (c *rawClient) read() (r reply, err error) {
	defer order()
	b := make([]byte, headerLen)
	oob := make([]byte, controlLen)
	for got := 0; got < len(b); {
		n, on, _, _, err := unix.Recvmsg(c.fd, b[got:], oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECONNRESET || err == nil && n == 0:
			return r, io.EOF
		case err != nil:
			return r, err
		}
		if on > 0 {
			ms, err := unix.ParseSocketControlMessage(oob[:on])
			if err != nil {
				return r, err
			}
			for i := range ms {
				fds, err := unix.ParseUnixRights(&ms[i])
				if err != nil {
					return r, err
				}
				r.fds = append(r.fds, fds...)
			}
		}
		got += n
		if got >= headerLen && len(b) == headerLen {
			r.header = parseHeader(b)
			if r.badSize() {
				return r, fmt.Errorf("server sent size %d", r.size)
			}
			b = append(b, make([]byte, r.size-headerLen)...)
		}
	}
	r.payload = b[headerLen:]
	return r, nil
}

func (c *rawClient) mustRead() reply {
	c.t.Helper()
	r, err := c.read()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return r
}

// wantEOF checks that the server says nothing more and closes.
func (c *rawClient) wantEOF() {
	c.t.Helper()
	if r, err := c.read(); err != io.EOF {
		c.t.Fatalf("got %+v, %v; want the connection closed", r, err)
	}
}

// call sends a request and returns its reply, whose header it checks.
func (c *rawClient) call(cmd Command, payload []byte, fds ...int) reply {
	c.t.Helper()
	c.id++
	c.write(message(c.id, cmd, 0, payload), fds...)
	r := c.mustRead()
	if r.id != c.id || r.cmd != cmd || r.kind() != typeReply {
		c.t.Fatalf("reply to %v is %+v", cmd, r.header)
	}
	isErr := r.flags&flagError != 0
	if isErr != (r.errno != 0) || isErr && r.size != headerLen || r.flags&^u32(flagError|flagTypeMask) != 0 {
		c.t.Fatalf("malformed reply to %v: %+v", cmd, r.header)
	}
	return r
}

// ok is call that must succeed.
func (c *rawClient) ok(cmd Command, payload []byte, fds ...int) []byte {
	c.t.Helper()
	r := c.call(cmd, payload, fds...)
	if r.errno != 0 {
		c.t.Fatalf("%v failed: %v", cmd, syscall.Errno(r.errno))
	}
	return r.payload
}

// fails is call that must fail with errno.
func (c *rawClient) fails(want syscall.Errno, cmd Command, payload []byte, fds ...int) {
	c.t.Helper()
	if r := c.call(cmd, payload, fds...); syscall.Errno(r.errno) != want {
		c.t.Fatalf("%v: errno %d, want %d (%v)", cmd, r.errno, u32(want), want)
	}
}

// post sends a request that wants no reply.
func (c *rawClient) post(cmd Command, payload []byte, fds ...int) {
	c.t.Helper()
	c.id++
	c.write(message(c.id, cmd, flagNoReply, payload), fds...)
}

// alive proves that the stream is in step: the next thing the server says is
// the answer to this request.
func (c *rawClient) alive() {
	c.t.Helper()
	want := enc(u32(16), u32(3), u32(9), u32(5))
	if got := c.ok(CmdGetInfo, enc(u32(16), u32(0), u32(0), u32(0))); !slices.Equal(got, want) {
		c.t.Fatalf("GET_INFO: %x, want %x", got, want)
	}
}

const qemuJSON = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576, ` +
	`"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}` + "\x00"

func (c *rawClient) version() reply {
	c.t.Helper()
	return c.negotiate(0, qemuJSON)
}

func (c *rawClient) negotiate(minor u16, json string) reply {
	c.t.Helper()
	r := c.call(CmdVersion, enc(u16(0), minor, json))
	if r.errno != 0 {
		c.t.Fatalf("VERSION failed: %v", syscall.Errno(r.errno))
	}
	return r
}

// Requests in short.

func mapReq(flags u32, off, iova, size u64) []byte {
	return enc(u32(32), flags, off, iova, size)
}

func unmapReq(flags u32, iova, size u64) []byte {
	return enc(u32(24), flags, iova, size)
}

func readReq(region u32, off u64, count u32) []byte { return enc(off, region, count) }

func writeReq(region u32, off u64, data ...byte) []byte {
	return enc(off, region, u32(len(data)), data)
}

func irqReq(flags u32, index IRQIndex, start, count u32, data ...byte) []byte {
	return enc(u32(20+len(data)), flags, u32(index), start, count, data)
}

// newMemfd returns a memory file that is closed with the test.
func newMemfd(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// newEvent returns an eventfd that is closed with the test.
func newEvent(t testing.TB, flags int) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// eventCount reads and clears the counter of a non-blocking eventfd.
func eventCount(t testing.TB, fd int) u64 {
	t.Helper()
	var b [8]byte
	n, err := unix.Read(fd, b[:])
	if err == unix.EAGAIN {
		return 0
	}
	if err != nil || n != 8 {
		t.Fatalf("read of an eventfd: %d, %v", n, err)
	}
	return le.Uint64(b[:])
}

// metric returns one of the server's counters.
func metric(t testing.TB, s *Server, name string) u64 {
	t.Helper()
	var names []string
	for _, m := range s.Metrics() {
		if m.Name == name {
			return m.Value
		}
		names = append(names, m.Name)
	}
	t.Fatalf("no metric %q among %s", name, strings.Join(names, " "))
	return 0
}

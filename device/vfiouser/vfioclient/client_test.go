// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peer is the server's end of a session, driven by hand.
type peer struct {
	t    *testing.T
	conn *net.UnixConn
}

func socketPair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		out[i] = c.(*net.UnixConn)
	}
	t.Cleanup(func() { out[0].Close(); out[1].Close() })
	return out[0], out[1]
}

// read reads one message of the client.
func (p *peer) read() (header, []byte, error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(p.conn, head); err != nil {
		return header{}, nil, err
	}
	h := parseHeader(head)
	payload := make([]byte, h.size-headerSize)
	_, err := io.ReadFull(p.conn, payload)
	return h, payload, err
}

func (p *peer) next() (header, []byte) {
	p.t.Helper()
	h, payload, err := p.read()
	if err != nil {
		p.t.Fatalf("read from client: %v", err)
	}
	return h, payload
}

func message(id, cmd uint16, flags, errno uint32, payload []byte) []byte {
	b := append(make([]byte, headerSize), payload...)
	putHeader(b, id, cmd, flags, errno)
	return b
}

func (p *peer) write(b []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := p.conn.WriteMsgUnix(b, rights, nil)
	return err
}

func (p *peer) send(b []byte, fds ...int) {
	p.t.Helper()
	if err := p.write(b, fds...); err != nil {
		p.t.Fatalf("write to client: %v", err)
	}
}

const goodVersion = "\x00\x00\x00\x00" + `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"write_multiple":true}}` + "\x00"

// open makes a session whose version has been negotiated.
func open(t *testing.T, timeout time.Duration) (*Client, *peer) {
	t.Helper()
	near, far := socketPair(t)
	p := &peer{t, far}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		h, _ := p.next()
		p.send(message(h.id, h.cmd, flagReply, 0, []byte(goodVersion)))
	}()
	c, err := New(near, Options{Timeout: timeout})
	<-answered
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, p
}

func TestVersionRequestIsQEMUs(t *testing.T) {
	near, far := socketPair(t)
	go New(near, Options{})
	p := &peer{t, far}
	h, payload := p.next()
	if h.cmd != cmdVersion || h.size != 214 || h.flags != 0 {
		t.Errorf("header %+v, want VERSION of 214 bytes", h)
	}
	if payload[len(payload)-1] != 0 || !bytes.Contains(payload, []byte(`"write_multiple": true`)) {
		t.Errorf("payload %q", payload)
	}
}

func TestVersionRepliesThatQEMURefuses(t *testing.T) {
	text := func(json string) []byte { return append([]byte("\x00\x00\x00\x00"+json), 0) }
	for name, c := range map[string]struct {
		reply []byte
		want  string
	}{
		"longer than the request": {text(`{"capabilities":{"max_msg_fds":16` + strings.Repeat(" ", 200) + `}}`), "larger than"},
		"minor above 0":           {[]byte{0, 0, 1, 0}, "version 0.1"},
		"no NUL":                  {[]byte("\x00\x00\x00\x00{}"), "NUL"},
		"NUL inside":              {text("{}\x00"), "NUL"},
		"no capabilities":         {text(`{}`), "no capabilities"},
		"too many descriptors":    {text(`{"capabilities":{"max_msg_fds":17}}`), "max_msg_fds"},
		"transfer too large":      {text(`{"capabilities":{"max_data_xfer_size":67108865}}`), "max_data_xfer_size"},
		"too many windows":        {text(`{"capabilities":{"max_dma_maps":65536}}`), "max_dma_maps"},
		"odd page sizes":          {text(`{"capabilities":{"pgsizes":4097}}`), "pgsizes"},
		"unknown name":            {text(`{"capabilities":{"fast":true}}`), "unknown field"},
		"short":                   {[]byte{0, 0}, "2 bytes"},
	} {
		if _, err := parseVersion(c.reply, 198); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
	caps, err := parseVersion([]byte(goodVersion), 198)
	if want := (Capabilities{16, 1 << 20, 65535, true}); err != nil || caps != want {
		t.Errorf("good reply: %+v, %v", caps, err)
	}
}

// Each mistake must end the session, and say what it was.
func TestServerMistakesEndTheSession(t *testing.T) {
	read := func(c *Client) error { return c.ReadRegion(0, 8, make([]byte, 4)) }
	answer := func(p *peer, flags, errno uint32, payload []byte, fds ...int) {
		h, _ := p.next()
		p.send(message(h.id, h.cmd, flags, errno, payload), fds...)
	}
	good := append(regionHead(0, 8, 4), 1, 2, 3, 4)
	for name, m := range map[string]struct {
		call func(*Client) error
		peer func(*peer)
		want string
	}{
		"answer to a posted write": {
			func(c *Client) error { return errors.Join(c.PostRegion(0, 0, make([]byte, 8)), read(c)) },
			func(p *peer) { answer(p, flagReply, 0, nil) },
			"answered posted message",
		},
		"error answer to a posted write": {
			func(c *Client) error { return errors.Join(c.PostRegion(0, 0, make([]byte, 8)), read(c)) },
			func(p *peer) { answer(p, flagReply|flagError, 22, nil) },
			"answered posted message",
		},
		"reply twice": {
			read,
			func(p *peer) {
				h, _ := p.next()
				p.send(append(message(h.id, h.cmd, flagReply, 0, good), message(h.id, h.cmd, flagReply, 0, good)...))
			},
			"unexpected reply",
		},
		"reply too long":      {read, func(p *peer) { answer(p, flagReply, 0, append(good, 5)) }, "malformed"},
		"reply too short":     {read, func(p *peer) { answer(p, flagReply, 0, good[:16]) }, "malformed"},
		"reply with other id": {read, func(p *peer) { p.next(); p.send(message(999, cmdRegionRead, flagReply, 0, good)) }, "unexpected reply"},
		"reply with other command": {read, func(p *peer) {
			h, _ := p.next()
			p.send(message(h.id, cmdRegionWrite, flagReply, 0, good))
		}, "has command"},
		"descriptor":          {read, func(p *peer) { answer(p, flagReply, 0, good, 0) }, "descriptors"},
		"error with payload":  {read, func(p *peer) { answer(p, flagReply|flagError, 22, good) }, "error reply"},
		"error without errno": {read, func(p *peer) { answer(p, flagReply|flagError, 0, nil) }, "errno 0"},
		"errno without error": {read, func(p *peer) { answer(p, flagReply, 22, good) }, "without the error flag"},
		"odd type":            {read, func(p *peer) { answer(p, 2, 0, good) }, "type 2"},
		"header in pieces": {read, func(p *peer) {
			p.next()
			p.send([]byte{1, 0, 9, 0})
		}, "in pieces"},
		"size too small": {read, func(p *peer) {
			b := message(1, 9, flagReply, 0, nil)
			le.PutUint32(b[4:], 15)
			p.next()
			p.send(b)
		}, "size 15"},
		"end of file": {read, func(p *peer) { p.next(); p.conn.Close() }, "EOF"},
		"late reply":  {read, func(p *peer) { p.next() }, "timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := 5 * time.Second
			if m.want == "timed out" {
				timeout = 20 * time.Millisecond
			}
			c, p := open(t, timeout)
			played := make(chan struct{})
			go func() { defer close(played); m.peer(p) }()
			err := m.call(c)
			<-played
			<-c.Done()
			if !strings.Contains(errors.Join(err, c.Err()).Error(), m.want) {
				t.Errorf("call: %v; session: %v; want %q", err, c.Err(), m.want)
			}
			if err := read(c); err == nil {
				t.Error("the session went on")
			}
		})
	}
}

func TestErrorReplyFailsTheCallAndKeepsTheSession(t *testing.T) {
	c, p := open(t, time.Second)
	go func() {
		h, _ := p.next()
		p.send(message(h.id, h.cmd, flagReply|flagError, uint32(syscall.ENOSPC), nil))
		h, payload := p.next()
		p.send(message(h.id, h.cmd, flagReply, 0, append(payload, 9)))
	}()
	if err := c.MapDMA(c.RAM().Windows()[0]); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "DMA_MAP") {
		t.Errorf("error %v, want ENOSPC of DMA_MAP", err)
	}
	b := make([]byte, 1)
	if err := c.ReadRegion(3, 4, b); err != nil || b[0] != 9 {
		t.Errorf("read %d, %v", b[0], err)
	}
}

func TestDMAMessagesAreAnsweredAsByQEMU(t *testing.T) {
	c, p := open(t, time.Second)
	c.AddMessageMemory(0x8000_0000_0000, 4096)
	if err := c.WriteMessageMemory(0x8000_0000_0008, []byte("private")); err != nil {
		t.Fatal(err)
	}
	copy(c.RAM().Bytes(0x1000, 16), "shared")
	req := func(iova, count uint64, data string) []byte {
		return append(le.AppendUint64(le.AppendUint64(nil, iova), count), data...)
	}
	ask := func(cmd uint16, flags uint32, payload []byte, fds ...int) (header, []byte) {
		t.Helper()
		p.send(message(77, cmd, flags, 0, payload), fds...)
		return p.next()
	}
	if h, _ := ask(cmdDMARead, 0, req(0x1000, 6, "")); h.errno != uint32(syscall.ENODEV) {
		t.Errorf("without bus mastering: %+v, want ENODEV", h)
	}
	c.noteCommand(RegionConfig, 4, []byte{0x06, 0x00})
	if h, b := ask(cmdDMARead, 0, req(0x1000, 6, "")); h.flags != flagReply || string(b[16:]) != "shared" {
		t.Errorf("shared memory: %+v %q", h, b)
	}
	if h, b := ask(cmdDMARead, 0, req(0x8000_0000_0008, 7, "")); h.errno != 0 || string(b[16:]) != "private" {
		t.Errorf("message memory: %+v %q", h, b)
	}
	h, b := ask(cmdDMAWrite, 0, req(0x8000_0000_0000, 4, "abcd"))
	got := make([]byte, 4)
	if err := c.ReadMessageMemory(0x8000_0000_0000, got); err != nil || h.errno != 0 || len(b) != 16 || string(got) != "abcd" {
		t.Errorf("write: %+v, memory %q, %v", h, got, err)
	}
	for name, e := range map[string]struct {
		cmd     uint16
		payload []byte
		fds     []int
		want    syscall.Errno
	}{
		"unmapped":        {cmdDMARead, req(0x7000_0000, 1, ""), nil, syscall.ENODEV},
		"over the end":    {cmdDMARead, req(0x8000_0000_0fff, 2, ""), nil, syscall.ENODEV},
		"too large":       {cmdDMARead, req(0, 1<<20+1, ""), nil, syscall.E2BIG},
		"less than said":  {cmdDMAWrite, req(0, 9, "12345678"), nil, syscall.E2BIG},
		"unknown command": {14, req(0, 1, ""), nil, syscall.ENOSYS},
		"descriptor":      {cmdDMARead, req(0, 1, ""), []int{0}, syscall.EINVAL},
	} {
		if h, b := ask(e.cmd, 0, e.payload, e.fds...); h.flags != flagReply|flagError || h.errno != uint32(e.want) || len(b) != 0 || h.id != 77 {
			t.Errorf("%s: %+v with %d bytes, want %v", name, h, len(b), e.want)
		}
	}
	// A posted write is not answered: the next answer is that of the read.
	p.send(message(78, cmdDMAWrite, flagNoReply, 0, req(0x2000, 2, "ok")))
	if h, b := ask(cmdDMARead, 0, req(0x2000, 2, "")); h.id != 77 || string(b[16:]) != "ok" {
		t.Errorf("after a posted write: %+v %q", h, b)
	}
}

func TestRAMWindowsShowOneFile(t *testing.T) {
	r, err := newRAM([]Window{{IOVA: 0, Size: 8192}, {IOVA: 1 << 32, Size: 4096, Offset: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	r.StoreUint64(1<<32+8, 0x1122334455667788)
	if got := r.Bytes(4096+8, 8); !slices.Equal(got, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}) {
		t.Errorf("low window shows % x", got)
	}
	if a, b := r.LoadUint32(4096+8), r.LoadUint64(1<<32+8); a != 0x55667788 || b != 0x1122334455667788 {
		t.Errorf("loads %#x %#x", a, b)
	}
	if r.lookup(8190, 4) != nil || r.lookup(^uint64(0), 2) != nil {
		t.Error("a range over the end of a window was found")
	}
	if seals, err := unix.FcntlInt(uintptr(r.fd), unix.F_GET_SEALS, 0); err != nil || seals != 7 {
		t.Errorf("seals %#x, %v, want QEMU's 0x7", seals, err)
	}
}

func TestPostDoesNotAllocate(t *testing.T) {
	c, p := open(t, time.Second)
	go io.Copy(io.Discard, p.conn)
	b := make([]byte, 8)
	n := testing.AllocsPerRun(500, func() {
		if err := c.PostRegion(2, 40, b); err != nil {
			t.Error(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations per posted write", n)
	}
}

func TestVectorCountsWhatFired(t *testing.T) {
	v, err := newVector()
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if n := v.Fired(); n != 0 {
		t.Errorf("a new vector fired %d times", n)
	}
	fire := func() {
		if err := v.control(func(fd int) { unix.Write(fd, le.AppendUint64(nil, 1)) }); err != nil {
			t.Error(err)
		}
	}
	fire()
	fire()
	if n := v.Fired(); n != 2 {
		t.Errorf("fired %d times, want 2", n)
	}
	go fire()
	if n, err := v.Wait(time.Now().Add(time.Minute)); n != 1 || err != nil {
		t.Errorf("wait: %d, %v", n, err)
	}
	if _, err := v.Wait(time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait with nothing to come: %v", err)
	}
}

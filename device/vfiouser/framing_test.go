// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMessagesMayBeSplitAnywhere sends a message in two pieces, cut at every
// byte, with the descriptor on either piece. Each must be handled as if whole.
func TestMessagesMayBeSplitAnywhere(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	var written []byte
	dev.write = func(_ int, _ uint64, p []byte) error { written = slices.Clone(p); return nil }
	c := attached(t, dev, Options{})
	ram := newMemfd(t, 1<<20)
	data := bytes.Repeat([]byte("0123456789abcdef"), 4)
	pause := func() { // until the server has taken what was sent
		for end := time.Now().Add(patience); ; {
			n, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
			if err != nil || n == 0 || time.Now().After(end) {
				return
			}
		}
	}
	write := message(1, CmdRegionWrite, 0, writeReq(0, 8, data...))
	for at := 1; at < len(write); at++ {
		written = nil
		c.write(write[:at])
		pause()
		c.write(write[at:])
		if r := c.mustRead(); r.errno != 0 || !bytes.Equal(written, data) {
			t.Fatalf("cut at %d: %+v, wrote %x", at, r.header, written)
		}
	}
	dmaMap := message(2, CmdDMAMap, 0, mapReq(3, 0, 0, 1<<20))
	for at := 1; at < len(dmaMap); at++ {
		for _, first := range []bool{true, false} {
			if first {
				c.write(dmaMap[:at], ram)
				pause()
				c.write(dmaMap[at:])
			} else {
				c.write(dmaMap[:at])
				pause()
				c.write(dmaMap[at:], ram)
			}
			if r := c.mustRead(); r.errno != 0 {
				t.Fatalf("cut at %d: errno %d", at, r.errno)
			}
			if ws := c.srv.Mem().Windows(); len(ws) != 1 || ws[0].Message {
				t.Fatalf("cut at %d, descriptor first %v: %+v", at, first, ws)
			}
			c.ok(CmdDMAUnmap, unmapReq(0, 0, 1<<20))
		}
	}
	if n := metric(t, c.srv, "descriptors_unused"); n != 0 {
		t.Fatalf("%d descriptors lost their message", n)
	}
}

func TestOneByteAtATime(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	ev := newEvent(t, unix.EFD_NONBLOCK)
	msg := append(message(1, CmdSetIRQs, 0, irqReq(0x24, IRQMSIX, 0, 1)), message(2, CmdGetInfo, 0, enc(u32(16), u32(0), u64(0)))...)
	for i, b := range msg {
		if i == 0 {
			c.write([]byte{b}, ev)
		} else {
			c.write([]byte{b})
		}
	}
	if r := c.mustRead(); r.id != 1 || r.errno != 0 {
		t.Fatalf("%+v", r.header)
	}
	if r := c.mustRead(); r.id != 2 || r.errno != 0 {
		t.Fatalf("%+v", r.header)
	}
}

// TestDescriptorsStayWithTheirMessage pipelines messages with and without
// descriptors, each its own sendmsg, while the server is busy, so that many
// are read at once.
func TestDescriptorsStayWithTheirMessage(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	gate := make(chan struct{})
	dev.write = func(_ int, off uint64, _ []byte) error {
		if off == 0x100 {
			<-gate
		}
		return nil
	}
	c := attached(t, dev, Options{})
	files := []int{newMemfd(t, 0x10000), newMemfd(t, 0x20000), newMemfd(t, 0x30000)}
	c.post(CmdRegionWrite, writeReq(0, 0x100, 1)) // holds the server
	want := []u32{}
	for i := range 60 {
		iova := u64(i) << 20
		c.id++
		switch i % 4 {
		case 0: // only this file is large enough
			f := i % 3
			c.write(message(c.id, CmdDMAMap, 0, mapReq(3, u64(f)<<16, iova, 0x10000)), files[f])
			want = append(want, 0)
		case 1:
			c.write(message(c.id, CmdDMAMap, 0, mapReq(3, 0, iova, 0x10000)))
			want = append(want, 0)
		case 2: // the file ends at the offset: must fail
			c.write(message(c.id, CmdDMAMap, 0, mapReq(3, 0x10000, iova, 0x10000)), files[0])
			want = append(want, u32(syscall.EINVAL))
		case 3:
			c.write(message(c.id, CmdRegionWrite, 0, writeReq(0, 0, 1)), files[0])
			want = append(want, 0)
		}
	}
	close(gate)
	for i, w := range want {
		if r := c.mustRead(); r.errno != w {
			t.Fatalf("message %d: errno %d, want %d", i, r.errno, w)
		}
	}
	for _, w := range c.srv.Mem().Windows() {
		if i := w.IOVA >> 20; w.Message != (i%4 == 1) {
			t.Fatalf("window %d: %+v", i, w)
		}
	}
}

func TestManyMessagesInOneSend(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	n := 0
	dev.write = func(int, uint64, []byte) error { n++; return nil }
	c := attached(t, dev, Options{})
	var batch []byte
	for i := range 5000 {
		batch = append(batch, message(u16(i), CmdRegionWrite, flagNoReply, writeReq(0, u64(i%1000), bytes.Repeat([]byte{1}, 1+i%64)...))...)
	}
	c.write(batch)
	c.alive()
	if n != 5000 {
		t.Fatalf("%d writes", n)
	}
}

func TestBrokenFramingClosesTheConnection(t *testing.T) {
	for name, h := range map[string]header{
		"size 0":         {id: 5, cmd: CmdRegionRead, size: 0},
		"size 15":        {id: 5, cmd: CmdRegionRead, size: 15},
		"size max+1":     {id: 5, cmd: CmdRegionRead, size: 1048609},
		"size 2^32-1":    {id: 5, cmd: CmdRegionRead, size: math.MaxUint32},
		"type 2":         {id: 5, cmd: CmdGetInfo, size: 32, flags: 2},
		"type 15":        {id: 5, cmd: CmdGetInfo, size: 32, flags: 15},
		"type 2, posted": {id: 5, cmd: CmdGetInfo, size: 32, flags: 2 | flagNoReply},
		"size 0, posted": {id: 5, cmd: CmdGetInfo, size: 0, flags: flagNoReply},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			dev := newFake()
			c := attached(t, dev, Options{})
			c.ok(CmdDMAMap, mapReq(3, 0, 0, 4096), newMemfd(t, 4096))
			c.write(h.bytes(), newMemfd(t, 4096))
			if !h.noReply() {
				want := header{id: 5, cmd: h.cmd, size: 16, flags: typeReply | flagError, errno: u32(syscall.EINVAL)}
				if r := c.mustRead(); r.header != want {
					t.Fatalf("%+v, want %+v", r.header, want)
				}
			}
			c.wantEOF()
			if err := c.wait(); err == nil {
				t.Fatal("ServeConn reports no error")
			}
			if metric(t, c.srv, "protocol_errors") != 1 || dev.detached != 1 {
				t.Fatal("not counted, or the device not detached")
			}
		})
	}
	t.Run("size 16 is only an error", func(t *testing.T) {
		leakCheck(t)
		c := attached(t, newFake(), Options{})
		for cmd := range Command(numCommands) {
			if cmd != CmdReset {
				c.fails(syscall.EINVAL, cmd, nil)
			}
		}
		c.alive()
	})
}

func TestDescriptorsNobodyTakesAreClosed(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	fd := newMemfd(t, 4096)
	many := slices.Repeat([]int{fd}, maxMessageFDs)
	before := len(openFDs(t))
	for range 4 {
		c.ok(CmdGetInfo, enc(u32(16), u32(0), u64(0)), many...)
		c.ok(CmdRegionWrite, writeReq(0, 0, 1), many...)
		c.fails(syscall.EINVAL, CmdRegionWrite, writeReq(9, 0, 1), many...)
		c.fails(syscall.EINVAL, 999, []byte{1}, many...)
		c.write(message(9, CmdDMARead, typeReply, enc(u64(0), u64(0))), many...) // stray reply
		c.ok(CmdReset, nil, many...)
	}
	if after := len(openFDs(t)); after != before {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
	if n := metric(t, c.srv, "descriptors_unused"); n != 4*6*maxMessageFDs {
		t.Fatalf("%d counted, want %d", n, 4*6*maxMessageFDs)
	}
	// The kernel itself refuses one more.
	if err := c.tryWrite(message(1, CmdReset, 0, nil), append(many, fd)...); err != unix.EINVAL {
		t.Fatalf("254 descriptors: %v", err)
	}
	c.alive()
}

func TestTooManyDescriptorsForOneMessageDropTheConnection(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	many := slices.Repeat([]int{newMemfd(t, 4096)}, 200)
	msg := message(1, CmdRegionWrite, 0, writeReq(0, 0, make([]byte, 100)...))
	for i := range msg {
		if c.tryWrite(msg[i:i+1], many...) != nil {
			break
		}
	}
	c.wantEOF()
	if err := c.wait(); err == nil || !strings.Contains(err.Error(), "descriptors") {
		t.Fatalf("ServeConn: %v", err)
	}
}

func TestDescriptorsInTheMiddleOfAPayload(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	msg := message(1, CmdRegionWrite, 0, writeReq(0, 0, 1, 2, 3, 4))
	fd := newMemfd(t, 4096)
	c.write(msg[:10])
	c.write(msg[10:20], fd)
	c.write(msg[20:30])
	c.write(msg[30:], fd, fd)
	if r := c.mustRead(); r.errno != 0 {
		t.Fatalf("%+v", r.header)
	}
	if n := metric(t, c.srv, "descriptors_unused"); n != 3 {
		t.Fatalf("%d unused", n)
	}
}

func TestForeignControlMessagesDropTheConnection(t *testing.T) {
	leakCheck(t)
	conn, fd := pair(t)
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// A receiver gets credentials only if it asks for them; make it.
	_ = raw.Control(func(s uintptr) { err = unix.SetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, fd: fd, srv: &Server{}, err: make(chan error, 1)}
	c.setTimeout()
	go func() { c.err <- c.srv.ServeConn(t.Context(), conn, newFake()) }()
	t.Cleanup(c.close)
	c.write(message(1, CmdVersion, 0, cut("{}")), newMemfd(t, 4096))
	c.wantEOF()
	if err := c.wait(); err == nil || !strings.Contains(err.Error(), "control message") {
		t.Fatalf("ServeConn: %v", err)
	}
}

// TestRepliesLargerThanTheSocketBuffer makes the client slow, so that replies
// go out in parts, and checks that they are whole and in order.
func TestRepliesLargerThanTheSocketBuffer(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	dev.read = func(_ int, off uint64, p []byte) error {
		for i := range p {
			p[i] = byte(off>>12) + byte(i>>8)
		}
		return nil
	}
	c := attached(t, dev, Options{})
	for i := range u64(4) {
		c.write(message(u16(i), CmdRegionRead, 0, readReq(4, i<<12, maxTransfer-1)))
	}
	time.Sleep(20 * time.Millisecond) // the server fills the buffer and parks
	for i := range u64(4) {
		r := c.mustRead()
		if r.id != u16(i) || len(r.payload) != 16+maxTransfer-1 {
			t.Fatalf("%+v", r.header)
		}
		for k, b := range r.payload[16:] {
			if b != byte(i)+byte(k>>8) {
				t.Fatalf("reply %d differs at %d", i, k)
			}
		}
	}
	c.alive()
}

func TestClientThatNeverReadsIsDropped(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{WriteTimeout: 50 * time.Millisecond})
	c.write(message(1, CmdRegionRead, 0, readReq(4, 0, maxTransfer)))
	if err := c.wait(); err == nil || !strings.Contains(err.Error(), "has not read") {
		t.Fatalf("ServeConn: %v", err)
	}
	if metric(t, c.srv, "connections_lost") != 1 {
		t.Fatal("not counted")
	}
	if dev.detached != 1 {
		t.Fatal("device not detached")
	}
}

func TestDescriptorGoesOnlyWithTheFirstPartOfAReply(t *testing.T) {
	leakCheck(t)
	conn, fd := pair(t)
	defer conn.Close()
	defer unix.Close(fd)
	o := Options{}.withDefaults()
	k, err := newSocket(conn, &o)
	if err != nil {
		t.Fatal(err)
	}
	head, body := message(1, CmdRegionRead, typeReply, make([]byte, 100)), bytes.Repeat([]byte{7}, 900<<10)
	le.PutUint32(head[4:], u32(len(head)+len(body)))
	done := make(chan error)
	ram := newMemfd(t, 4096)
	go func() { done <- k.send(head, body, ram) }()
	time.Sleep(10 * time.Millisecond)
	c := &rawClient{t: t, fd: fd}
	c.setTimeout()
	r := c.mustRead()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(r.fds) != 1 || !bytes.Equal(r.payload[100:], body) {
		t.Fatalf("%d descriptors, body differs: %v", len(r.fds), !bytes.Equal(r.payload[100:], body))
	}
	unix.Close(r.fds[0])
}

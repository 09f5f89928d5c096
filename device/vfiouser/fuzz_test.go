// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzDecode feeds header and payload to the pure decoders and checks what
// they let through.
func FuzzDecode(f *testing.F) {
	for _, name := range transcripts {
		seen := map[Command]int{}
		for _, l := range readTranscript(f, name) {
			if cmd := l.header().cmd; l.fromClient && seen[cmd] < 4 {
				seen[cmd]++
				f.Add(l.bytes, uint8(l.fds))
			}
		}
	}
	f.Add(message(1, CmdRegionWriteMulti, 0, multiReq(1<<61, multiEntry(0, 0, 9, 0))), uint8(0))
	f.Add(message(1, CmdDMAUnmap, 0, unmapReq(0, 0xfef00000, 0xffffffff01100000)), uint8(0))
	f.Add(message(1, CmdSetIRQs, 0, irqReq(0x22, IRQMSIX, 1, 3, 1, 0, 1)), uint8(0))
	f.Add(message(1, CmdFeature, 0, enc(u32(8), u32(1|1<<16))), uint8(0))
	f.Add(message(1, CmdVersion, 0, cut(`{"capabilities":{"max_msg_fds":-1}}`)), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, fds uint8) {
		if len(b) < headerLen {
			return
		}
		h := parseHeader(b)
		back := make([]byte, headerLen)
		h.put(back)
		if string(back) != string(b[:headerLen]) {
			t.Fatalf("header %x became %x", b[:headerLen], back)
		}
		err := checkDecoded(t, h.cmd, b[headerLen:], int(fds))
		var errno syscall.Errno
		if err != nil && h.cmd != CmdVersion && !errors.As(err, &errno) {
			t.Fatalf("%v fails without an errno: %v", h.cmd, err)
		}
	})
}

func checkDecoded(t *testing.T, cmd Command, p []byte, fds int) error {
	inRange := func(a, n, limit u64) bool { return n <= limit && a <= limit-n }
	switch cmd {
	case CmdVersion:
		v, err := decodeVersion(p)
		if err != nil {
			return err
		}
		if a := answerVersion(v, len(p)); v.major != 0 || le.Uint16(a[2:]) > 2 || le.Uint16(a[2:]) > v.minor {
			t.Fatalf("%+v answered with %q", v, a)
		}
	case CmdDMAMap:
		m, err := decodeDMAMap(p, fds)
		if err == nil && (m.size == 0 || m.iova+(m.size-1) < m.iova || fds > 1) {
			t.Fatalf("%+v accepted", m)
		}
		return err
	case CmdDMAUnmap:
		u, err := decodeDMAUnmap(p)
		if err == nil && !u.all && (u.size == 0 || u.iova+(u.size-1) < u.iova) || err == nil && u.all && u.iova|u.size != 0 {
			t.Fatalf("%+v accepted", u)
		}
		return err
	case CmdSetIRQs:
		counts := [NumIRQs]u32{1, 0, 20, 1, 1}
		q, err := decodeSetIRQs(p, fds, &counts)
		if err != nil {
			return err
		}
		if q.index >= NumIRQs || q.count > 0 && !inRange(u64(q.start), u64(q.count), u64(counts[q.index])) ||
			q.data == irqDataBool && len(q.bools) != int(q.count) || fds > 0 && fds != int(q.count) {
			t.Fatalf("%+v with %d descriptors accepted", q, fds)
		}
	case CmdRegionRead, CmdRegionWrite:
		a, err := decodeRegionAccess(p, cmd == CmdRegionWrite)
		if err == nil && (a.region >= NumRegions || a.count > maxTransfer || !inRange(a.offset, u64(a.count), math.MaxUint64) ||
			cmd == CmdRegionWrite && len(a.data) != int(a.count)) {
			t.Fatalf("%+v accepted", a)
		}
		return err
	case CmdRegionWriteMulti:
		e, err := decodeMulti(p)
		if err != nil {
			return err
		}
		for ; len(e) > 0; e = e[multiEntryLen:] {
			a, err := decodeMultiEntry(e)
			if err == nil && (a.region >= NumRegions || len(a.data) != int(a.count) || a.count == 0 || a.count > 8) {
				t.Fatalf("%+v accepted", a)
			}
		}
	case CmdFeature:
		err := decodeFeature(p)
		if err == nil {
			t.Fatal("a feature exists")
		}
		return err
	case CmdGetRegionIOFDs:
		r, err := decodeRegionIOFDs(p)
		if err == nil && r >= NumRegions {
			t.Fatalf("region %d accepted", r)
		}
		return err
	default:
		argsz, err := decodeArgs(p, infoLen)
		if err == nil && (argsz < infoLen || len(p) < infoLen) {
			t.Fatalf("argsz %d, payload %d accepted", argsz, len(p))
		}
		return err
	}
	return nil
}

// fuzzMemory is the device of FuzzSession: a real register file, so that
// nothing outside a region can be touched unnoticed.
type fuzzMemory struct {
	*fakeDevice
	regs [NumRegions][]byte
}

func newFuzzMemory(t *testing.T) *fuzzMemory {
	d := &fuzzMemory{fakeDevice: newFake()}
	d.info.Regions[4].Size = 64 << 10
	for i := range d.regs {
		d.regs[i] = make([]byte, d.info.Regions[i].Size)
	}
	check := func(region int, off u64, p []byte, need RegionFlags) []byte {
		r := d.regs[region]
		if off > u64(len(r)) || u64(len(p)) > u64(len(r))-off || len(p) == 0 || d.info.Regions[region].Flags&need == 0 {
			t.Errorf("access to region %d at %#x of %d bytes reached the device", region, off, len(p))
			return nil
		}
		return r[off:]
	}
	d.read = func(region int, off u64, p []byte) error { copy(p, check(region, off, p, Readable)); return nil }
	d.write = func(region int, off u64, p []byte) error { copy(check(region, off, p, Writable), p); return nil }
	return d
}

// fuzzOps reads numbers from the fuzzer's bytes.
type fuzzOps struct{ b []byte }

func (o *fuzzOps) byte() byte {
	if len(o.b) == 0 {
		return 0
	}
	x := o.b[0]
	o.b = o.b[1:]
	return x
}

// number returns values that live near the edges that matter.
func (o *fuzzOps) number() u64 {
	k := o.byte()
	base := []u64{0, 1, 4, 16, 24, 32, 4096, 1 << 16, 1 << 20, 1 << 32, 1 << 63, math.MaxUint64, 8 << 40}[k&15%13]
	switch k >> 6 {
	case 1:
		return base + u64(o.byte())
	case 2:
		return base - u64(o.byte())
	case 3:
		return base * u64(o.byte())
	}
	return base
}

// payload makes a payload that is often nearly right.
func (o *fuzzOps) payload(cmd Command) []byte {
	small := func() u32 { return u32(o.number()) }
	var p []byte
	switch cmd {
	case CmdDMAMap:
		p = mapReq(u32(o.byte()&7), o.number()&^4095, o.number()&^4095, o.number()&^4095)
	case CmdDMAUnmap:
		p = unmapReq(u32(o.byte()&3), o.number(), o.number())
	case CmdSetIRQs:
		p = irqReq(u32(o.byte()), IRQIndex(o.byte()&7), u32(o.byte()&31), u32(o.byte()&31), make([]byte, o.byte()&3)...)
	case CmdRegionRead:
		p = readReq(u32(o.byte()&15), o.number(), small()&0x1fffff)
	case CmdRegionWrite:
		p = writeReq(u32(o.byte()&15), o.number(), make([]byte, o.byte())...)
	case CmdRegionWriteMulti:
		n := int(o.byte() & 7)
		p = enc(u64(n))
		for range n {
			p = enc(p, multiEntry(o.number(), u32(o.byte()&15), u32(o.byte()&15), o.number()))
		}
	case CmdReset:
	default:
		p = enc(small(), small(), small(), small(), o.number(), o.number())
	}
	switch o.byte() {
	case 1:
		p = p[:len(p)*int(o.byte())/256]
	case 2:
		p = append(p, make([]byte, o.byte())...)
	case 3:
		for i := 0; i < len(p); i += 1 + int(o.byte()) {
			p[i] ^= o.byte()
		}
	}
	return p
}

// FuzzSession sends a random conversation, with descriptors of all kinds, and
// checks that each request gets exactly the reply it must get, that the device
// sees only what it allows, and that nothing is left behind.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x02\x00\x03\x00\x06\x06\x00\x01\x00\x00\x09\x00\x00\x00\x02\x00"))
	f.Add([]byte("\x08\x00\x24\x02\x00\x01\x00\x00\x02\x00\x0a\x10\x00\x01\x08\x00\x00\x03\x00\x00\x06\x07"))
	f.Add([]byte("\x0f\x00\x03\x00\x00\x01\x00\x41\x00\x04\x01\x0b\x07\x01\x00\x00\x0d\x00\x00\x00\x10\x00"))
	f.Add([]byte("\x02\x00\x03\x00\x08\x08\x00\x01\x02\x00\x03\x00\x08\x08\x00\x02\x03\x00\x00\x00\x0b\x00\x00"))
	f.Add([]byte("\x09\x20\x00\x00\x02\x00\x00\x09\x40\x00\x00\x02\x00\x00\x09\x80\x00\x00\x02\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2048 {
			data = data[:2048]
		}
		before := len(openFDs(t))
		fuzzSession(t, &fuzzOps{data})
		for end := time.Now().Add(patience); len(openFDs(t)) > before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("descriptors leak: %v", openFDs(t))
			}
		}
	})
}

func fuzzSession(t *testing.T, o *fuzzOps) {
	dev := newFuzzMemory(t)
	srv := &Server{Options: Options{WriteTimeout: time.Second}}
	conn, fd := pair(t)
	c := &rawClient{t: t, fd: fd, srv: srv, err: make(chan error, 1)}
	c.setTimeout()
	go func() { c.err <- srv.ServeConn(t.Context(), conn, dev) }()
	defer func() {
		c.close()
		c.wait()
		if st := srv.Mem().Stats(); st.Windows != 0 || st.Files != 0 {
			t.Fatalf("left behind: %+v", st)
		}
		if a, d := dev.counts(); a != d {
			t.Fatalf("%d attached, %d detached", a, d)
		}
	}()
	files := fuzzFiles(t)
	defer func() {
		for _, f := range files {
			unix.Close(f)
		}
	}()
	c.version()
	for len(o.b) > 0 {
		if !c.fuzzStep(o, files) {
			return
		}
	}
	c.alive()
}

// fuzzFiles returns one descriptor of each kind.
func fuzzFiles(t *testing.T) []int {
	ram, err1 := unix.MemfdCreate("ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	small, err2 := unix.MemfdCreate("small", unix.MFD_CLOEXEC)
	event, err3 := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	block, err4 := unix.Eventfd(0, unix.EFD_CLOEXEC)
	null, err5 := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	err6 := unix.Ftruncate(ram, 2<<20)
	err7 := unix.Ftruncate(small, 4096)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	return []int{ram, small, event, block, null}
}

// fuzzStep sends one message and checks the answer. It reports false if the
// server had to drop the connection, and did.
func (c *rawClient) fuzzStep(o *fuzzOps, files []int) bool {
	cmd := Command(o.byte() & 31)
	flags := u32(o.byte())
	msg := message(u16(o.byte()), cmd, flags, o.payload(cmd))
	k := o.byte()
	var fds []int
	for range k & 3 {
		fds = append(fds, files[int(o.byte())%len(files)])
	}
	if k>>2&31 == 31 { // break the framing
		le.PutUint32(msg[4:], u32(o.number()))
	}
	h := parseHeader(msg)
	broken := h.badSize() || h.kind() > typeReply
	if !broken && int(h.size) != len(msg) { // the header decides how much the server waits for
		msg = append(msg, make([]byte, maxMessage)...)[:h.size]
	}
	if at := 1 + int(k); k&0x80 != 0 && at < len(msg) { // in two pieces
		c.write(msg[:at], fds...)
		if err := c.tryWrite(msg[at:]); err != nil && !broken {
			c.t.Fatalf("send: %v", err)
		}
	} else {
		c.write(msg, fds...)
	}
	if h.kind() == typeReply && !broken || h.noReply() && !broken {
		return true
	}
	if broken && h.noReply() {
		c.wantEOF()
		return false
	}
	r := c.mustRead()
	if err := checkReply(h, r); err != nil {
		c.t.Fatalf("%x: %v", msg[:min(len(msg), 64)], err)
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	if broken {
		if _, err := c.read(); err != io.EOF {
			c.t.Fatalf("connection lives after %+v: %v", h, err)
		}
	}
	return !broken
}

// checkReply checks the size of a reply, which clients take for granted.
func checkReply(h header, r reply) error {
	if r.id != h.id || r.cmd != h.cmd || r.kind() != typeReply || len(r.fds) != 0 {
		return fmt.Errorf("reply %+v with %d descriptors", r.header, len(r.fds))
	}
	if r.flags&flagError != 0 {
		if r.size != headerLen || r.errno == 0 || r.errno > maxErrno {
			return fmt.Errorf("error reply %+v", r.header)
		}
		return nil
	}
	want := map[Command]int{
		CmdDMAMap: 0, CmdDMAUnmap: 24, CmdGetInfo: 16, CmdGetRegionInfo: 32, CmdGetRegionIOFDs: 16, CmdGetIRQInfo: 16,
		CmdSetIRQs: 0, CmdRegionWrite: 16, CmdReset: 0, CmdRegionWriteMulti: 8,
	}
	n, ok := want[h.cmd]
	if h.cmd == CmdRegionRead && len(r.payload) >= regionAccessLen {
		n, ok = 16+int(le.Uint32(r.payload[12:])), true
	}
	if !ok || len(r.payload) != n || r.errno != 0 {
		return fmt.Errorf("success reply %+v with %d bytes, want %d", r.header, len(r.payload), n)
	}
	return nil
}

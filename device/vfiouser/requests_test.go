// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGetInfo(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	c.fails(syscall.EINVAL, CmdGetInfo, enc(u32(16), u32(0), u32(0)))
	c.fails(syscall.EINVAL, CmdGetInfo, enc(u32(8), u32(0), u64(0)))
	c.fails(syscall.EINVAL, CmdGetInfo, nil)
	want := enc(u32(16), u32(deviceReset|devicePCI), u32(9), u32(5))
	for _, argsz := range []u32{16, 32} {
		if got := c.ok(CmdGetInfo, enc(argsz, u32(0), u64(0))); !bytes.Equal(got, want) {
			t.Fatalf("argsz %d: %x", argsz, got)
		}
	}
}

// withMMap gives BAR4 a shared file.
func withMMap(t *testing.T, areas ...Area) *fakeDevice {
	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "bar")
	t.Cleanup(func() { f.Close() })
	d := newFake()
	d.info.Regions[4].MMap = &MMap{File: f, Offset: 0x5000, Areas: areas}
	return d
}

func TestGetRegionInfo(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	ask := func(argsz, index u32) []byte { return enc(argsz, u32(0), index, u32(0), u64(0), u64(0)) }
	c.fails(syscall.EINVAL, CmdGetRegionInfo, ask(32, 0)[:24])
	c.fails(syscall.EINVAL, CmdGetRegionInfo, ask(8, 0))
	c.fails(syscall.EINVAL, CmdGetRegionInfo, ask(32, 9))
	c.fails(syscall.EINVAL, CmdGetRegionInfo, ask(32, math.MaxUint32))
	for index, want := range map[u32]struct {
		size  u64
		flags u32
	}{0: {8 << 10, 3}, 1: {4 << 10, 1}, 2: {4 << 10, 2}, 3: {0, 0}, 6: {0, 0}, 7: {4096, 3}, 8: {0, 0}} {
		got := c.ok(CmdGetRegionInfo, ask(40, index))
		if w := enc(u32(32), want.flags, index, u32(0), want.size, u64(0)); !bytes.Equal(got, w) {
			t.Fatalf("region %d: %x, want %x", index, got, w)
		}
	}
}

func TestMappableRegionIsAnnouncedInTwoSteps(t *testing.T) {
	for name, c := range map[string]struct {
		areas, announced []Area
	}{
		"two areas": {[]Area{{0x1000, 0x1000}, {0x4000, 0x8000}}, []Area{{0x1000, 0x1000}, {0x4000, 0x8000}}},
		"whole":     {nil, []Area{{0, 4 << 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			dev := withMMap(t, c.areas...)
			cl := attached(t, dev, Options{})
			need := u32(32 + 16 + 16*len(c.announced))
			ask := func(argsz u32) []byte { return enc(argsz, u32(0), u32(4), u32(0), u64(0), u64(0)) }
			r := cl.call(CmdGetRegionInfo, ask(32))
			if w := enc(need, u32(7), u32(4), u32(0), u64(4<<20), u64(0x5000)); !bytes.Equal(r.payload, w) || len(r.fds) != 0 {
				t.Fatalf("small argsz: %x fds %v, want %x", r.payload, r.fds, w)
			}
			want := enc(need, u32(15), u32(4), u32(32), u64(4<<20), u64(0x5000), u16(1), u16(1), u32(0), u32(len(c.announced)), u32(0))
			for _, a := range c.announced {
				want = enc(want, a.Offset, a.Size)
			}
			for _, argsz := range []u32{need, need + 100} {
				// libvfio-user pads the request to argsz, QEMU does not.
				for _, p := range [][]byte{ask(argsz), append(ask(argsz), make([]byte, argsz-32)...)} {
					r := cl.call(CmdGetRegionInfo, p)
					if !bytes.Equal(r.payload, want) || len(r.fds) != 1 {
						t.Fatalf("argsz %d: %x fds %v, want %x", argsz, r.payload, r.fds, want)
					}
					var a, b unix.Stat_t
					fd, err := rawFD(dev.info.Regions[4].MMap)
					if err := errors.Join(err, unix.Fstat(fd, &a), unix.Fstat(r.fds[0], &b)); err != nil || a.Ino != b.Ino {
						t.Fatalf("wrong file, %v", err)
					}
					unix.Close(r.fds[0])
				}
			}
		})
	}
}

func TestGetRegionIOFDs(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	for name, p := range map[string][]byte{
		"short":               enc(u32(16), u32(0), u32(0)),
		"argsz 8":             enc(u32(8), u32(0), u32(0), u32(0)),
		"argsz too large":     enc(u32(maxTransfer+1), u32(0), u32(0), u32(0)),
		"flags":               enc(u32(16), u32(1), u32(0), u32(0)),
		"count":               enc(u32(16), u32(0), u32(0), u32(1)),
		"index 9":             enc(u32(16), u32(0), u32(9), u32(0)),
		"region without size": enc(u32(16), u32(0), u32(3), u32(0)),
	} {
		t.Run(name, func(t *testing.T) { c.fails(syscall.EINVAL, CmdGetRegionIOFDs, p) })
	}
	if got := c.ok(CmdGetRegionIOFDs, enc(u32(1000), u32(0), u32(2), u32(0))); !bytes.Equal(got, enc(u32(16), u32(0), u32(2), u32(0))) {
		t.Fatalf("%x", got)
	}
}

func TestGetIRQInfo(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	dev.info.IRQs[IRQINTx] = IRQInfo{Count: 1, Flags: Maskable | AutoMasked}
	c := attached(t, dev, Options{})
	c.fails(syscall.EINVAL, CmdGetIRQInfo, enc(u32(16), u32(0), u32(0)))
	c.fails(syscall.EINVAL, CmdGetIRQInfo, enc(u32(8), u32(0), u32(0), u32(0)))
	c.fails(syscall.EINVAL, CmdGetIRQInfo, enc(u32(16), u32(0), u32(5), u32(0)))
	for index, want := range []struct{ flags, count u32 }{{7, 1}, {1, 0}, {1, 20}, {1, 1}, {1, 1}} {
		got := c.ok(CmdGetIRQInfo, enc(u32(16), u32(0), u32(index), u32(0)))
		if w := enc(u32(16), want.flags, u32(index), want.count); !bytes.Equal(got, w) {
			t.Fatalf("index %d: %x, want %x", index, got, w)
		}
	}
}

func TestReset(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	if p := c.ok(CmdReset, nil); len(p) != 0 {
		t.Fatalf("payload %x", p)
	}
	c.fails(syscall.EINVAL, CmdReset, []byte{0})
	dev.mu.Lock()
	dev.resetFail = fmt.Errorf("stuck: %w", syscall.EBUSY)
	dev.mu.Unlock()
	c.fails(syscall.EBUSY, CmdReset, nil)
	c.close()
	c.wait()
	if want := []ResetKind{ResetCommand, ResetCommand, ResetLostClient}; !slices.Equal(dev.resets, want) {
		t.Fatalf("%v, want %v", dev.resets, want)
	}
	t.Run("of a device that has none", func(t *testing.T) {
		dev := newFake()
		dev.info.Resettable = false
		c := attached(t, dev, Options{})
		c.fails(syscall.EINVAL, CmdReset, nil)
		if got := c.ok(CmdGetInfo, enc(u32(16), u32(0), u64(0))); le.Uint32(got[4:]) != devicePCI {
			t.Fatalf("flags %#x", le.Uint32(got[4:]))
		}
	})
}

func TestFeaturesAndMigrationAreRefused(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	for name, q := range map[string]struct {
		p    []byte
		want syscall.Errno
	}{
		"short":           {enc(u32(8)), syscall.EINVAL},
		"argsz 4":         {enc(u32(4), u32(1<<16)), syscall.EINVAL},
		"no operation":    {enc(u32(8), u32(1)), syscall.EINVAL},
		"get and set":     {enc(u32(8), u32(1|3<<16)), syscall.EINVAL},
		"unknown bit":     {enc(u32(8), u32(1|1<<20)), syscall.EINVAL},
		"get migration":   {enc(u32(16), u32(1|1<<16), u64(0)), syscall.ENOTTY},
		"probe logging":   {enc(u32(8), u32(6|1<<18|1<<17)), syscall.ENOTTY},
		"set a state":     {enc(u32(16), u32(2|1<<17), u64(1)), syscall.ENOTTY},
		"unknown feature": {enc(u32(8), u32(0xffff|1<<16)), syscall.ENOTTY},
	} {
		t.Run(name, func(t *testing.T) { c.fails(q.want, CmdFeature, q.p) })
	}
	c.fails(syscall.EINVAL, CmdMigDataRead, enc(u32(8), u32(100)))
	c.fails(syscall.EINVAL, CmdMigDataWrite, enc(u32(8), u32(1), u8(0)))
	c.alive()
}

func TestRegionAccess(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	var log []string
	dev.read = func(region int, off uint64, p []byte) error {
		if !bytes.Equal(p, make([]byte, len(p))) {
			t.Errorf("scratch buffer holds old data: %x", p)
		}
		for i := range p {
			p[i] = byte(off) + byte(i) + 1
		}
		log = append(log, fmt.Sprintf("r%d %#x %d", region, off, len(p)))
		if off == 0x40 {
			return fmt.Errorf("bad register: %w", syscall.ENXIO)
		}
		return nil
	}
	dev.write = func(region int, off uint64, p []byte) error {
		log = append(log, fmt.Sprintf("w%d %#x %x", region, off, p))
		if off == 0x40 {
			return errors.New("no errno at all")
		}
		return nil
	}
	c := attached(t, dev, Options{})
	for _, n := range []u32{1, 2, 3, 4, 8, 256, 4096} {
		off := u64(8192 - n)
		got := c.ok(CmdRegionRead, readReq(0, off, n))
		if !bytes.Equal(got[:16], readReq(0, off, n)) || len(got) != 16+int(n) || got[16] != byte(off)+1 {
			t.Fatalf("read of %d: %x", n, got)
		}
	}
	for _, n := range []int{1, 2, 4, 8, 4096} {
		data := bytes.Repeat([]byte{0xab}, n)
		if got := c.ok(CmdRegionWrite, writeReq(0, 3, data...)); !bytes.Equal(got, enc(u64(3), u32(0), u32(n))) {
			t.Fatalf("write of %d: %x", n, got)
		}
		if want := fmt.Sprintf("w0 0x3 %x", data); log[len(log)-1] != want {
			t.Fatalf("device saw %s", log[len(log)-1])
		}
	}
	seen := len(log)
	if got := c.ok(CmdRegionRead, readReq(0, 5, 0)); !bytes.Equal(got, readReq(0, 5, 0)) {
		t.Fatalf("empty read: %x", got)
	}
	c.ok(CmdRegionWrite, writeReq(0, 8192))
	for name, p := range map[string][]byte{
		"offset 2^64-1":    readReq(0, math.MaxUint64, 4),
		"past the end":     readReq(0, 8189, 4),
		"far away":         readReq(0, 1<<40, 1),
		"count 2^32-1":     readReq(4, 0, math.MaxUint32),
		"count max+8":      readReq(4, 0, maxTransfer+8),
		"region 9":         readReq(9, 0, 4),
		"region 2^32-1":    readReq(math.MaxUint32, 0, 4),
		"absent region":    readReq(3, 0, 4),
		"empty of absent":  readReq(3, 0, 0),
		"write-only":       readReq(2, 0, 4),
		"short":            readReq(0, 0, 4)[:12],
		"one byte of head": {0},
	} {
		t.Run("read "+name, func(t *testing.T) { c.fails(syscall.EINVAL, CmdRegionRead, p) })
	}
	for name, p := range map[string][]byte{
		"offset 2^64-1":   writeReq(0, math.MaxUint64, 1),
		"past the end":    writeReq(0, 8190, 1, 2, 3),
		"region 9":        writeReq(9, 0, 1),
		"absent region":   writeReq(8, 0, 1),
		"read-only":       writeReq(1, 0, 1),
		"count too large": enc(u64(0), u32(0), u32(5), u32(1)),
		"count too small": enc(u64(0), u32(0), u32(3), u32(1)),
		"count 2^32-1":    enc(u64(0), u32(0), u32(math.MaxUint32), u32(1)),
		"short":           enc(u64(0), u32(0)),
	} {
		t.Run("write "+name, func(t *testing.T) { c.fails(syscall.EINVAL, CmdRegionWrite, p) })
	}
	if len(log) != seen {
		t.Fatalf("refused requests reached the device: %v", log[seen:])
	}
	c.fails(syscall.ENXIO, CmdRegionRead, readReq(0, 0x40, 4))
	c.fails(syscall.EIO, CmdRegionWrite, writeReq(0, 0x40, 1))
	c.alive()
}

func TestErrnoIsAlwaysAPositiveLinuxErrno(t *testing.T) {
	for err, want := range map[error]u32{
		syscall.ENODEV:                     19,
		errors.New("x"):                    5,
		syscall.Errno(0):                   5,
		syscall.Errno(4096):                5,
		syscall.Errno(4095):                4095,
		fmt.Errorf("a: %w", syscall.EPERM): 1,
	} {
		if got := errnoOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestLargestTransfersFit(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	data := make([]byte, maxTransfer)
	for i := range data {
		data[i] = byte(i >> 10)
	}
	var written []byte
	dev.read = func(_ int, _ uint64, p []byte) error { copy(p, data); return nil }
	dev.write = func(_ int, _ uint64, p []byte) error { written = slices.Clone(p); return nil }
	c := attached(t, dev, Options{})
	for range 2 {
		if got := c.ok(CmdRegionRead, readReq(4, 0, maxTransfer)); !bytes.Equal(got[16:], data) {
			t.Fatal("read differs")
		}
		c.ok(CmdRegionWrite, writeReq(4, 0, data...))
		if !bytes.Equal(written, data) {
			t.Fatal("write differs")
		}
	}
	c.fails(syscall.EINVAL, CmdRegionRead, readReq(4, 0, maxTransfer+1))
	c.alive()
}

func multiReq(n u64, entries ...[]byte) []byte { return enc(n, bytes.Join(entries, nil)) }

func multiEntry(off u64, region, count u32, data u64) []byte { return enc(off, region, count, data) }

func TestRegionWriteMulti(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	var log []string
	dev.write = func(region int, off uint64, p []byte) error {
		if off == 0x666 {
			return syscall.ENXIO
		}
		log = append(log, fmt.Sprintf("%d %#x %x", region, off, p))
		return nil
	}
	c := attached(t, dev, Options{})
	good := multiEntry(8, 0, 4, 0x1122334455667788)
	for name, p := range map[string][]byte{
		"short":                      {1, 2, 3},
		"wr_cnt 2^61":                multiReq(1<<61, good),
		"wr_cnt overflows times 24":  multiReq(1<<61+1, good),
		"fewer entries than claimed": multiReq(2, good),
		"more entries than claimed":  multiReq(1, good, good),
		"ragged":                     multiReq(1, good, []byte{0}),
		"count 9":                    multiReq(2, good, multiEntry(0, 0, 9, 0)),
		"count 0":                    multiReq(2, good, multiEntry(0, 0, 0, 0)),
		"bad region in entry 2":      multiReq(3, good, good, multiEntry(0, 9, 1, 0)),
		"read-only region":           multiReq(2, good, multiEntry(0, 1, 1, 0)),
		"offset past the end":        multiReq(2, good, multiEntry(8190, 0, 4, 0)),
		"offset 2^64-1":              multiReq(2, good, multiEntry(math.MaxUint64, 0, 4, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			c.fails(syscall.EINVAL, CmdRegionWriteMulti, p)
			if len(log) != 0 {
				t.Fatalf("applied %v, want none", log)
			}
		})
	}
	if got := c.ok(CmdRegionWriteMulti, multiReq(0)); !bytes.Equal(got, enc(u64(0))) {
		t.Fatalf("%x", got)
	}
	if got := c.ok(CmdRegionWriteMulti, multiReq(3, good, multiEntry(0x10, 2, 8, 1), multiEntry(1, 0, 1, 0xff))); !bytes.Equal(got, enc(u64(3))) {
		t.Fatalf("%x", got)
	}
	if got, want := strings.Join(log, "; "), "0 0x8 88776655; 2 0x10 0100000000000000; 0 0x1 ff"; got != want {
		t.Fatalf("device saw %s, want %s", got, want)
	}
	log = nil
	c.fails(syscall.ENXIO, CmdRegionWriteMulti, multiReq(3, good, multiEntry(0x666, 0, 1, 0), good))
	if len(log) != 1 {
		t.Fatalf("entries before a failing one stay applied, those after it are not: %v", log)
	}
	log = nil
	big := make([][]byte, 200)
	for i := range big {
		big[i] = multiEntry(u64(i), 0, 1, u64(i))
	}
	c.post(CmdRegionWriteMulti, multiReq(200, big...))
	c.alive()
	if len(log) != 200 || log[199] != "0 0xc7 c7" {
		t.Fatalf("%d writes, last %v", len(log), log[len(log)-1])
	}
}

func TestPostedRequestsAreNeverAnswered(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	writes := 0
	dev.write = func(int, uint64, []byte) error { writes++; return nil }
	c := attached(t, dev, Options{})
	ram, ev := newMemfd(t, 1<<20), newEvent(t, unix.EFD_NONBLOCK)
	posts := []struct {
		cmd Command
		p   []byte
		fds []int
	}{
		{CmdRegionWrite, writeReq(0, 0, 1, 2, 3, 4), nil},
		{CmdRegionWrite, writeReq(0, math.MaxUint64, 1), nil},
		{CmdRegionRead, readReq(0, 0, 4), nil},
		{CmdRegionRead, readReq(9, 0, 4), nil},
		{CmdGetInfo, enc(u32(16), u32(0), u64(0)), nil},
		{CmdGetRegionInfo, enc(u32(32), u32(0), u32(0), u32(0), u64(0), u64(0)), nil},
		{CmdGetIRQInfo, enc(u32(16), u32(0), u32(2), u32(0)), nil},
		{CmdGetRegionIOFDs, enc(u32(16), u32(0), u32(0), u32(0)), nil},
		{CmdDMAMap, mapReq(3, 0, 0, 1<<20), []int{ram}},
		{CmdDMAMap, mapReq(3, 0, 0, 8<<20), nil}, // EEXIST
		{CmdDMAUnmap, unmapReq(0, 1<<30, 4096), nil},
		{CmdDMAUnmap, unmapReq(0, 0, 4096), nil}, // splits
		{CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), []int{ev}},
		{CmdSetIRQs, irqReq(0x21, IRQMSIX, 0, 1), nil},
		{CmdSetIRQs, irqReq(0x21, IRQMSIX, 99, 1), nil},
		{CmdReset, nil, nil},
		{CmdRegionWriteMulti, multiReq(1, multiEntry(0, 0, 1, 0)), nil},
		{CmdFeature, enc(u32(8), u32(1<<16)), nil},
		{CmdMigDataRead, enc(u32(8), u32(1)), nil},
		{CmdVersion, enc(u32(0)), nil},
		{CmdDMARead, enc(u64(0), u64(1)), nil},
		{CmdDMAWrite, enc(u64(0), u64(0)), nil},
		{14, enc(u64(0)), nil},
		{999, enc(u64(0)), nil},
		{CmdGetInfo, nil, nil},
	}
	for _, p := range posts {
		c.post(p.cmd, p.p, p.fds...)
		c.alive()
	}
	for _, p := range posts[:8] { // and in one piece
		c.id++
		c.write(append(message(c.id, p.cmd, flagNoReply, p.p), message(77, CmdRegionWrite, flagNoReply, writeReq(0, 0, 1))...))
	}
	c.alive()
	if writes != 1+1+1+8 {
		t.Fatalf("%d writes reached the device", writes)
	}
	if eventCount(t, ev) != 1 {
		t.Fatal("posted SET_IRQS had no effect")
	}
	if n := metric(t, c.srv, "requests_posted"); n != u64(len(posts)+16) {
		t.Fatalf("%d posted requests counted", n)
	}
	if n := metric(t, c.srv, "errors_unreported"); n == 0 {
		t.Fatal("errors of posted requests are not counted")
	}
}

func TestUnknownAndMisdirectedCommands(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	for _, cmd := range []Command{0, CmdDMARead, CmdDMAWrite, 14, 19, 999, math.MaxUint16} {
		c.fails(syscall.EINVAL, cmd, make([]byte, 100), newMemfd(t, 4096))
	}
	if n := metric(t, c.srv, "requests_unknown"); n != 7 {
		t.Fatalf("%d unknown requests counted", n)
	}
	if n := metric(t, c.srv, "descriptors_unused"); n != 7 {
		t.Fatalf("%d unused descriptors counted", n)
	}
	c.alive()
}

func TestMessageIdsMayRepeatAndReservedBitsAreIgnored(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	for range 3 {
		c.write(message(0xffff, CmdGetInfo, 0xffffffc0, enc(u32(16), u32(0), u64(0))))
		r := c.mustRead()
		if r.id != 0xffff || r.flags != typeReply || len(r.payload) != 16 {
			t.Fatalf("%+v", r.header)
		}
	}
}

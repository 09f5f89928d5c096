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

	"github.com/ernic-dev/ernic/device/guestmem"
)

func TestDMAMapRefusals(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	ram := newMemfd(t, 1<<20)
	other := newMemfd(t, 1<<20)
	event := newEvent(t, 0)
	zero, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(zero)
	for _, q := range []struct {
		name string
		p    []byte
		fds  []int
		want syscall.Errno
	}{
		{"short", mapReq(3, 0, 0, 4096)[:28], nil, syscall.EINVAL},
		{"argsz 31", enc(u32(31), u32(3), u64(0), u64(0), u64(4096)), nil, syscall.EINVAL},
		{"size 0", mapReq(3, 0, 0, 0), []int{ram}, syscall.EINVAL},
		{"iova wraps", mapReq(3, 0, math.MaxUint64-4095, 8192), []int{ram}, syscall.EINVAL},
		{"offset wraps", mapReq(3, math.MaxUint64-4095, 0, 4096), []int{ram}, syscall.EINVAL},
		{"beyond the file", mapReq(3, 1<<20, 0, 4096), []int{ram}, syscall.EINVAL},
		{"8 TiB and a page", mapReq(3, 0, 0, 8<<40+4096), []int{ram}, syscall.ENOSPC},
		{"8 TiB and a page without file", mapReq(3, 0, 0, 8<<40+4096), nil, syscall.ENOSPC},
		{"unaligned iova", mapReq(3, 0, 8, 4096), []int{ram}, syscall.EINVAL},
		{"unaligned size", mapReq(3, 0, 0, 4097), []int{ram}, syscall.EINVAL},
		{"unaligned offset", mapReq(3, 8, 0, 4096), []int{ram}, syscall.EINVAL},
		{"flags 0xf0", mapReq(0xf0, 0, 0, 4096), []int{ram}, syscall.EINVAL},
		{"must mmap without file", mapReq(4, 0, 0, 4096), nil, syscall.EINVAL},
		{"pread without file", mapReq(8, 0, 0, 4096), nil, syscall.EINVAL},
		{"must mmap and pread", mapReq(12, 0, 0, 4096), []int{ram}, syscall.EINVAL},
		{"two files", mapReq(3, 0, 0, 4096), []int{ram, other}, syscall.EINVAL},
		{"253 files", mapReq(3, 0, 0, 4096), slices.Repeat([]int{ram}, maxMessageFDs), syscall.EINVAL},
		{"eventfd", mapReq(3, 0, 0, 4096), []int{event}, syscall.EINVAL},
		{"/dev/zero", mapReq(3, 0, 0, 4096), []int{zero}, syscall.EINVAL},
	} {
		t.Run(q.name, func(t *testing.T) {
			c.fails(q.want, CmdDMAMap, q.p, q.fds...)
			if n := c.srv.Mem().Stats().Windows; n != 0 {
				t.Fatalf("%d windows", n)
			}
		})
	}
	for i, flags := range []u32{0, 1, 2, 3, 4 | 3, 8 | 3} { // flags 0 is accepted, if useless
		c.ok(CmdDMAMap, mapReq(flags, 0, u64(i)<<20, 4096), ram)
	}
	if err := c.srv.Mem().ReadAt(make([]byte, 1), 0); err == nil {
		t.Fatal("a window without rights can be read")
	}
	c.fails(syscall.EEXIST, CmdDMAMap, mapReq(3, 0, 0, 8192), ram)
	c.ok(CmdDMAMap, mapReq(1, 0, 1<<20, 4096), ram) // identical
	c.fails(syscall.EEXIST, CmdDMAMap, mapReq(1, 0, 1<<20, 4096), other)
	c.alive()
}

func TestDMAMapLimit(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{Memory: guestmem.Options{MaxWindows: 16}})
	ram := newMemfd(t, 1<<20)
	for i := range u64(16) {
		c.ok(CmdDMAMap, mapReq(3, 0, i<<20, 4096), ram)
	}
	c.fails(syscall.EINVAL, CmdDMAMap, mapReq(3, 0, 1<<30, 4096), ram)
	c.ok(CmdDMAUnmap, unmapReq(0, 0, 4096))
	c.ok(CmdDMAMap, mapReq(3, 0, 1<<30, 4096), ram)
}

func TestDMAUnmap(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	ram := newMemfd(t, 1<<20)
	build := func() {
		c.ok(CmdDMAUnmap, unmapReq(2, 0, 0))
		for _, iova := range []u64{0, 0x1000, 0x8000, math.MaxUint64 - 0xfff} {
			c.ok(CmdDMAMap, mapReq(3, 0, iova, 0x1000), ram)
		}
		c.ok(CmdDMAMap, mapReq(3, 0, 0x10000, 0x4000))
		dev.dma = nil
	}
	bitmap := func(size u64) []byte { return enc(u32(40), u32(1), u64(0), u64(0x1000), u64(4096), size) }
	for _, q := range []struct {
		name string
		p    []byte
		want syscall.Errno
		left int
		seen string
	}{
		{"exact", unmapReq(0, 0x1000, 0x1000), 0, 4, "unmap 0x1000+0x1000"},
		{"superset of many", unmapReq(0, 0, 0x14000), 0, 1, "unmap 0x0+0x1000 unmap 0x1000+0x1000 unmap 0x8000+0x1000 unmap 0x10000+0x4000"},
		{"nothing there", unmapReq(0, 1<<40, 1<<40), 0, 5, ""},
		{"whole upper part, ends at 2^64", unmapReq(0, 0xfef00000, 0xffffffff01100000), 0, 4, "unmap 0xfffffffffffff000+0x1000"},
		{"all", unmapReq(2, 0, 0), 0, 0, "unmap 0x0+0x1000 unmap 0x1000+0x1000 unmap 0x8000+0x1000 unmap 0x10000+0x4000 unmap 0xfffffffffffff000+0x1000"},
		{"splits one", unmapReq(0, 0x10000, 0x1000), syscall.EINVAL, 5, ""},
		{"takes one and splits one", unmapReq(0, 0x8000, 0x9000), syscall.EINVAL, 5, ""},
		{"wraps", unmapReq(0, math.MaxUint64-0xfff, 0x1001), syscall.EINVAL, 5, ""},
		{"size 0", unmapReq(0, 0, 0), syscall.EINVAL, 5, ""},
		{"all with iova", unmapReq(2, 0x1000, 0), syscall.EINVAL, 5, ""},
		{"all with size", unmapReq(2, 0, 0x1000), syscall.EINVAL, 5, ""},
		{"all and dirty bitmap", unmapReq(3, 0, 0), syscall.EINVAL, 5, ""},
		{"flags 4", unmapReq(4, 0, 0x1000), syscall.EINVAL, 5, ""},
		{"dirty bitmap while not tracking", bitmap(8), syscall.EINVAL, 5, ""},
		{"dirty bitmap of 2^64-8 bytes", bitmap(math.MaxUint64 - 7), syscall.EINVAL, 5, ""},
		{"short", unmapReq(0, 0, 0x1000)[:20], syscall.EINVAL, 5, ""},
		{"argsz 8", enc(u32(8), u32(0), u64(0), u64(0x1000)), syscall.EINVAL, 5, ""},
		{"argsz too large", enc(u32(maxTransfer+8), u32(0), u64(0), u64(0x1000)), syscall.EINVAL, 5, ""},
	} {
		t.Run(q.name, func(t *testing.T) {
			build()
			if q.want != 0 {
				c.fails(q.want, CmdDMAUnmap, q.p)
			} else if got := c.ok(CmdDMAUnmap, q.p); !bytes.Equal(got, q.p) {
				t.Fatalf("reply %x does not echo %x", got, q.p)
			}
			if n := c.srv.Mem().Stats().Windows; n != q.left {
				t.Fatalf("%d windows, want %d", n, q.left)
			}
			if got := strings.Join(dev.dma, " "); got != q.seen {
				t.Fatalf("device was told %q, want %q", got, q.seen)
			}
		})
	}
	c.alive()
}

func TestStrictUnmap(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{StrictUnmap: true})
	ram := newMemfd(t, 1<<20)
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 0x2000), ram)
	for _, q := range [][2]u64{{0x4000, 0x1000}, {0, 0x1000}, {0, 0x4000}} {
		c.fails(syscall.ENOENT, CmdDMAUnmap, unmapReq(0, q[0], q[1]))
	}
	c.ok(CmdDMAUnmap, unmapReq(0, 0, 0x2000))
}

func TestDeviceIsToldOfWindows(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	ram := newMemfd(t, 1<<20)
	c.ok(CmdDMAMap, mapReq(3, 0, 0x1000, 0x2000), ram)
	c.fails(syscall.EEXIST, CmdDMAMap, mapReq(3, 0, 0, 0x2000), ram)
	c.ok(CmdDMAUnmap, unmapReq(0, 0x1000, 0x2000))
	if got, want := strings.Join(dev.dma, ", "), "map 0x1000+0x2000, unmap 0x1000+0x2000"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

func TestUnmapReplyWaitsForThePin(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<20), newMemfd(t, 1<<20))
	v, err := dev.Session().Mem().Pin(0, 4096, guestmem.Read)
	if err != nil {
		t.Fatal(err)
	}
	c.id++
	c.write(message(c.id, CmdDMAUnmap, 0, unmapReq(0, 0, 1<<20)))
	time.Sleep(30 * time.Millisecond)
	if n, _, err := unix.Recvfrom(c.fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK); err != unix.EAGAIN {
		t.Fatalf("answered with a pin held: %d, %v", n, err)
	}
	v.Release()
	if r := c.mustRead(); r.cmd != CmdDMAUnmap || r.errno != 0 {
		t.Fatalf("%+v", r.header)
	}
}

func TestUnmapOfAStuckPinDropsTheClientInsteadOfLying(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{Memory: guestmem.Options{DrainTimeout: 50 * time.Millisecond}})
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<20), newMemfd(t, 1<<20))
	v, err := dev.Session().Mem().Pin(0, 4096, guestmem.Write)
	if err != nil {
		t.Fatal(err)
	}
	c.write(message(1, CmdDMAUnmap, 0, unmapReq(0, 0, 1<<20)))
	c.wantEOF()
	if err := c.wait(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("ServeConn: %v", err)
	}
	if err := v.CopyIn([]byte{1}, 0); err != nil {
		t.Fatalf("late use is not safe: %v", err)
	}
	v.Release()
	for end := time.Now().Add(patience); c.srv.Mem().Stats().Files != 0; time.Sleep(time.Millisecond) {
		c.srv.Mem().UnmapAll()
		if time.Now().After(end) {
			t.Fatal("the file stays mapped")
		}
	}
}

func TestManyMaps(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	ram := newMemfd(t, 1<<20)
	for i := range u64(3000) { // distinct windows, posted; then all at once
		c.post(CmdDMAMap, mapReq(3, 0, i*0x2000, 0x1000), ram)
		if i%100 == 99 {
			c.alive()
		}
	}
	if n := c.srv.Mem().Stats().Windows; n != 3000 {
		t.Fatalf("%d windows", n)
	}
	c.ok(CmdDMAUnmap, unmapReq(0, 0, 3000*0x2000))
	for range 3000 { // the firmware storm
		c.post(CmdDMAMap, mapReq(3, 0, 0, 1<<20), ram)
		c.ok(CmdDMAUnmap, unmapReq(0, 0, 1<<20))
	}
	if st := c.srv.Mem().Stats(); st.FilesMapped != 1 {
		t.Fatalf("%d mmaps", st.FilesMapped)
	}
}

func TestManyDistinctFilesHitALimitNotAWall(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{Memory: guestmem.Options{MaxFiles: 64}})
	for i := range u64(80) {
		fd, err := unix.MemfdCreate("one-of-many", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, 4096); err != nil {
			t.Fatal(err)
		}
		r := c.call(CmdDMAMap, mapReq(3, 0, i<<12, 4096), fd)
		unix.Close(fd)
		if (r.errno == 0) != (i < 64) {
			t.Fatalf("map %d: errno %d", i, r.errno)
		}
	}
	c.alive()
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roundTrip is a request and the buffer for its reply, reused.
type roundTrip struct {
	fd       int
	req, buf []byte
}

func (r *roundTrip) do() error {
	if _, err := unix.Write(r.fd, r.req); err != nil {
		return err
	}
	for got := 0; got < len(r.buf); {
		n, err := unix.Read(r.fd, r.buf[got:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("read: %d, %w", n, err)
		}
		got += n
	}
	return nil
}

// spin is do with a client that polls, like a busy vCPU.
func (r *roundTrip) spin() error {
	if _, err := unix.Write(r.fd, r.req); err != nil {
		return err
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(r.fd), uintptr(unsafe.Pointer(&r.buf[0])),
			uintptr(len(r.buf)), unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EAGAIN {
			continue
		}
		if errno != 0 || int(n) != len(r.buf) {
			return fmt.Errorf("recv: %d, %w", n, errno)
		}
		return nil
	}
}

func readTrip(fd int, n u32) *roundTrip {
	return &roundTrip{fd, message(1, CmdRegionRead, 0, readReq(0, 0, n)), make([]byte, 32+n)}
}

func writeTrip(fd int, n int) *roundTrip {
	return &roundTrip{fd, message(1, CmdRegionWrite, 0, writeReq(0, 0, make([]byte, n)...)), make([]byte, 32)}
}

func TestRegionAccessAndSignalDoNotAllocate(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	nonblock, blocking := newEvent(t, unix.EFD_NONBLOCK), newEvent(t, 0)
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 2), nonblock, blocking)
	read, write := readTrip(c.fd, 8), writeTrip(c.fd, 8)
	big := readTrip(c.fd, 4096)
	multi := &roundTrip{c.fd, message(1, CmdRegionWriteMulti, 0, multiReq(2, multiEntry(0, 0, 8, 1), multiEntry(8, 0, 8, 1))), make([]byte, 24)}
	posted := message(1, CmdRegionWrite, flagNoReply, writeReq(0, 0, 1, 2, 3, 4, 5, 6, 7, 8))
	v, b := dev.Session().IRQ(IRQMSIX, 0), dev.Session().IRQ(IRQMSIX, 1)
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(){
		"read 8":                       func() { check(read.do()) },
		"read 4096":                    func() { check(big.do()) },
		"write 8":                      func() { check(write.do()) },
		"write multi":                  func() { check(multi.do()) },
		"posted write":                 func() { _, err := unix.Write(c.fd, posted); check(err); check(read.do()) },
		"signal":                       func() { check(v.Signal()) },
		"signal of a blocking eventfd": func() { check(b.Signal()) },
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(500, f); n >= 0.5 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkRegionRoundTrip(b *testing.B) {
	for _, mode := range []struct {
		name string
		spin bool
		o    Options
	}{
		{"client-blocks", false, Options{}},
		{"client-spins", true, Options{}},
		{"client-blocks/no-spin", false, Options{SpinTries: -1}},
		{"client-blocks/poll-1ms", false, Options{PollFor: time.Millisecond}},
	} {
		b.Run(mode.name, func(b *testing.B) {
			c := attached(b, newFake(), mode.o)
			for name, r := range map[string]*roundTrip{"read8": readTrip(c.fd, 8), "write8": writeTrip(c.fd, 8)} {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f := r.do
						if mode.spin {
							f = r.spin
						}
						if err := f(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// BenchmarkPostedWrite counts until the last write is handled; a read every
// 1000 writes keeps the two sides in step.
func BenchmarkPostedWrite(b *testing.B) {
	c := attached(b, newFake(), Options{})
	posted := message(1, CmdRegionWrite, flagNoReply, writeReq(0, 0, make([]byte, 8)...))
	fence := readTrip(c.fd, 4)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := unix.Write(c.fd, posted); err != nil {
			b.Fatal(err)
		}
		if n++; n%1000 == 0 {
			if err := fence.do(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := fence.do(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPostedBatch is the server's own cost: 100 writes arrive at once.
func BenchmarkPostedBatch(b *testing.B) {
	c := attached(b, newFake(), Options{})
	batch := bytes.Repeat(message(1, CmdRegionWrite, flagNoReply, writeReq(0, 0, make([]byte, 8)...)), 100)
	fence := readTrip(c.fd, 4)
	fence.req = append(batch, fence.req...)
	b.ReportAllocs()
	for b.Loop() {
		if err := fence.do(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/write")
}

func BenchmarkSignal(b *testing.B) {
	for name, flags := range map[string]int{"nonblock": unix.EFD_NONBLOCK, "blocking": 0} {
		b.Run(name, func(b *testing.B) {
			dev := newFake()
			c := attached(b, dev, Options{})
			c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), newEvent(b, flags))
			v := dev.Session().IRQ(IRQMSIX, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Signal(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("unassigned", func(b *testing.B) {
		dev := newFake()
		attached(b, dev, Options{})
		v := dev.Session().IRQ(IRQMSIX, 0)
		b.ReportAllocs()
		for b.Loop() {
			_ = v.Signal()
		}
	})
}

func BenchmarkDMAMapUnmap(b *testing.B) {
	c := attached(b, newFake(), Options{})
	ram := newMemfd(b, 1<<30)
	for b.Loop() {
		c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<30), ram)
		c.ok(CmdDMAUnmap, unmapReq(0, 0, 1<<30))
	}
}

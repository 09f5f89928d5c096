// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// dmaPair is a client with a 4 MiB message window at 1 MiB.
func dmaPair(t *testing.T, o Options) (*rawClient, *Session) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, o)
	c.ok(CmdDMAMap, mapReq(3, 0, 1<<20, 4<<20))
	return c, dev.Session()
}

// async runs f and returns its result later.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func result(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the operation does not end")
		return nil
	}
}

func TestDMAMessagesOnTheWire(t *testing.T) {
	c, s := dmaPair(t, Options{})
	p := make([]byte, 5)
	done := async(func() error { return s.DMARead(context.Background(), p, 1<<20+3) })
	r := c.mustRead()
	if r.cmd != CmdDMARead || r.flags != 0 || r.errno != 0 || !bytes.Equal(r.payload, enc(u64(1<<20+3), u64(5))) {
		t.Fatalf("%+v %x", r.header, r.payload)
	}
	c.alive() // requests and replies interleave
	c.write(message(r.id, CmdDMARead, typeReply, enc(r.payload, "hello")))
	if err := result(t, done); err != nil || string(p) != "hello" {
		t.Fatalf("%q, %v", p, err)
	}
	done = async(func() error { return s.DMAWrite(context.Background(), []byte("world"), 1<<20) })
	w := c.mustRead()
	if w.cmd != CmdDMAWrite || w.id == r.id || !bytes.Equal(w.payload, enc(u64(1<<20), u64(5), "world")) {
		t.Fatalf("%+v %x", w.header, w.payload)
	}
	c.write(message(w.id, CmdDMAWrite, typeReply, w.payload[:16]))
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	if metric(t, c.srv, "dma_messages") != 2 || metric(t, c.srv, "dma_message_errors") != 0 {
		t.Fatal("not counted")
	}
}

func TestDMATransfersAreSplitByTheClientsLimit(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := start(t, dev, Options{})
	c.negotiate(0, `{"capabilities":{"max_data_xfer_size":1000,"pad":"................................................................"}}`+"\x00")
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<20))
	in := make([]byte, 2500)
	for i := range in {
		in[i] = byte(i * 7)
	}
	ram := make([]byte, 1<<20)
	copy(ram[100:], in)
	out := make([]byte, len(in))
	done := async(func() error {
		if err := dev.Session().DMARead(context.Background(), out, 100); err != nil {
			return err
		}
		return dev.Session().DMAWrite(context.Background(), out, 5000)
	})
	var sizes []u64
	for range 6 {
		r := c.mustRead()
		iova, n := le.Uint64(r.payload), le.Uint64(r.payload[8:])
		sizes = append(sizes, n)
		answer := r.payload[:16]
		if r.cmd == CmdDMARead {
			answer = enc(answer, ram[iova:iova+n])
		} else {
			copy(ram[iova:], r.payload[16:])
		}
		c.write(message(r.id, r.cmd, typeReply, answer))
	}
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(sizes), "[1000 1000 500 1000 1000 500]"; got != want {
		t.Fatalf("chunks %s, want %s", got, want)
	}
	if !bytes.Equal(out, in) || !bytes.Equal(ram[5000:7500], in) {
		t.Fatal("data differs")
	}
}

func TestDMABadReplies(t *testing.T) {
	for _, q := range []struct {
		name  string
		flags u32
		errno u32
		body  func(p []byte) []byte
		want  syscall.Errno
	}{
		{"client error", typeReply | flagError, 19, func([]byte) []byte { return nil }, syscall.ENODEV},
		{"error with payload", typeReply | flagError, 7, func(p []byte) []byte { return p }, syscall.E2BIG},
		{"error with errno 0", typeReply | flagError, 0, func([]byte) []byte { return nil }, syscall.EIO},
		{"error with huge errno", typeReply | flagError, math.MaxUint32, func([]byte) []byte { return nil }, syscall.EIO},
		{"empty payload", typeReply, 0, func([]byte) []byte { return nil }, syscall.EPROTO},
		{"short data", typeReply, 0, func(p []byte) []byte { return enc(p, "abc") }, syscall.EPROTO},
		{"long data", typeReply, 0, func(p []byte) []byte { return enc(p, "abcde") }, syscall.EPROTO},
		{"wrong count", typeReply, 0, func(p []byte) []byte { return enc(p[:8], u64(5), "abcd") }, syscall.EPROTO},
		{"wrong iova", typeReply, 0, func(p []byte) []byte { return enc(u64(0), p[8:], "abcd") }, syscall.EPROTO},
	} {
		t.Run(q.name, func(t *testing.T) {
			c, s := dmaPair(t, Options{})
			p := []byte("keep")
			done := async(func() error { return s.DMARead(context.Background(), p, 1<<20) })
			r := c.mustRead()
			m := message(r.id, CmdDMARead, q.flags, q.body(r.payload))
			le.PutUint32(m[12:], q.errno)
			c.write(m)
			if err := result(t, done); !errors.Is(err, q.want) {
				t.Fatalf("%v, want %v", err, q.want)
			}
			if string(p) != "keep" {
				t.Fatalf("buffer changed to %q", p)
			}
			c.write(m) // a duplicate is a stray
			c.alive()
			if metric(t, c.srv, "replies_stray") != 1 || metric(t, c.srv, "dma_message_errors") != 1 {
				t.Fatal("not counted")
			}
		})
	}
}

func TestStrayRepliesAreIgnored(t *testing.T) {
	c, s := dmaPair(t, Options{})
	c.write(message(1, CmdGetInfo, typeReply, enc(u64(0))))
	c.write(message(1, CmdDMARead, typeReply|flagError, nil))
	c.alive()
	done := async(func() error { return s.DMARead(context.Background(), make([]byte, 4), 1<<20) })
	r := c.mustRead()
	c.write(message(r.id, CmdDMAWrite, typeReply, r.payload)) // right id, wrong command
	c.write(message(r.id+1, CmdDMARead, typeReply, enc(r.payload, "xxxx")))
	c.alive()
	c.write(message(r.id, CmdDMARead, typeReply, enc(r.payload, "good")))
	if err := result(t, done); err != nil {
		t.Fatal(err)
	}
	if n := metric(t, c.srv, "replies_stray"); n != 4 {
		t.Fatalf("%d strays counted, want 4", n)
	}
}

func TestDMAFailsLocally(t *testing.T) {
	c, s := dmaPair(t, Options{})
	ctx := context.Background()
	c.ok(CmdDMAMap, mapReq(1, 0, 8<<20, 4096))
	c.ok(CmdDMAMap, mapReq(3, 0, 16<<20, 4096), newMemfd(t, 4096))
	p := make([]byte, 16)
	for name, q := range map[string]struct {
		err  error
		want error
	}{
		"not mapped":             {s.DMARead(ctx, p, 0), guestmem.NotMapped},
		"runs out of the window": {s.DMARead(ctx, p, 5<<20-8), guestmem.NotMapped},
		"wraps":                  {s.DMARead(ctx, p, math.MaxUint64-7), guestmem.Wraps},
		"read-only window":       {s.DMAWrite(ctx, p, 8<<20), guestmem.NotPermitted},
		"nothing to do":          {s.DMARead(ctx, nil, 0), nil},
	} {
		if !errors.Is(q.err, q.want) {
			t.Errorf("%s: %v, want %v", name, q.err, q.want)
		}
	}
	c.alive()
	if metric(t, c.srv, "dma_messages") != 0 {
		t.Fatal("something was sent")
	}
}

func TestDMAFromInsideAHandlerFailsAtOnce(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	var got []error
	try := func() {
		s := dev.Session()
		got = append(got, s.DMARead(context.Background(), make([]byte, 4), 0), s.DMAWrite(context.Background(), make([]byte, 4), 0))
	}
	dev.read = func(int, uint64, []byte) error { try(); return nil }
	dev.write = func(int, uint64, []byte) error { try(); return nil }
	c := attached(t, dev, Options{})
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 4096))
	c.ok(CmdRegionRead, readReq(0, 0, 4))
	c.post(CmdRegionWrite, writeReq(0, 0, 1))
	c.alive()
	for _, err := range got {
		if err != ErrInHandler {
			t.Fatalf("%v", err)
		}
	}
	if len(got) != 4 {
		t.Fatalf("%d attempts", len(got))
	}
}

func TestClientsThatNeverAnswerDMAGetNoMessage(t *testing.T) {
	for name, q := range map[string]struct {
		minor u16
		json  string
	}{
		"rust-vmm":           {1, `{"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}}}` + "\x00"},
		"no transfer at all": {0, `{"capabilities":{"max_data_xfer_size":0}}` + "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			dev := newFake()
			c := start(t, dev, Options{})
			c.negotiate(q.minor, q.json)
			c.ok(CmdDMAMap, mapReq(3, 0, 0, 4096))
			if err := dev.Session().DMARead(context.Background(), make([]byte, 4), 0); !errors.Is(err, syscall.EIO) {
				t.Fatalf("%v", err)
			}
			c.alive()
		})
	}
}

func TestDMATimeoutAndCancellation(t *testing.T) {
	c, s := dmaPair(t, Options{DMATimeout: 30 * time.Millisecond})
	p := []byte("keep")
	done := async(func() error { return s.DMARead(context.Background(), p, 1<<20) })
	late := c.mustRead()
	if err := result(t, done); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done = async(func() error { return s.DMARead(ctx, p, 1<<20) })
	cancelled := c.mustRead()
	cancel()
	if err := result(t, done); !errors.Is(err, context.Canceled) && !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("%v", err)
	}
	for _, r := range []reply{late, cancelled} { // both replies come too late
		c.write(message(r.id, CmdDMARead, typeReply, enc(r.payload, "LATE")))
	}
	c.alive()
	if string(p) != "keep" {
		t.Fatalf("a late reply wrote %q", p)
	}
	if metric(t, c.srv, "replies_stray") != 2 || metric(t, c.srv, "dma_message_timeouts") == 0 {
		t.Fatal("not counted")
	}
}

func TestDisconnectEndsDMA(t *testing.T) {
	c, s := dmaPair(t, Options{})
	done := async(func() error { return s.DMARead(context.Background(), make([]byte, 4), 1<<20) })
	c.mustRead()
	c.close()
	if err := result(t, done); !errors.Is(err, ErrClientGone) {
		t.Fatalf("%v", err)
	}
	c.wait()
	if err := s.DMARead(context.Background(), make([]byte, 4), 1<<20); !errors.Is(err, ErrClientGone) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestManyDMAOperationsAtOnce(t *testing.T) {
	c, s := dmaPair(t, Options{})
	const workers, rounds = 8, 50
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				iova := u64(1<<20 + w*4096 + i)
				p := make([]byte, 9)
				if err := s.DMARead(context.Background(), p, iova); err != nil || le.Uint64(p) != iova {
					t.Errorf("%x, %v", p, err)
					return
				}
			}
		})
	}
	var pending []reply
	for range workers * rounds {
		pending = append(pending, c.mustRead())
		if len(pending) == 3 || len(pending) > 0 && !readable(c.fd) { // answer out of order
			for i := len(pending) - 1; i >= 0; i-- {
				r := pending[i]
				c.write(message(r.id, r.cmd, typeReply, enc(r.payload, r.payload[:8], u8(0))))
			}
			pending = nil
		}
	}
	wg.Wait()
	if len(s.dma.ops) != 0 {
		t.Fatalf("%d operations left", len(s.dma.ops))
	}
}

func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 20)
	return err == nil && n == 1
}

func TestDMAIdsSkipThoseInUse(t *testing.T) {
	table := dmaTable{ops: map[uint16]*dmaOp{}}
	held := &dmaOp{}
	id, err := table.add(held)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint16]bool{}
	for range 1<<16 - 1 {
		op := &dmaOp{}
		n, err := table.add(op)
		if err != nil || n == id {
			t.Fatalf("id %d handed out twice, %v", n, err)
		}
		seen[n] = true
		table.cancel(n, op)
	}
	if len(seen) != 1<<16-1 {
		t.Fatalf("%d ids used", len(seen))
	}
	for range maxDMAOps - 1 {
		if _, err := table.add(&dmaOp{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.add(&dmaOp{}); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("no limit: %v", err)
	}
}

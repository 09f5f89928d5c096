// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSetIRQsRefusals(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	ev := newEvent(t, unix.EFD_NONBLOCK)
	two := []int{ev, newEvent(t, unix.EFD_NONBLOCK)}
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), ev)
	const none, boolean, event, mask, unmask, trigger = 1, 2, 4, 8, 0x10, 0x20
	for name, q := range map[string]struct {
		p   []byte
		fds []int
	}{
		"short":                              {irqReq(trigger|none, IRQMSIX, 0, 1)[:16], nil},
		"argsz 19":                           {enc(u32(19), u32(trigger|none), u32(2), u32(0), u32(1)), nil},
		"index 5":                            {irqReq(trigger|none, 5, 0, 1), nil},
		"index 2^32-1":                       {irqReq(trigger|none, math.MaxUint32, 0, 1), nil},
		"no data bit":                        {irqReq(trigger, IRQMSIX, 0, 1), nil},
		"two data bits":                      {irqReq(trigger|none|boolean, IRQMSIX, 0, 1, 1), nil},
		"no action bit":                      {irqReq(none, IRQMSIX, 0, 1), nil},
		"two action bits":                    {irqReq(trigger|mask|none, IRQMSIX, 0, 1), nil},
		"three action bits":                  {irqReq(trigger|mask|unmask|none, IRQMSIX, 0, 1), nil},
		"unknown bit":                        {irqReq(trigger|none|0x40, IRQMSIX, 0, 1), nil},
		"start behind the end":               {irqReq(trigger|none, IRQMSIX, 20, 1), nil},
		"range past the end":                 {irqReq(trigger|none, IRQMSIX, 10, 11), nil},
		"start plus count overflows":         {irqReq(trigger|none, IRQMSIX, 1, math.MaxUint32), nil},
		"start 2^32-1":                       {irqReq(trigger|none, IRQMSIX, math.MaxUint32, 1), nil},
		"index without interrupts":           {irqReq(trigger|none, IRQMSI, 0, 1), nil},
		"mask of ERR":                        {irqReq(mask|none, IRQErr, 0, 1), nil},
		"unmask of REQ":                      {irqReq(unmask|none, IRQReq, 0, 1), nil},
		"two of ERR":                         {irqReq(trigger|none, IRQErr, 0, 2), nil},
		"count 0 with start":                 {irqReq(trigger|none, IRQMSIX, 1, 0), nil},
		"count 0 with BOOL":                  {irqReq(trigger|boolean, IRQMSIX, 0, 0), nil},
		"count 0 with EVENTFD":               {irqReq(trigger|event, IRQMSIX, 0, 0), nil},
		"count 0 with MASK":                  {irqReq(mask|none, IRQMSIX, 0, 0), nil},
		"count 0 with UNMASK":                {irqReq(unmask|none, IRQMSIX, 0, 0), nil},
		"fewer booleans than count":          {irqReq(trigger|boolean, IRQMSIX, 0, 3, 1, 1), nil},
		"more booleans than count":           {irqReq(trigger|boolean, IRQMSIX, 0, 1, 1, 1), nil},
		"no booleans":                        {irqReq(trigger|boolean, IRQMSIX, 0, 1), nil},
		"descriptor with NONE":               {irqReq(trigger|none, IRQMSIX, 0, 1), []int{ev}},
		"descriptor with BOOL":               {irqReq(trigger|boolean, IRQMSIX, 0, 1, 1), []int{ev}},
		"descriptor with disable all":        {irqReq(trigger|none, IRQMSIX, 0, 0), []int{ev}},
		"more descriptors than count":        {irqReq(trigger|event, IRQMSIX, 0, 1), two},
		"fewer descriptors than count":       {irqReq(trigger|event, IRQMSIX, 0, 3), two},
		"253 descriptors":                    {irqReq(trigger|event, IRQMSIX, 0, 20), slices.Repeat([]int{ev}, maxMessageFDs)},
		"eventfd to mask":                    {irqReq(mask|event, IRQMSIX, 0, 1), []int{ev}},
		"eventfd to unmask":                  {irqReq(unmask|event, IRQMSIX, 0, 1), nil},
		"a memfd":                            {irqReq(trigger|event, IRQMSIX, 0, 1), []int{newMemfd(t, 4096)}},
		"an eventfd and then no eventfd":     {irqReq(trigger|event, IRQMSIX, 0, 2), []int{two[1], newMemfd(t, 0)}},
		"the socket itself as the interrupt": {irqReq(trigger|event, IRQMSIX, 0, 1), []int{c.fd}},
	} {
		t.Run(name, func(t *testing.T) {
			c.fails(syscall.EINVAL, CmdSetIRQs, q.p, q.fds...)
			// Nothing changed: vector 0 still has its eventfd, the others none.
			for n := range 20 {
				if dev.Session().IRQ(IRQMSIX, n).Assigned() != (n == 0) {
					t.Fatalf("vector %d changed", n)
				}
			}
		})
	}
	if n := eventCount(t, ev); n != 0 {
		t.Fatalf("refused requests fired %d interrupts", n)
	}
	c.alive()
}

func TestSetIRQsAssignsInChunksWithHoles(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	evs := make([]int, 20)
	for i := range evs {
		evs[i] = newEvent(t, unix.EFD_NONBLOCK)
	}
	assigned := func() string {
		var b strings.Builder
		for n := range 20 {
			if dev.Session().IRQ(IRQMSIX, n).Assigned() {
				b.WriteByte('x')
			} else {
				b.WriteByte('.')
			}
		}
		return b.String()
	}
	fire := func(want string) {
		t.Helper()
		if got := assigned(); got != want {
			t.Fatalf("assigned %s, want %s", got, want)
		}
		for n := range 20 {
			err := dev.Session().IRQ(IRQMSIX, n).Signal()
			if (err == nil) != (want[n] == 'x') || err != nil && err != syscall.ENOENT {
				t.Fatalf("vector %d: %v", n, err)
			}
			if got := eventCount(t, evs[n]); (got == 1) != (want[n] == 'x') {
				t.Fatalf("vector %d: count %d", n, got)
			}
		}
	}
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1)) // "enable MSI-X with no vectors"
	fire("....................")
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 16), evs[:16]...)
	fire("xxxxxxxxxxxxxxxx....")
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 16, 4), evs[16:]...)
	fire("xxxxxxxxxxxxxxxxxxxx")
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 3, 2)) // all of the range, not from 0
	fire("xxx..xxxxxxxxxxxxxxx")
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 19, 1))
	fire("xxx..xxxxxxxxxxxxxx.")
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 4, 1), evs[4])
	fire("xxx.xxxxxxxxxxxxxxx.")
	// Point vector 0 elsewhere: the old eventfd stays silent.
	other := newEvent(t, unix.EFD_NONBLOCK)
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), other)
	if err := dev.Session().IRQ(IRQMSIX, 0).Signal(); err != nil || eventCount(t, other) != 1 || eventCount(t, evs[0]) != 0 {
		t.Fatalf("vector 0 did not move: %v", err)
	}
	c.ok(CmdSetIRQs, irqReq(0x21, IRQMSIX, 0, 0)) // disable all
	fire("....................")
	c.ok(CmdSetIRQs, irqReq(0x21, IRQMSI, 0, 0)) // no such interrupts: no-op
	c.ok(CmdSetIRQs, irqReq(0x24, IRQErr, 0, 1), evs[0])
	c.ok(CmdSetIRQs, irqReq(0x24, IRQErr, 0, 1))
	c.ok(CmdSetIRQs, irqReq(0x24, IRQReq, 0, 1), evs[0])
	c.ok(CmdSetIRQs, irqReq(0x21, IRQReq, 0, 0))
	for _, index := range []IRQIndex{IRQErr, IRQReq} {
		if dev.Session().IRQ(index, 0).Assigned() {
			t.Fatalf("index %d still assigned", index)
		}
	}
}

func TestClientMayFireAndMask(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	a, b := newEvent(t, unix.EFD_NONBLOCK), newEvent(t, unix.EFD_NONBLOCK)
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 1, 2), a, b)
	c.ok(CmdSetIRQs, irqReq(0x21, IRQMSIX, 1, 1))
	c.ok(CmdSetIRQs, irqReq(0x21, IRQMSIX, 0, 20)) // most have no eventfd
	c.ok(CmdSetIRQs, irqReq(0x22, IRQMSIX, 0, 3, 1, 0, 7))
	if x, y := eventCount(t, a), eventCount(t, b); x != 2 || y != 2 {
		t.Fatalf("counters %d, %d; want 2, 2", x, y)
	}
	c.ok(CmdSetIRQs, irqReq(0x09, IRQMSIX, 3, 2))
	c.ok(CmdSetIRQs, irqReq(0x12, IRQMSIX, 5, 3, 1, 0, 1))
	if got, want := strings.Join(dev.masks, " "), "2:3+2 true 2:5+1 false 2:7+1 false"; got != want {
		t.Fatalf("masks %s, want %s", got, want)
	}
}

func TestSignalOfNoVector(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	s := dev.Session()
	for _, v := range []*Vector{s.IRQ(IRQMSIX, 20), s.IRQ(IRQMSIX, -1), s.IRQ(-1, 0), s.IRQ(5, 0), s.IRQ(IRQINTx, 0)} {
		if err := v.Signal(); err != syscall.EINVAL || v.Assigned() {
			t.Fatalf("%v", err)
		}
	}
	if err := s.IRQ(IRQMSIX, 3).Signal(); err != syscall.ENOENT {
		t.Fatalf("%v", err)
	}
	if metric(t, c.srv, "irqs_unassigned") != 1 {
		t.Fatal("not counted")
	}
}

func TestSignalNeverBlocks(t *testing.T) {
	for name, flags := range map[string]int{"blocking eventfd": 0, "non-blocking eventfd": unix.EFD_NONBLOCK} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			dev := newFake()
			c := attached(t, dev, Options{})
			ev := newEvent(t, flags)
			c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), ev)
			v := dev.Session().IRQ(IRQMSIX, 0)
			if err := v.Signal(); err != nil {
				t.Fatal(err)
			}
			// The peer fills the counter to its maximum: 1 is in it already.
			if _, err := unix.Write(ev, enc(u64(math.MaxUint64-2))); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := v.Signal(); err != nil {
					t.Fatal(err)
				}
			}
			if n := eventCount(t, ev); n != math.MaxUint64-1 {
				t.Fatalf("counter %#x", n)
			}
			if metric(t, c.srv, "irqs_saturated") != 3 || metric(t, c.srv, "irqs_signalled") != 1 {
				t.Fatal("not counted")
			}
			fl, err := unix.FcntlInt(uintptr(ev), unix.F_GETFL, 0)
			if err != nil || fl&unix.O_NONBLOCK != flags&unix.O_NONBLOCK {
				t.Fatalf("the client's file flags changed to %#x", fl)
			}
		})
	}
}

func TestCloseFreesASignalStuckOnABlockingEventfd(t *testing.T) {
	leakCheck(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, enc(u64(math.MaxUint64-1))); err != nil {
		t.Fatal(err)
	}
	e := &eventFD{fd: fd}
	// A signal that saw room which is gone when it writes.
	e.users.Add(1)
	done := make(chan error)
	go func() {
		_, err := unix.Write(fd, enc(u64(1)))
		e.users.Add(-1)
		done <- err
	}()
	e.close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestSignalNeverWritesToARecycledDescriptor lets the number of a closed
// eventfd be reused at once by another one, which must stay silent.
func TestSignalNeverWritesToARecycledDescriptor(t *testing.T) {
	leakCheck(t)
	var m counters
	v := &Vector{m: &m}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				if err := v.Signal(); err != nil && err != syscall.ENOENT {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2000 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEventFD(fd)
		if err != nil {
			t.Fatal(err)
		}
		v.assign(e)
		v.assign(nil)
		again, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		if n := eventCount(t, again); n != 0 {
			t.Fatalf("a foreign eventfd was signalled %d times", n)
		}
		unix.Close(again)
	}
	stop.Store(true)
	wg.Wait()
}

func TestSignalThatComesLateDoesNotTouchTheOldDescriptor(t *testing.T) {
	leakCheck(t)
	v := &Vector{m: &counters{}}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	e := &eventFD{fd: fd}
	v.assign(e)
	if !v.enter(e) {
		t.Fatal("the assigned eventfd is refused")
	}
	e.users.Add(-1)
	v.assign(nil)
	if v.enter(e) || e.users.Load() != 0 {
		t.Fatal("a signal got hold of a closed descriptor")
	}
}

func TestInterruptsSurviveAResetAndEndWithTheClient(t *testing.T) {
	leakCheck(t)
	dev := newFake()
	c := attached(t, dev, Options{})
	ev := newEvent(t, unix.EFD_NONBLOCK)
	ram := newMemfd(t, 1<<20)
	c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1), ev)
	c.ok(CmdDMAMap, mapReq(3, 0, 0, 1<<20), ram)
	c.ok(CmdReset, nil)
	v := dev.Session().IRQ(IRQMSIX, 0)
	if err := v.Signal(); err != nil || eventCount(t, ev) != 1 {
		t.Fatalf("after reset: %v", err)
	}
	if err := dev.Session().Mem().WriteAt([]byte{1}, 0); err != nil {
		t.Fatalf("after reset: %v", err)
	}
	c.close()
	c.wait()
	if err := v.Signal(); err != syscall.ENOENT || eventCount(t, ev) != 0 {
		t.Fatalf("after the client left: %v", err)
	}
}

func TestIsEventFD(t *testing.T) {
	leakCheck(t)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	for fd, want := range map[int]bool{newEvent(t, 0): true, newMemfd(t, 0): false, epoll: false, -1: false} {
		if isEventFD(fd) != want {
			t.Errorf("descriptor %d: %v", fd, !want)
		}
	}
}

func TestSetIRQsReplyIsAHeader(t *testing.T) {
	leakCheck(t)
	c := attached(t, newFake(), Options{})
	if p := c.ok(CmdSetIRQs, irqReq(0x24, IRQMSIX, 0, 1)); !bytes.Equal(p, nil) {
		t.Fatalf("%x", p)
	}
}

// SPDX-License-Identifier: Apache-2.0

package intr

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Offsets in a control block, spelled as the driver's header has them.
const (
	coalInit   = 0
	mask       = 4
	credits    = 8
	maskAssert = 12
)

const (
	unmask    = 0x10000
	resetCoal = 0x20000
)

type bench struct {
	*Bank
	fired [8]atomic.Int64
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{Bank: New(8)}
	b.SetSignal(func(v int) { b.fired[v].Add(1) })
	b.SetOpen(true)
	return b
}

func (b *bench) write(vec int, reg uint64, v uint32) { b.Write(uint64(vec)*32+reg, v) }
func (b *bench) read(vec int, reg uint64) uint32     { return b.Read(uint64(vec)*32 + reg) }

func (b *bench) want(t *testing.T, vec int, n int64) {
	t.Helper()
	if got := b.fired[vec].Load(); got != n {
		t.Fatalf("vector %d asserted %d times, want %d", vec, got, n)
	}
}

func TestReset_MasksEveryVectorAndClearsTheRest(t *testing.T) {
	b := newBench(t)
	b.write(3, coalInit, 16)
	b.write(3, maskAssert, 1)
	b.write(3, mask, 0)
	b.Post(3, 5)
	b.ResetAll()
	for reg, want := range map[uint64]uint32{coalInit: 0, mask: 1, credits: 0, maskAssert: 0} {
		if got := b.read(3, reg); got != want {
			t.Errorf("register +%d reads %#x after reset, want %#x", reg, got, want)
		}
	}
	fired := b.fired[3].Load()
	b.Post(3, 1)
	b.want(t, 3, fired)
	b.Reset(3)
	b.write(3, mask, 0)
	b.want(t, 3, fired)
}

func TestPost_WhileMaskedAssertsAtTheUnmaskByMaskWrite(t *testing.T) {
	b := newBench(t)
	b.Post(1, 1)
	b.want(t, 1, 0)
	b.write(1, mask, 0)
	b.want(t, 1, 1)
}

func TestPost_WhileMaskedAssertsAtTheUnmaskByCredits(t *testing.T) {
	b := newBench(t)
	b.write(1, maskAssert, 1)
	b.write(1, mask, 0)
	b.Post(1, 1)
	b.want(t, 1, 1)
	b.Post(1, 1)
	b.want(t, 1, 1) // auto-masked
	if b.read(1, mask) != 1 {
		t.Fatal("mask_assert did not mask the vector")
	}
	b.write(1, credits, 1|unmask|resetCoal) // polled the first one only
	b.want(t, 1, 2)
	b.write(1, credits, 1|unmask|resetCoal)
	b.want(t, 1, 2)
	if got := b.read(1, credits); got != 0 {
		t.Fatalf("credits are %d, want 0", got)
	}
}

// The driver's combined poll retires at most 256 transmit completions and then
// ends, although more are in the ring.
func TestCredits_LeftOverAssertAgain(t *testing.T) {
	b := newBench(t)
	b.write(2, maskAssert, 1)
	for range 700 {
		b.Post(2, 1)
	}
	b.write(2, mask, 0)
	left, polls := 700, 0
	for b.fired[2].Load() > int64(polls) {
		polls++
		n := min(left, 256)
		left -= n
		b.write(2, credits, uint32(n)|unmask|resetCoal)
	}
	if left != 0 || polls != 3 {
		t.Fatalf("%d completions left after %d polls, want 0 after 3", left, polls)
	}
}

// The RDMA event queue handler acknowledges with a zero count whatever it
// consumed.
func TestCredits_ZeroReturnDoesNotStorm(t *testing.T) {
	b := newBench(t)
	b.write(4, maskAssert, 1)
	b.write(4, mask, 0)
	for i := range int64(100) {
		b.Post(4, 1)
		b.want(t, 4, i+1)
		b.write(4, credits, unmask)
		b.want(t, 4, i+1)
	}
	b.Post(4, 3)
	b.write(4, credits, 10) // budget exhausted, stays masked
	b.want(t, 4, 101)
	b.Post(4, 1)
	b.want(t, 4, 101)
	b.write(4, credits, unmask)
	b.want(t, 4, 102)
}

func TestCredits_ZeroReturnKeepsAFreshEvent(t *testing.T) {
	b := newBench(t)
	b.write(0, maskAssert, 1)
	b.write(0, mask, 0)
	b.Post(0, 1)
	b.Post(0, 1)
	b.write(0, credits, unmask|resetCoal)
	b.want(t, 0, 2)
}

func TestCredits_ReturnWithoutUnmaskStaysMasked(t *testing.T) {
	b := newBench(t)
	b.write(0, maskAssert, 1)
	b.write(0, mask, 0)
	b.Post(0, 3)
	b.Post(0, 1)
	b.write(0, credits, 2|resetCoal)
	b.want(t, 0, 1)
	if b.read(0, mask) != 1 || b.read(0, credits) != 2 {
		t.Fatalf("mask %d credits %d, want 1 and 2", b.read(0, mask), b.read(0, credits))
	}
}

// The driver may see and return an entry before the device has counted it.
func TestCredits_ReturnedBeforePosted(t *testing.T) {
	b := newBench(t)
	b.write(0, credits, 3) // masked: goes to -3, which is not work
	b.write(0, mask, 0)
	b.want(t, 0, 0)
	b.Post(0, 3)
	b.want(t, 0, 1)
}

// ionic_intr_clean writes back what it read, as a signed 16-bit count.
func TestCredits_CleanBringsAnyValueToZero(t *testing.T) {
	for _, n := range []int{0, 1, 5, 32767, 40000, 65535} {
		b := newBench(t)
		b.Post(0, n)
		b.write(0, credits, b.read(0, credits)|resetCoal)
		if got := b.read(0, credits); got != 0 {
			t.Errorf("%d posted credits cleaned to %d", n, got)
		}
	}
}

func TestGate_ClosedLatchesAndOpenAsserts(t *testing.T) {
	b := newBench(t)
	b.write(0, mask, 0)
	b.SetOpen(false)
	b.Post(0, 1)
	b.want(t, 0, 0)
	b.SetOpen(true)
	b.want(t, 0, 1)
	b.SetOpen(true)
	b.want(t, 0, 1)
}

func TestRegisters_HolesReadZeroAndDropWrites(t *testing.T) {
	b := newBench(t)
	for off := uint64(0); off < 8*32+64; off += 4 {
		if off%32 >= 16 || off >= 8*32 {
			b.Write(off, 0xffffffff)
			if got := b.Read(off); got != 0 {
				t.Errorf("hole %#x reads %#x", off, got)
			}
		}
	}
	b.Post(8, 1)
	b.Post(-1, 1)
	b.Reset(99)
}

// The RDMA driver returns nothing of what it polls, so credits may pile up; they
// must not wrap to negative, which would read as no work.
func TestCredits_Saturate(t *testing.T) {
	b := newBench(t)
	for range 5 {
		b.Post(0, 10000)
	}
	if got := b.read(0, credits); got != 32767 {
		t.Fatalf("credits are %d after 50000 events, want 32767", got)
	}
	b.write(0, mask, 0)
	b.want(t, 0, 1)
	b.write(0, credits, 256|unmask)
	b.want(t, 0, 2)
}

// A consumer that follows the driver's protocol never loses an event to a
// concurrent producer.
func TestConcurrent_NoEventIsLost(t *testing.T) {
	const producers, events, ringSize = 4, 20000, 8192
	b := New(1)
	b.SetOpen(true)
	wake := make(chan struct{}, producers*events)
	b.SetSignal(func(int) { wake <- struct{}{} })
	b.Write(maskAssert, 1)
	b.Write(mask, 0)
	var ring, seen atomic.Int64
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for range events {
				for ring.Load()-seen.Load() >= ringSize {
					runtime.Gosched()
				}
				ring.Add(1)
				b.Post(0, 1)
			}
		})
	}
	for seen.Load() < producers*events {
		<-wake
		n := min(ring.Load()-seen.Load(), 256)
		seen.Add(n)
		b.Write(credits, uint32(n)|unmask|resetCoal)
	}
	wg.Wait()
}

func TestPost_DoesNotAllocate(t *testing.T) {
	b := New(4)
	b.SetOpen(true)
	b.SetSignal(func(int) {})
	if n := testing.AllocsPerRun(1000, func() {
		b.Post(2, 1)
		b.Write(2*32+credits, 1|unmask|resetCoal)
		b.Write(2*32+mask, 0)
		b.Read(2*32 + credits)
	}); n != 0 {
		t.Fatalf("%v allocations per event", n)
	}
}

func BenchmarkPostAndReturn(b *testing.B) {
	k := New(4)
	k.SetOpen(true)
	k.SetSignal(func(int) {})
	k.Write(maskAssert, 1)
	k.Write(mask, 0)
	b.ReportAllocs()
	for b.Loop() {
		k.Post(0, 1)
		k.Write(credits, 1|unmask|resetCoal)
	}
}

func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0, 4, 0, 0, 0, 8, 1, 0, 3})
	f.Add([]byte{1, 8, 0xff, 0xff, 0xff, 12, 1, 0, 0, 4, 0, 0, 0})
	f.Add([]byte{0, 63, 0, 0, 4, 0, 0, 0, 8, 0, 0, 3, 1, 1, 0, 0, 16, 100, 0, 0, 16, 0, 16, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) { runScript(t, script) })
	})
}

// runScript posts events, accesses registers and lets time pass.
func runScript(t *testing.T, script []byte) {
	b := New(2)
	b.SetOpen(true)
	var raised atomic.Int64
	b.SetSignal(func(v int) {
		if v < 0 || v >= 2 {
			t.Errorf("vector %d asserted", v)
		}
		raised.Add(1)
	})
	for len(script) >= 4 {
		off, val := uint64(script[0]), uint32(script[1])|uint32(script[2])<<8|uint32(script[3])<<16
		script = script[4:]
		before := raised.Load()
		switch {
		case off&1 != 0:
			vec := int(off>>1) % 2
			m := b.Read(uint64(vec)*32 + mask)
			b.Post(vec, int(val))
			if m != 0 && raised.Load() != before {
				t.Fatal("a masked vector asserted")
			}
		case off&^3 == 16:
			time.Sleep(time.Duration(val%8192) * time.Microsecond)
			synctest.Wait()
		default:
			b.Write(off&^3, val)
			if raised.Load() > before+1 {
				t.Fatal("one write asserted twice")
			}
		}
	}
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	for i := range b.vectors {
		if s := b.vectors[i].state.Load(); s&held != 0 || s&(fresh|masked) == fresh {
			t.Errorf("vector %d has an event that nobody hears of: state %#x", i, s)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package intr is the bank of interrupt control blocks of the ionic NIC, one
// per MSI-X vector, at BAR0 0x2000. One rule serves the admin queue, the
// Ethernet queues and the RDMA event queues alike.
//
//	+0  coal_init    u32  coalesce interval in units of CoalesceUnit
//	+4  mask         u32  1: never assert
//	+8  credits      u32  read: current credits (signed 16 bit)
//	                      write: bits 15:0 credits returned, bit 16 clear mask,
//	                      bit 17 restart the coalesce timer
//	+12 mask_assert  u32  1: set mask each time the vector asserts
//	+16 coal         u32  read: what is left of the interval, in the same units
//
// Each posted event adds one credit; the driver returns what it consumed. The
// credits decide whether an unmask asserts again:
//
//   - An event posted while masked asserts at the unmask, by either path.
//   - Credits left over after a return (n > 0) assert again: the driver's poll
//     has a budget of 256 transmit completions and relies on it.
//   - A return of zero with nothing fresh drops the rest: the RDMA driver never
//     returns the credits of the events it polled, and a strict level would
//     storm.
//
// The driver restarts the coalesce timer when it ends a poll. With an interval of
// more than 64 us, the driver's default, the next interrupt of the vector waits
// until it is over: then one timer of the vector runs, which asserts for all that
// came meanwhile. A shorter interval, none, or a vector that was silent for as
// long asserts at once.
//
// After a reset every vector is masked: between request_irq and the addition of
// its NAPI the driver would call a nil poll function, so only the driver's own
// mask write opens a vector.
package intr

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// A vector's state is one word so that posting is a single compare-and-swap.
const (
	creditBits = 0xffff
	fresh      = 1 << 16 // an event was posted since the last assertion
	masked     = 1 << 17
	autoMask   = 1 << 18 // mask_assert
	coalescing = 1 << 19 // coal_init is long enough to hold interrupts back
	held       = 1 << 20 // an interrupt is held back, the timer runs
)

// resetState is what every vector holds after a reset: masked, nothing else.
const resetState = masked

type vector struct {
	state    atomic.Uint32
	coalInit atomic.Uint32
	until    atomic.Int64 // end of the interval, on the bank's clock, nanoseconds
	timer    *time.Timer  // runs only while an interrupt is held back
	// quiet is held while the timer asserts: who has masked or reset the vector
	// hears nothing more of it.
	quiet sync.Mutex
	_     [32]byte // one vector per cache line: different queues post to different ones
}

// Bank holds the control blocks of all vectors. All methods are safe for
// concurrent use and none of them allocates.
type Bank struct {
	vectors []vector
	start   time.Time // zero of the bank's clock
	signal  atomic.Pointer[func(int)]
	unmask  atomic.Pointer[func(int)]
	open    atomic.Bool // bus mastering: while off nothing asserts, events stay fresh
	asserts atomic.Uint64
}

// New returns a bank of n vectors in reset state with the gate closed and no
// signal function.
func New(n int) *Bank {
	b := &Bank{vectors: make([]vector, n), start: time.Now()}
	for i := range b.vectors {
		t := time.AfterFunc(math.MaxInt64, func() { b.expire(i) })
		t.Stop()
		b.vectors[i].timer = t
	}
	b.ResetAll()
	return b
}

// Len returns the number of vectors.
func (b *Bank) Len() int { return len(b.vectors) }

// SetSignal installs the function that raises MSI-X vector vec. It must neither
// block nor allocate. nil drops assertions.
func (b *Bank) SetSignal(f func(vec int)) {
	if f == nil {
		b.signal.Store(nil)
		return
	}
	b.signal.Store(&f)
}

// SetUnmasking installs the function that hears of vector vec being unmasked by
// the driver, before the vector can assert again: what the driver was told of by
// the last interrupt it has read by then. It must neither block nor allocate.
func (b *Bank) SetUnmasking(f func(vec int)) { b.unmask.Store(&f) }

func (b *Bank) unmasking(vec int) {
	if f := b.unmask.Load(); f != nil {
		(*f)(vec)
	}
}

// SetOpen follows the bus master bit. Closed, the bank latches events; opened,
// it asserts what was latched and is not masked.
func (b *Bank) SetOpen(on bool) {
	b.open.Store(on)
	if on {
		for i := range b.vectors {
			b.update(i, func(s uint32) (uint32, bool) { return s, s&fresh != 0 })
		}
	}
}

// Asserts returns how many interrupts were raised since the bank was made.
func (b *Bank) Asserts() uint64 { return b.asserts.Load() }

// Post adds credits events to vector vec and asserts it unless it is masked or
// coalesces. Call it before or right after the events are visible in guest
// memory; the driver may return a credit first. An unknown vector is ignored:
// queue creation has checked it.
func (b *Bank) Post(vec, credits int) {
	if uint(vec) >= uint(len(b.vectors)) {
		return
	}
	v := &b.vectors[vec]
	for {
		old := v.state.Load()
		s := addCredits(old, credits) | fresh
		s, fire, wait := b.decide(v, s)
		if v.state.CompareAndSwap(old, s) {
			b.follow(vec, fire, wait)
			return
		}
	}
}

// addCredits adds n, which may be negative, to the credits of a state. They stay
// within 16 bits signed: the rings of one vector hold fewer entries than that, so
// what is cut off is leakage.
func addCredits(s uint32, n int) uint32 {
	c := min(max(int(int16(s))+n, math.MinInt16), math.MaxInt16)
	return s&^creditBits | uint32(c)&creditBits
}

// asserted is the state after an assertion.
func asserted(s uint32) uint32 {
	s &^= fresh | held
	if s&autoMask != 0 {
		s |= masked
	}
	return s
}

func (b *Bank) raise(vec int) {
	b.asserts.Add(1)
	if f := b.signal.Load(); f != nil {
		(*f)(vec)
	}
}

// follow does what decide has found, once the state is stored.
func (b *Bank) follow(vec int, fire bool, wait time.Duration) {
	switch {
	case fire:
		b.raise(vec)
	case wait > 0:
		b.vectors[vec].timer.Reset(wait)
	}
}

// update applies one register write: next returns the new state and whether the
// vector wants to assert, which it does unless masked, gated or held back.
func (b *Bank) update(vec int, next func(uint32) (uint32, bool)) {
	v := &b.vectors[vec]
	for {
		old := v.state.Load()
		s, want := next(old)
		var fire bool
		var wait time.Duration
		if want {
			s, fire, wait = b.decide(v, s)
		}
		if v.state.CompareAndSwap(old, s) {
			b.follow(vec, fire, wait)
			return
		}
	}
}

// Reset puts vector vec in reset state. The users of the vector must have
// stopped posting, or a late event opens the next user's life with a latched
// interrupt.
func (b *Bank) Reset(vec int) {
	if uint(vec) >= uint(len(b.vectors)) {
		return
	}
	v := &b.vectors[vec]
	v.quiet.Lock()
	defer v.quiet.Unlock()
	v.timer.Stop()
	v.state.Store(resetState)
	v.coalInit.Store(0)
	v.until.Store(0)
}

// ResetAll puts every vector in reset state.
func (b *Bank) ResetAll() {
	for i := range b.vectors {
		b.Reset(i)
	}
}

// Read returns the register at off (a multiple of 4) from the start of the
// bank; holes read as 0.
func (b *Bank) Read(off uint64) uint32 {
	i := off / abi.IntrCtrlSize
	if i >= uint64(len(b.vectors)) {
		return 0
	}
	v := &b.vectors[i]
	switch off % abi.IntrCtrlSize {
	case abi.IntrCoalInit:
		return v.coalInit.Load()
	case abi.IntrMask:
		return (v.state.Load() / masked) & 1
	case abi.IntrCredits:
		return v.state.Load() & creditBits
	case abi.IntrMaskAssert:
		return (v.state.Load() / autoMask) & 1
	case abi.IntrCoal:
		return uint32((b.remaining(v) + CoalesceUnit - 1) / CoalesceUnit)
	}
	return 0
}

// Write stores val to the register at off (a multiple of 4) from the start of
// the bank; holes are dropped.
func (b *Bank) Write(off uint64, val uint32) {
	i := off / abi.IntrCtrlSize
	if i >= uint64(len(b.vectors)) {
		return
	}
	vec := int(i)
	switch off % abi.IntrCtrlSize {
	case abi.IntrCoalInit:
		b.writeCoalInit(vec, val)
	case abi.IntrMask:
		b.writeMask(vec, val)
	case abi.IntrCredits:
		b.writeCredits(vec, val)
	case abi.IntrMaskAssert:
		b.update(vec, func(s uint32) (uint32, bool) {
			if val != 0 {
				return s | autoMask, false
			}
			return s &^ autoMask, false
		})
	}
}

func (b *Bank) writeMask(vec int, val uint32) {
	if val == 0 {
		b.unmasking(vec)
	} else {
		v := &b.vectors[vec]
		v.quiet.Lock()
		defer v.quiet.Unlock()
	}
	b.update(vec, func(s uint32) (uint32, bool) {
		if val != 0 {
			return s | masked, false
		}
		s &^= masked
		return s, s&fresh != 0 || int16(s) > 0
	})
}

func (b *Bank) writeCredits(vec int, val uint32) {
	n := int(int16(val & abi.CreditsCount))
	if val&abi.CreditsUnmask != 0 {
		b.unmasking(vec)
	}
	if val&abi.CreditsResetCoal != 0 {
		b.restart(vec)
	}
	b.update(vec, func(s uint32) (uint32, bool) {
		s = addCredits(s, -n)
		if val&abi.CreditsUnmask != 0 {
			s &^= masked
		}
		if s&fresh != 0 || (n > 0 && int16(s) > 0) {
			return s, true
		}
		// The driver found nothing and nothing came since: what is left is
		// leakage, not work.
		return s &^ creditBits, false
	})
}

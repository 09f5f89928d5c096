// SPDX-License-Identifier: Apache-2.0

// Package faulty is a link around a link: it loses, repeats, delays and
// reorders what is sent, cuts the connection and shows every frame to an
// observer. With it a transport is tested against the network it must survive.
//
//	upper side --Send--> Link --(faults)--> inner link --> ...
//	upper side <-Receive-- Link.Upper() <-- inner link <-- ...
//
// Faults are drawn from the seed, the flow and the number of the frame within
// its flow. The same frames meet the same faults in every run, whatever the
// order in which goroutines send.
//
// A frame that is held back keeps its Owner until it is forwarded. A duplicate
// has bytes of its own.
package faulty

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/fabric"
)

// Faults are probabilities from 0 to 1, drawn for each frame in this order; the
// first that strikes is the only one.
type Faults struct {
	// Drop loses the frame; the sender is told fabric.Sent.
	Drop float64
	// Duplicate sends the frame twice.
	Duplicate float64
	// Reorder holds the frame back until Overtake later frames of its flow have
	// passed, or for HoldFor, whatever comes first.
	Reorder float64
	// Delay holds the frame for a time between 0 and DelayFor. Later frames may
	// pass.
	Delay float64

	// Overtake is how many frames pass a reordered one. Default 1.
	Overtake int
	// HoldFor bounds how long a reordered frame is held. Default 1 ms.
	HoldFor time.Duration
	// DelayFor is the longest delay. Default 1 ms.
	DelayFor time.Duration
}

func (f Faults) withDefaults() Faults {
	if f.Overtake == 0 {
		f.Overtake = 1
	}
	if f.HoldFor == 0 {
		f.HoldFor = time.Millisecond
	}
	if f.DelayFor == 0 {
		f.DelayFor = time.Millisecond
	}
	return f
}

// Direction of a frame that an observer sees.
type Direction uint8

// Directions.
const (
	Outgoing Direction = iota
	Incoming
)

// Options of a faulty link.
type Options struct {
	Seed   uint64
	Faults Faults
	// Receiver is the upper side.
	Receiver fabric.Receiver
	// Observe sees every frame before anything happens to it: at Send (once per
	// call, a frame that is pushed back is seen again) and at Receive. It must
	// not keep the frame or its bytes.
	Observe func(d Direction, f *fabric.Frame)
}

// Counts is what happened so far, in frames.
type Counts struct {
	Passed, Dropped, Duplicated, Reordered, Delayed, Cut uint64
}

type flowKey struct{ dst, flow uint32 }

// held is a frame that waits for its time.
type held struct {
	frame fabric.Frame
	left  int // later frames that must pass; 0 for a delayed frame
	timer *time.Timer
}

// Link is the faulty link.
type Link struct {
	opts Options

	mu      sync.Mutex // guards all below
	inner   fabric.Link
	faults  Faults
	cut     bool
	closed  bool
	counts  Counts
	numbers map[flowKey]uint64
	held    map[flowKey][]*held
	// stuck frames found the inner link full after the sender was told that
	// they are sent.
	stuck []fabric.Frame
}

var _ fabric.Link = (*Link)(nil)

// New makes a link that is not attached to an inner one yet.
func New(o Options) *Link {
	return &Link{
		opts: o, faults: o.Faults.withDefaults(),
		numbers: make(map[flowKey]uint64), held: make(map[flowKey][]*held),
	}
}

// Upper is the receiver to give to the inner link.
func (l *Link) Upper() fabric.Receiver { return (*upper)(l) }

// Attach sets the inner link. It must be called before the first Send.
func (l *Link) Attach(inner fabric.Link) {
	l.mu.Lock()
	l.inner = inner
	l.mu.Unlock()
}

// Set changes the faults of later frames.
func (l *Link) Set(f Faults) {
	l.mu.Lock()
	l.faults = f.withDefaults()
	l.mu.Unlock()
}

// Cut makes the link lose everything in this direction, or heals it.
func (l *Link) Cut(on bool) {
	l.mu.Lock()
	l.cut = on
	l.mu.Unlock()
}

// Counts returns what happened so far.
func (l *Link) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

type fault uint8

const (
	pass fault = iota
	drop
	duplicate
	reorder
	delay
)

// draw decides about the n-th frame of a flow. The second result is a number
// from 0 to 1 for the size of the fault.
func (l *Link) draw(k flowKey, n uint64) (fault, float64) {
	r := rand.New(rand.NewPCG(l.opts.Seed^uint64(k.dst)<<32^uint64(k.flow), n*0x9E3779B97F4A7C15+1))
	p, size := r.Float64(), r.Float64()
	for _, c := range []struct {
		fault fault
		p     float64
	}{
		{drop, l.faults.Drop}, {duplicate, l.faults.Duplicate}, {reorder, l.faults.Reorder}, {delay, l.faults.Delay},
	} {
		if p < c.p {
			return c.fault, size
		}
		p -= c.p
	}
	return pass, size
}

// Send draws a fault and forwards the frame, or what is left of it.
func (l *Link) Send(f *fabric.Frame) fabric.Verdict {
	if l.opts.Observe != nil {
		l.opts.Observe(Outgoing, f)
	}
	k := flowKey{f.Dst, f.Flow}
	l.mu.Lock()
	inner := l.inner
	if l.closed {
		l.mu.Unlock()
		f.Drop()
		return fabric.Dropped
	}
	n := l.numbers[k]
	what, size := l.draw(k, n)
	if l.cut {
		what = drop
	}
	l.numbers[k] = n + 1
	switch what {
	case drop:
		if l.cut {
			l.counts.Cut++
		} else {
			l.counts.Dropped++
		}
		l.mu.Unlock()
		f.Drop()
		return fabric.Sent
	case reorder:
		l.counts.Reordered++
		l.hold(k, f, l.faults.Overtake, l.faults.HoldFor)
		l.mu.Unlock()
		return fabric.Sent
	case delay:
		l.counts.Delayed++
		l.hold(k, f, 0, time.Duration(size*float64(l.faults.DelayFor)))
		l.mu.Unlock()
		return fabric.Sent
	}
	l.mu.Unlock()

	var twin fabric.Frame
	if what == duplicate {
		twin = *f
		twin.Header, twin.Payload, twin.Owner = bytes.Clone(f.Header), bytes.Clone(f.Payload), nil
	}
	v := inner.Send(f)
	if v == fabric.Full {
		// The sender comes again with this frame: it must meet the same fate.
		l.mu.Lock()
		l.numbers[k]--
		l.mu.Unlock()
		return v
	}
	l.mu.Lock()
	l.counts.Passed++
	if what == duplicate {
		l.counts.Duplicated++
	}
	due := l.overtaken(k)
	l.mu.Unlock()
	if what == duplicate {
		l.forward(twin)
	}
	for _, f := range due {
		l.forward(f)
	}
	return v
}

// hold keeps a frame for later. l.mu must be held.
func (l *Link) hold(k flowKey, f *fabric.Frame, overtake int, d time.Duration) {
	h := &held{frame: *f, left: overtake}
	h.timer = time.AfterFunc(d, func() {
		l.mu.Lock()
		mine := l.remove(k, h)
		l.mu.Unlock()
		if mine {
			l.forward(h.frame)
		}
	})
	l.held[k] = append(l.held[k], h)
}

// remove takes a held frame off the books, false if somebody else has.
func (l *Link) remove(k flowKey, h *held) bool {
	for i, other := range l.held[k] {
		if other == h {
			l.held[k] = append(l.held[k][:i:i], l.held[k][i+1:]...)
			return true
		}
	}
	return false
}

// overtaken counts a frame that passed the held ones of its flow and returns
// those whose time has come. l.mu must be held.
func (l *Link) overtaken(k flowKey) []fabric.Frame {
	var due []fabric.Frame
	for _, h := range append([]*held(nil), l.held[k]...) {
		if h.left == 0 {
			continue
		}
		if h.left--; h.left == 0 && l.remove(k, h) {
			h.timer.Stop()
			due = append(due, h.frame)
		}
	}
	return due
}

// forward sends a frame that the sender has been told is sent.
func (l *Link) forward(f fabric.Frame) {
	l.mu.Lock()
	inner, closed := l.inner, l.closed
	l.mu.Unlock()
	if closed {
		f.Release()
		return
	}
	if inner.Send(&f) != fabric.Full {
		return
	}
	l.mu.Lock()
	if closed = l.closed; !closed {
		l.stuck = append(l.stuck, f)
	}
	l.mu.Unlock()
	if closed {
		f.Release()
	}
}

// Close closes the inner link and releases what is held.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	inner := l.inner
	frames := l.stuck
	for _, hs := range l.held {
		for _, h := range hs {
			h.timer.Stop()
			frames = append(frames, h.frame)
		}
	}
	l.stuck, l.held = nil, make(map[flowKey][]*held)
	l.mu.Unlock()
	for _, f := range frames {
		f.Release()
	}
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// upper is the Link as the inner link's receiver.
type upper Link

// Receive shows the frame to the observer and hands it on.
func (u *upper) Receive(f *fabric.Frame) {
	if u.opts.Observe != nil {
		u.opts.Observe(Incoming, f)
	}
	u.opts.Receiver.Receive(f)
}

// Writable sends what was stuck and tells the upper side.
func (u *upper) Writable(dst uint32, group uint8) {
	l := (*Link)(u)
	l.mu.Lock()
	stuck := l.stuck
	l.stuck = nil
	l.mu.Unlock()
	for _, f := range stuck {
		l.forward(f)
	}
	u.opts.Receiver.Writable(dst, group)
}

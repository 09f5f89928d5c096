// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
)

// station is a receiver made of functions; nil ones do what is harmless.
type station struct {
	receive  func(f *fabric.Frame)
	writable func(dst uint32, group uint8)
}

func (s *station) Receive(f *fabric.Frame) {
	if s.receive != nil {
		s.receive(f)
		return
	}
	f.Release()
}

func (s *station) Writable(dst uint32, group uint8) {
	if s.writable != nil {
		s.writable(dst, group)
	}
}

// ledger checks that every Owner given away is released exactly once.
type ledger struct{ given, released atomic.Int64 }

type entry struct {
	book *ledger
	// payload is spoiled when the link says that it does not need it any more.
	payload []byte
	done    atomic.Bool
	t       testing.TB
}

func (l *ledger) owner(t testing.TB) *entry {
	l.given.Add(1)
	return &entry{book: l, t: t}
}

func (e *entry) Release() {
	if e.done.Swap(true) {
		e.t.Error("an owner was released twice")
	}
	clear(e.payload)
	e.book.released.Add(1)
}

// take undoes owner for a frame that came back with Full.
func (e *entry) take() { e.book.given.Add(-1) }

func (l *ledger) check(t testing.TB) {
	t.Helper()
	if g, r := l.given.Load(), l.released.Load(); g != r {
		t.Errorf("%d owners given, %d released", g, r)
	}
}

// bed is a set of mesh links in one process, over TCP or a network in memory.
type bed struct {
	t   testing.TB
	dir *directory.Directory
	mem *memnet // nil: TCP on the loopback interface

	mu     sync.Mutex
	events []Event
}

func newBed(t testing.TB) *bed { return &bed{t: t, dir: directory.New()} }

// newMemBed makes a bed without real network or time, for synctest.
func newMemBed(t testing.TB) *bed { return &bed{t: t, dir: directory.New(), mem: newMemnet()} }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// node adds a node to the bed. change may alter its options.
func (b *bed) node(id uint32, r fabric.Receiver, change func(*Options)) *Link {
	b.t.Helper()
	o := Options{
		Self: id, Instance: [16]byte{byte(id), 1}, Incarnation: 1, Directory: b.dir, Receiver: r, Insecure: true,
		OnEvent: b.event,
	}
	if b.mem != nil {
		o.Listener, o.Dial = b.mem.listen(), b.mem.dial
	} else {
		o.Listener = listen(b.t)
	}
	if change != nil {
		change(&o)
	}
	link, err := New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = link.Close() })
	b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: id, Address: o.Listener.Addr().String(), Instance: o.Instance}}})
	return link
}

// patient makes timeouts long, for tests that load the machine.
func patient(o *Options) { o.Timing.Connect, o.Timing.DeadAfter = time.Minute, time.Minute }

// connect makes the links between all nodes and waits until they are complete.
func connect(t testing.TB, links ...*Link) {
	t.Helper()
	for _, a := range links {
		for _, b := range links {
			if a != b {
				if err := a.Connect(b.opts.Self); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, a := range links {
		for _, b := range links {
			if a != b {
				dialer := a
				if b.opts.Self < a.opts.Self {
					dialer = b
				}
				await(t, "the lanes of a link", func() bool { return to(a, b.opts.Self).Lanes == dialer.opts.Lanes })
			}
		}
	}
}

func (b *bed) event(e Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
}

// seen returns the events of a kind so far.
func (b *bed) seen(k EventKind) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	var es []Event
	for _, e := range b.events {
		if e.Kind == k {
			es = append(es, e)
		}
	}
	return es
}

// patience bounds every wait for something that must happen; a busy machine
// takes its time.
const patience = time.Minute

// await waits until ok holds.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for: %s", what)
		}
	}
}

// to returns the counters of a link to one peer.
func to(l *Link, node uint32) fabric.PeerStats {
	for _, s := range l.Stats() {
		if s.Node == node {
			return s
		}
	}
	return fabric.PeerStats{}
}

// counted waits until the counters of a link to one peer satisfy ok: frames are
// counted when the message they are part of is done with, a moment after they
// went to the receiver or out.
func counted(t testing.TB, l *Link, node uint32, ok func(s *fabric.PeerStats) bool) {
	t.Helper()
	var s fabric.PeerStats
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if s = to(l, node); ok(&s) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("stats %+v", s)
		}
	}
}

// say sends one small frame.
func say(t testing.TB, l *Link, dst, flow uint32, text string) {
	t.Helper()
	if v := l.Send(&fabric.Frame{Dst: dst, Flow: flow, Payload: []byte(text)}); v != fabric.Sent {
		t.Fatalf("to node %d: %v", dst, v)
	}
}

// words is a receiver that passes small payloads to a channel.
func words() (*station, chan string) {
	c := make(chan string, 1000)
	return &station{receive: func(f *fabric.Frame) {
		c <- string(f.Payload)
		f.Release()
	}}, c
}

func expect(t testing.TB, c chan string, want string) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Fatalf("%q arrived where %q was due", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("%q did not arrive", want)
	}
}

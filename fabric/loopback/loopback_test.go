// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ernic-dev/ernic/fabric"
)

type receiver struct {
	receive  func(f *fabric.Frame)
	writable func(dst uint32, group uint8)
}

func (r *receiver) Receive(f *fabric.Frame) { r.receive(f) }

func (r *receiver) Writable(dst uint32, group uint8) {
	if r.writable != nil {
		r.writable(dst, group)
	}
}

// owner counts how often it is released.
type owner struct{ n atomic.Int32 }

func (o *owner) Release() { o.n.Add(1) }

func open(t testing.TB, o Options) *Link {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSend_DeliversEachFlowInOrder(t *testing.T) {
	const flows, frames = 20, 1000
	var mu sync.Mutex
	next := map[uint32]byte{}
	var got atomic.Int64
	all := make(chan struct{})
	l := open(t, Options{Self: 3, Lanes: 3, Receiver: &receiver{receive: func(f *fabric.Frame) {
		mu.Lock()
		defer mu.Unlock()
		if f.Src != 3 || f.Dst != 3 || f.Header[0] != next[f.Flow] {
			t.Errorf("flow %d: frame %d from %d, want %d", f.Flow, f.Header[0], f.Src, next[f.Flow])
		}
		next[f.Flow]++
		f.Release()
		if got.Add(1) == flows*frames {
			close(all)
		}
	}}})
	var owners [flows]owner
	var wg sync.WaitGroup
	for flow := range uint32(flows) {
		wg.Go(func() {
			for i := range frames {
				f := fabric.Frame{Dst: 3, Flow: flow, Header: []byte{byte(i)}, Owner: &owners[flow]}
				for l.Send(&f) == fabric.Full {
				}
			}
		})
	}
	wg.Wait()
	<-all
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range owners {
		if n := owners[i].n.Load(); n != frames {
			t.Errorf("flow %d: %d releases for %d frames", i, n, frames)
		}
	}
	if s := l.Stats(); s.RxFrames != flows*frames || s.TxFrames != s.RxFrames || s.QueuedFrames != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestSend_PushesBackAndTellsOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var writable atomic.Int32
		var delivered atomic.Int32
		l := open(t, Options{Self: 1, Lanes: 1, Receiver: &receiver{
			receive: func(f *fabric.Frame) {
				<-gate
				delivered.Add(1)
				f.Release()
			},
			writable: func(dst uint32, group uint8) {
				if dst != 1 || group != fabric.Group(9) {
					t.Errorf("room to %d in group %d", dst, group)
				}
				writable.Add(1)
			},
		}})
		var o owner
		f := fabric.Frame{Dst: 1, Flow: 9, Payload: make([]byte, 64<<10), Owner: &o}
		sent := 0
		for l.Send(&f) == fabric.Sent {
			sent++
		}
		if v := l.Send(&f); v != fabric.Full {
			t.Fatalf("a full link answered %v", v)
		}
		synctest.Wait()
		if writable.Load() != 0 || o.n.Load() != 0 {
			t.Fatal("room was told of, or an owner released, while nothing moved")
		}
		if s := l.Stats(); s.QueuedBytes > 2<<20 || s.Full == 0 {
			t.Fatalf("a full link holds %d bytes, full %d", s.QueuedBytes, s.Full)
		}
		close(gate)
		synctest.Wait()
		if int(delivered.Load()) != sent || writable.Load() != 1 || int(o.n.Load()) != sent {
			t.Fatalf("delivered %d of %d, told of room %d times, released %d", delivered.Load(), sent, writable.Load(), o.n.Load())
		}
		if l.Close() != nil {
			t.Fatal("close failed")
		}
	})
}

func TestSend_RefusesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := open(t, Options{Self: 1, Lanes: 1, Receiver: &receiver{receive: func(f *fabric.Frame) { <-gate; f.Release() }}})
		var o owner
		if v := l.Send(&fabric.Frame{Dst: 2, Owner: &o}); v != fabric.NoRoute || o.n.Load() != 1 {
			t.Fatalf("another node: %v, %d releases", v, o.n.Load())
		}
		if v := l.Send(&fabric.Frame{Dst: 1, Header: make([]byte, 257), Owner: &o}); v != fabric.Dropped || o.n.Load() != 2 {
			t.Fatalf("a long header: %v, %d releases", v, o.n.Load())
		}
		var lossy owner
		n := 0
		for ; ; n++ {
			v := l.Send(&fabric.Frame{Dst: 1, Class: fabric.Datagram, Payload: make([]byte, 64<<10), Owner: &lossy})
			if v == fabric.Dropped {
				break
			}
			if v != fabric.Sent {
				t.Fatalf("a datagram: %v", v)
			}
		}
		if lossy.n.Load() != 1 {
			t.Fatalf("%d releases after one dropped datagram", lossy.n.Load())
		}
		// Close waits for the delivery under way and drops what is queued.
		closed := make(chan struct{})
		go func() { _ = l.Close(); close(closed) }()
		synctest.Wait()
		close(gate)
		<-closed
		if int(lossy.n.Load()) != n+1 {
			t.Fatalf("%d releases for %d frames", lossy.n.Load(), n+1)
		}
		if v := l.Send(&fabric.Frame{Dst: 1, Owner: &o}); v != fabric.Dropped || o.n.Load() != 3 {
			t.Fatalf("a closed link: %v, %d releases", v, o.n.Load())
		}
		s := l.Stats()
		if s.Drops[fabric.DropNoRoute] != 1 || s.Drops[fabric.DropInvalid] != 1 || s.Drops[fabric.DropQueueFull] != 1 || s.Drops[fabric.DropClosed] == 0 {
			t.Fatalf("drops %v", s.Drops)
		}
	})
}

func TestReceive_MaySend(t *testing.T) {
	done := make(chan struct{})
	var l *Link
	started := make(chan struct{})
	r := &receiver{}
	r.receive = func(f *fabric.Frame) {
		<-started
		n := f.Header[0]
		f.Release()
		if n == 0 {
			close(done)
			return
		}
		l.Send(&fabric.Frame{Dst: 1, Flow: f.Flow + 1, Header: []byte{n - 1}})
	}
	l = open(t, Options{Self: 1, Receiver: r})
	close(started)
	l.Send(&fabric.Frame{Dst: 1, Header: []byte{200}})
	<-done
	_ = l.Close()
}

func TestNew_RefusesBadOptions(t *testing.T) {
	r := &receiver{receive: func(*fabric.Frame) {}}
	for _, o := range []Options{{}, {Receiver: r, Lanes: -1}, {Receiver: r, Lanes: 257}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestSend_DoesNotAllocate(t *testing.T) {
	var got atomic.Int32
	l := open(t, Options{Self: 1, Receiver: &receiver{receive: func(f *fabric.Frame) { f.Release(); got.Add(1) }}})
	defer l.Close()
	f := fabric.Frame{Dst: 1, Header: make([]byte, 96), Payload: make([]byte, 4096)}
	run := func() {
		got.Store(0)
		for range 50 {
			l.Send(&f)
		}
		for got.Load() < 50 {
		}
	}
	run()
	if n := testing.AllocsPerRun(50, run); n > 0 {
		t.Fatalf("%v allocations for 50 frames", n)
	}
}

func BenchmarkSend(b *testing.B) {
	for _, size := range []int{64, 256 << 10} {
		name := "64B"
		if size > 64 {
			name = "256KiB"
		}
		b.Run(name, func(b *testing.B) {
			done := make(chan struct{})
			room := make(chan struct{}, 1)
			n := 0
			l := open(b, Options{Self: 1, Lanes: 1, Receiver: &receiver{
				receive: func(f *fabric.Frame) {
					if n++; n == b.N {
						close(done)
					}
				},
				writable: func(uint32, uint8) {
					select {
					case room <- struct{}{}:
					default:
					}
				},
			}})
			defer l.Close()
			f := fabric.Frame{Dst: 1, Payload: make([]byte, size)}
			b.ReportAllocs()
			for range b.N {
				for l.Send(&f) == fabric.Full {
					<-room
				}
			}
			<-done
		})
	}
}

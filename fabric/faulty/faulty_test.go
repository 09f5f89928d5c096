// SPDX-License-Identifier: Apache-2.0

package faulty

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/loopback"
)

// log is an upper side that writes down what arrives.
type log struct {
	mu       sync.Mutex
	got      map[uint32][]int
	writable atomic.Int32
}

func (r *log) Receive(f *fabric.Frame) {
	r.mu.Lock()
	r.got[f.Flow] = append(r.got[f.Flow], int(f.Header[0])<<8|int(f.Header[1]))
	r.mu.Unlock()
	f.Release()
}

func (r *log) Writable(uint32, uint8) { r.writable.Add(1) }

func (r *log) flow(n uint32) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got[n])
}

type owner struct{ n atomic.Int32 }

func (o *owner) Release() { o.n.Add(1) }

func open(t *testing.T, o Options) (*Link, *log) {
	t.Helper()
	r := &log{got: map[uint32][]int{}}
	o.Receiver = r
	l := New(o)
	inner, err := loopback.New(loopback.Options{Self: 1, Receiver: l.Upper()})
	if err != nil {
		t.Fatal(err)
	}
	l.Attach(inner)
	return l, r
}

func send(t *testing.T, l *Link, flow uint32, n int, o *owner) {
	t.Helper()
	for i := range n {
		f := fabric.Frame{Dst: 1, Flow: flow, Header: []byte{byte(i >> 8), byte(i)}, Owner: o}
		if v := l.Send(&f); v != fabric.Sent {
			t.Fatalf("frame %d: %v", i, v)
		}
	}
}

func TestFaults_StrikeAsOftenAsAskedAndReleaseOnce(t *testing.T) {
	const n = 2000
	for name, f := range map[string]Faults{
		"drop":      {Drop: 0.1},
		"duplicate": {Duplicate: 0.1},
		"reorder":   {Reorder: 0.1, Overtake: 3},
		"delay":     {Delay: 0.1, DelayFor: time.Second},
		"all":       {Drop: 0.1, Duplicate: 0.1, Reorder: 0.1, Delay: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, r := open(t, Options{Seed: 42, Faults: f})
				var o owner
				send(t, l, 5, n, &o)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				c := l.Counts()
				got := r.flow(5)
				if want := n - int(c.Dropped) + int(c.Duplicated); len(got) != want {
					t.Errorf("%d frames arrived, want %d: %+v", len(got), want, c)
				}
				for _, x := range []struct {
					p float64
					n uint64
				}{{f.Drop, c.Dropped}, {f.Duplicate, c.Duplicated}, {f.Reorder, c.Reordered}, {f.Delay, c.Delayed}} {
					if lo, hi := x.p*n*0.7, x.p*n*1.3; float64(x.n) < lo || float64(x.n) > hi {
						t.Errorf("%d faults where %.0f were asked for", x.n, x.p*n)
					}
				}
				inOrder := slices.IsSorted(got)
				if moved := f.Reorder+f.Delay > 0; moved == inOrder {
					t.Errorf("in order: %v", inOrder)
				}
				if o.n.Load() != n {
					t.Errorf("%d releases for %d frames", o.n.Load(), n)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSeed_MakesTheSameFaultsWhateverTheGoroutines(t *testing.T) {
	run := func(seed uint64) string {
		out := ""
		synctest.Test(t, func(t *testing.T) {
			l, r := open(t, Options{Seed: seed, Faults: Faults{Drop: 0.3}})
			var wg sync.WaitGroup
			for flow := range uint32(8) {
				wg.Go(func() { send(t, l, flow, 200, new(owner)) })
			}
			wg.Wait()
			synctest.Wait()
			_ = l.Close()
			for flow := range uint32(8) {
				out += fmt.Sprintln(flow, r.flow(flow))
			}
		})
		return out
	}
	a, b, c := run(1), run(1), run(2)
	if a != b {
		t.Error("the same seed made different faults")
	}
	if a == c {
		t.Error("another seed made the same faults")
	}
}

func TestReorder_IsBoundedInTimeWhenNothingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := open(t, Options{Faults: Faults{Reorder: 1, HoldFor: 10 * time.Millisecond}})
		send(t, l, 1, 1, &owner{})
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if got := r.flow(1); len(got) != 0 {
			t.Fatal("not held")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := r.flow(1); len(got) != 1 {
			t.Fatal("held for too long")
		}
		_ = l.Close()
	})
}

func TestCut_LosesEverythingUntilItHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := open(t, Options{})
		var o owner
		l.Cut(true)
		send(t, l, 1, 10, &o)
		l.Cut(false)
		send(t, l, 1, 3, &o)
		synctest.Wait()
		if got := r.flow(1); len(got) != 3 || l.Counts().Cut != 10 || o.n.Load() != 13 {
			t.Fatalf("%d arrived, %d cut, %d released", len(got), l.Counts().Cut, o.n.Load())
		}
		_ = l.Close()
	})
}

// full is an inner link without room until it is opened.
type full struct {
	open atomic.Bool
	got  []fabric.Frame
}

func (f *full) Send(fr *fabric.Frame) fabric.Verdict {
	if !f.open.Load() {
		return fabric.Full
	}
	f.got = append(f.got, *fr)
	return fabric.Sent
}

func (f *full) Close() error { return nil }

func TestFull_IsPassedOnAndHeldFramesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &log{got: map[uint32][]int{}}
		l := New(Options{Receiver: r})
		inner := &full{}
		l.Attach(inner)
		f := fabric.Frame{Dst: 1, Flow: 1, Header: []byte{0, 1}}
		if v := l.Send(&f); v != fabric.Full {
			t.Fatalf("a full link: %v", v)
		}
		l.Set(Faults{Delay: 1})
		if v := l.Send(&f); v != fabric.Sent {
			t.Fatalf("a held frame: %v", v)
		}
		time.Sleep(time.Second)
		inner.open.Store(true)
		l.Upper().Writable(1, 0)
		synctest.Wait()
		if len(inner.got) != 1 || r.writable.Load() != 1 {
			t.Fatalf("%d frames forwarded, told of room %d times", len(inner.got), r.writable.Load())
		}
		_ = l.Close()
		var o owner
		if v := l.Send(&fabric.Frame{Owner: &o}); v != fabric.Dropped || o.n.Load() != 1 {
			t.Fatalf("a closed link: %v", v)
		}
	})
}

func TestClose_ReleasesWhatIsHeld(t *testing.T) {
	l, _ := open(t, Options{Faults: Faults{Delay: 1, DelayFor: time.Hour}})
	var o owner
	send(t, l, 1, 7, &o)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if o.n.Load() != 7 {
		t.Fatalf("%d of 7 released", o.n.Load())
	}
}

func TestObserve_SeesBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, in atomic.Int32
		l, _ := open(t, Options{Faults: Faults{Drop: 0.5}, Observe: func(d Direction, f *fabric.Frame) {
			if d == Outgoing {
				out.Add(1)
			} else {
				in.Add(1)
			}
		}})
		send(t, l, 1, 100, &owner{})
		synctest.Wait()
		if out.Load() != 100 || uint64(in.Load()) != l.Counts().Passed {
			t.Fatalf("saw %d out and %d in, %+v", out.Load(), in.Load(), l.Counts())
		}
		_ = l.Close()
	})
}

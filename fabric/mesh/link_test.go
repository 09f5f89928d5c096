// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
)

func TestSend_MakesTheLinkFromEitherSideAndServesTheOwnNode(t *testing.T) {
	for _, first := range []uint32{1, 2} {
		t.Run(fmt.Sprint("node ", first, " first"), func(t *testing.T) {
			b := newBed(t)
			r1, c1 := words()
			r2, c2 := words()
			l := []*Link{nil, b.node(1, r1, nil), b.node(2, r2, nil)}
			c := []chan string{nil, c1, c2}
			other := 3 - first
			say(t, l[first], other, 7, "hello")
			expect(t, c[other], "hello")
			say(t, l[other], first, 7, "back")
			expect(t, c[first], "back")
			say(t, l[first], first, 7, "self")
			expect(t, c[first], "self")
			await(t, "four lanes", func() bool { return to(l[1], 2).Lanes == 4 && to(l[2], 1).Lanes == 4 })
			counted(t, l[first], other, func(s *fabric.PeerStats) bool {
				return s.State == fabric.PeerUp && s.TxFrames == 1 && s.RxFrames == 1
			})
		})
	}
}

func TestP1_SendFromBothSidesAtOnceMakesOneLink(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			r1, c1 := words()
			r2, c2 := words()
			l1, l2 := b.node(1, r1, nil), b.node(2, r2, nil)
			var wg sync.WaitGroup
			for flow := range uint32(8) {
				wg.Go(func() { say(t, l1, 2, flow, "to 2") })
				wg.Go(func() { say(t, l2, 1, flow, "to 1") })
			}
			wg.Wait()
			for range 8 {
				expect(t, c2, "to 2")
				expect(t, c1, "to 1")
			}
			synctest.Wait()
			for _, l := range []*Link{l1, l2} {
				if s := to(l, 3-l.opts.Self); s.Lanes != 4 || s.Reconnects != 0 {
					t.Errorf("node %d has %d lanes, %d reconnects", l.opts.Self, s.Lanes, s.Reconnects)
				}
			}
			// Four lanes and what node 2 asked with.
			if n := b.mem.dialed(); n > 4+2 {
				t.Errorf("%d connections were dialed", n)
			}
			_, _ = l1.Close(), l2.Close()
		})
	}
}

func TestConnect_MakesTheLinkWithoutAFrame(t *testing.T) {
	for _, from := range []uint32{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			l := []*Link{nil, b.node(1, &station{}, nil), b.node(2, &station{}, nil)}
			if err := l[from].Connect(3 - from); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if to(l[1], 2).Lanes != 4 || to(l[2], 1).Lanes != 4 {
				t.Errorf("from node %d: %+v", from, to(l[2], 1))
			}
			if err := l[from].Connect(9); err == nil {
				t.Error("connected to a node that does not exist")
			}
			_, _ = l[1].Close(), l[2].Close()
		})
	}
}

func TestLanes_FollowTheDialer(t *testing.T) {
	for _, lanes := range [][2]int{{1, 4}, {4, 1}, {7, 2}} {
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			r1, c1 := words()
			r2, c2 := words()
			l1 := b.node(1, r1, func(o *Options) { o.Lanes = lanes[0] })
			l2 := b.node(2, r2, func(o *Options) { o.Lanes = lanes[1] })
			// Node 2 queues on its own number of lanes before it knows better.
			for i := range 100 {
				say(t, l2, 1, 5, fmt.Sprint(i))
			}
			for i := range 100 {
				expect(t, c1, fmt.Sprint(i))
			}
			say(t, l1, 2, 5, "back")
			expect(t, c2, "back")
			synctest.Wait()
			if a, b := to(l1, 2).Lanes, to(l2, 1).Lanes; a != lanes[0] || b != lanes[0] {
				t.Errorf("lanes %v became %d and %d", lanes, a, b)
			}
			_, _ = l1.Close(), l2.Close()
		})
	}
}

func TestSend_RefusesWhatHasNoRouteOrNoSense(t *testing.T) {
	b := newBed(t)
	l := b.node(1, &station{}, nil)
	b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: 2, Address: "127.0.0.1:1"}}})
	var book ledger
	if v := l.Send(&fabric.Frame{Dst: 9, Owner: book.owner(t)}); v != fabric.NoRoute {
		t.Errorf("an unknown node: %v", v)
	}
	if v := l.Send(&fabric.Frame{Dst: 2, Payload: make([]byte, fabric.MaxChunk+1), Owner: book.owner(t)}); v != fabric.Dropped {
		t.Errorf("a payload too long: %v", v)
	}
	if v := l.Send(&fabric.Frame{Dst: 2, Class: 77, Owner: book.owner(t)}); v != fabric.Dropped {
		t.Errorf("an unknown class: %v", v)
	}
	book.check(t)
	if l.NoRoute() != 1 || to(l, 2).Drops[fabric.DropInvalid] != 2 {
		t.Errorf("no route %d, drops %v", l.NoRoute(), to(l, 2).Drops)
	}
}

func TestNew_RefusesBadOptions(t *testing.T) {
	good := func() Options {
		return Options{Self: 1, Directory: directory.New(), Receiver: &station{}, Insecure: true}
	}
	for want, spoil := range map[string]func(*Options){
		"no directory":                 func(o *Options) { o.Directory = nil },
		"no receiver":                  func(o *Options) { o.Receiver = nil },
		"neither credentials":          func(o *Options) { o.Insecure = false },
		"17 lanes":                     func(o *Options) { o.Lanes = 17 },
		"group limit":                  func(o *Options) { o.Limits.Group = 1 },
		"window of 1000 bytes":         func(o *Options) { o.Window = 1000 },
		"ping every 2s, dead after 1s": func(o *Options) { o.Timing.DeadAfter = time.Second },
	} {
		o := good()
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	l, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
}

func TestPing_MeasuresTheRoundTrip(t *testing.T) {
	b := newBed(t)
	fast := func(o *Options) { o.Timing.Ping = 20 * time.Millisecond; o.Timing.DeadAfter = patience }
	l1, l2 := b.node(1, &station{}, fast), b.node(2, &station{}, fast)
	say(t, l1, 2, 1, "x")
	await(t, "both round trip times", func() bool { return to(l1, 2).RTT > 0 && to(l2, 1).RTT > 0 })
	if rtt := to(l1, 2).RTT; rtt > patience {
		t.Errorf("a round trip of %v", rtt)
	}
	if s := to(l1, 2); s.TxFrames != 1 || s.TxBytes != 1 {
		t.Errorf("pings count as frames: %+v", s)
	}
}

func TestPing_IdleLinkStaysUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		l1, l2 := b.node(1, &station{}, nil), b.node(2, &station{}, nil)
		say(t, l1, 2, 1, "x")
		time.Sleep(10 * time.Minute)
		for _, l := range []*Link{l1, l2} {
			if s := to(l, 3-l.opts.Self); s.Lanes != 4 || s.Reconnects != 0 || len(b.seen(LinkDown)) != 0 {
				t.Errorf("after ten minutes: %+v", s)
			}
		}
		_, _ = l1.Close(), l2.Close()
	})
}

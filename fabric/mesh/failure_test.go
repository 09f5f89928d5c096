// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
)

func TestP4_OrderHoldsWhenACutLinkComesBack(t *testing.T) {
	b := newBed(t)
	var mu sync.Mutex
	var raw []net.Conn
	keep := func(o *Options) {
		var d net.Dialer
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				mu.Lock()
				raw = append(raw, c)
				mu.Unlock()
			}
			return c, err
		}
	}
	c1, c2 := newChecker(t), newChecker(t)
	c1.gaps, c2.gaps = true, true
	l1, l2 := b.node(1, c1, keep), b.node(2, c2, keep)
	var book ledger
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sent atomic.Int64
	for flow := range uint32(6) {
		for _, way := range []struct {
			l   *Link
			dst uint32
			c   *checker
		}{{l1, 2, c1}, {l2, 1, c2}} {
			wg.Go(func() {
				for n := uint64(0); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					f := numbered(way.dst, flow, n, make([]byte, rand.IntN(8000)))
					e := book.owner(t)
					f.Owner = e
					switch v := way.l.Send(&f); v {
					case fabric.Sent:
						sent.Add(1)
					case fabric.Full:
						e.take()
						time.Sleep(time.Millisecond)
					default:
						t.Errorf("flow %d frame %d: %v", flow, n, v)
						return
					}
				}
			})
		}
	}
	for cut := range 6 {
		await(t, "four lanes", func() bool { return to(l1, 2).Lanes == 4 && to(l2, 1).Lanes == 4 })
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		for i, c := range raw {
			if cut%2 == 0 || i%2 == 0 {
				_ = c.Close()
			}
		}
		raw = raw[:0]
		mu.Unlock()
		got := c1.got.Load() + c2.got.Load()
		await(t, "traffic after the cut", func() bool { return c1.got.Load()+c2.got.Load() > got+100 })
	}
	close(stop)
	wg.Wait()
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
	counted(t, l1, 2, func(s *fabric.PeerStats) bool { return s.Reconnects >= 6 && s.LastError != "" })
	if got := c1.got.Load() + c2.got.Load(); got > sent.Load() {
		t.Errorf("%d frames sent, %d arrived", sent.Load(), got)
	}
}

// While a peer cannot be reached frames are dropped and counted, never held for
// ever; whoever was pushed back hears of room; the link is made once the peer
// is there.
func TestP1_AnUnreachablePeerIsTriedUntilItComesUp(t *testing.T) {
	for _, self := range []uint32{1, 3} { // node 2 is asked, or dialed
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			var rooms atomic.Int64
			r, _ := words()
			r.writable = func(uint32, uint8) { rooms.Add(1) }
			gate := make(chan struct{}) // holds the first attempt until all is queued
			l := b.node(self, r, func(o *Options) {
				dial := o.Dial
				o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
					<-gate
					return dial(ctx, address)
				}
			})
			b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: 2, Address: "elsewhere"}}})
			var book ledger
			chunk := make([]byte, fabric.MaxChunk)
			sent, full := 0, 0
			for range 20 {
				e := book.owner(t)
				switch v := l.Send(&fabric.Frame{Dst: 2, Flow: 1, Payload: chunk, Owner: e}); v {
				case fabric.Sent:
					sent++
				case fabric.Full:
					full++
					e.take()
				default:
					t.Fatal(v)
				}
			}
			close(gate)
			synctest.Wait()
			book.check(t)
			s := to(l, 2)
			if full == 0 || rooms.Load() == 0 || s.Drops[fabric.DropLinkDown] != uint64(sent) || s.State != fabric.PeerBackoff {
				t.Errorf("sent %d, full %d, told of room %d times, %+v", sent, full, rooms.Load(), s)
			}
			if !strings.Contains(s.LastError, "elsewhere") || !strings.Contains(s.LastError, errRefused.Error()) {
				t.Errorf("the error names neither address nor cause: %s", s.LastError)
			}
			// A minute of demand makes few attempts: the pause grows.
			before := b.mem.dialed()
			for range 600 {
				l.Send(&fabric.Frame{Dst: 2, Flow: 1, Payload: chunk[:100], Owner: book.owner(t)})
				time.Sleep(100 * time.Millisecond)
			}
			if n := b.mem.dialed() - before; n < 8 || n > 40 {
				t.Errorf("%d attempts in a minute", n)
			}
			if n := len(b.seen(ConnectFailed)); n < 8 {
				t.Errorf("%d failures told", n)
			}

			// Now it is there, and a change in the directory ends the pause.
			r2, c2 := words()
			l2 := b.node(2, r2, nil)
			time.Sleep(10 * time.Millisecond)
			for !func() bool { return to(l, 2).State == fabric.PeerUp }() {
				say(t, l, 2, 1, "x")
				time.Sleep(10 * time.Millisecond)
			}
			say(t, l, 2, 1, "there")
			for got := range c2 {
				if got == "there" {
					break
				}
			}
			_, _ = l.Close(), l2.Close()
			book.check(t)
		})
	}
}

// A cable that is cut silently is noticed by both ends within seconds.
func TestSilence_CutsTheLinkOnBothSidesWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		r2, c2 := words()
		l1, l2 := b.node(1, &station{}, nil), b.node(2, r2, nil)
		say(t, l1, 2, 1, "x")
		expect(t, c2, "x")
		time.Sleep(time.Second)
		synctest.Wait()
		var book ledger
		b.mem.freeze()
		b.mem.refuse(true)
		for range 100 {
			l1.Send(&fabric.Frame{Dst: 2, Flow: 1, Payload: make([]byte, 5000), Owner: book.owner(t)})
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := len(b.seen(LinkDown)); n != 2 {
			t.Errorf("%d ends noticed: %v", n, b.seen(LinkDown))
		}
		// Once the network is back, so is the link.
		b.mem.refuse(false)
		time.Sleep(6 * time.Second)
		say(t, l1, 2, 1, "again")
		for {
			if got := <-c2; got == "again" {
				break
			}
		}
		_, _ = l1.Close(), l2.Close()
		book.check(t)
	})
}

// A process that was stopped does not blame its peers for the silence.
func TestSilence_ProvesNothingWhenThisProcessDidNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		l1, l2 := b.node(1, &station{}, nil), b.node(2, &station{}, nil)
		say(t, l1, 2, 1, "x")
		synctest.Wait()
		c := (*peerOf(l1, 2).lanes.Load())[0].current()
		for range 10 {
			c.check(l1.now(), true)
		}
		if c.silent != 0 {
			t.Errorf("silent %d after late pulses", c.silent)
		}
		for range 2 {
			c.check(l1.now(), false)
		}
		if c.silent == 0 {
			t.Error("not silent after pulses in time")
		}
		_, _ = l1.Close(), l2.Close()
	})
}

func peerOf(l *Link, node uint32) *peer { return (*l.peers.Load())[node] }

func TestHello_WrongNodeOrInstanceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *directory.Node)
		want   string
	}{
		"another node at the address": {func(n *directory.Node) { n.ID = 2 }, "node 1 means node 2, but this is node 3"},
		"another process of the node": {func(n *directory.Node) { n.Instance = [16]byte{9} }, "is instance 03010000000000000000000000000000, but the directory knows 09"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newMemBed(t)
				l1 := b.node(1, &station{}, nil)
				l3 := b.node(3, &station{receive: func(*fabric.Frame) { t.Error("a frame came through") }}, nil)
				n, _ := b.dir.Node(3)
				c.change(&n)
				b.dir.Apply(directory.Change{Nodes: []directory.Node{n}})
				var book ledger
				if v := l1.Send(&fabric.Frame{Dst: n.ID, Payload: []byte("x"), Owner: book.owner(t)}); v != fabric.Sent {
					t.Fatal(v)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				s := to(l1, n.ID)
				if !strings.Contains(s.LastError, c.want) {
					t.Errorf("refused with %q, want %q", s.LastError, c.want)
				}
				if s.State == fabric.PeerUp || s.ConnectFailures == 0 {
					t.Errorf("stats %+v", s)
				}
				_, _ = l1.Close(), l3.Close()
				book.check(t)
			})
		})
	}
}

func TestHello_NoCommonVersionNamesBothRangesOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		l1 := b.node(1, &station{}, func(o *Options) { o.versions = [2]uint16{3, 4} })
		l2 := b.node(2, &station{}, nil)
		say(t, l1, 2, 1, "x")
		time.Sleep(time.Second)
		synctest.Wait()
		refused := b.seen(Refused)
		if len(refused) == 0 {
			t.Fatal("nothing was refused")
		}
		for side, text := range map[string]string{"dialer": to(l1, 2).LastError, "acceptor": refused[0].Err.Error()} {
			if !strings.Contains(text, "3-4") || !strings.Contains(text, "1-1") {
				t.Errorf("%s: %q does not name both ranges", side, text)
			}
		}
		if refused[0].Node != 1 {
			t.Errorf("refused node %d", refused[0].Node)
		}
		_, _ = l1.Close(), l2.Close()
	})
}

func TestHello_UnknownNodeIsRefusedUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		own := directory.New()
		r2, c2 := words()
		l2 := b.node(2, r2, func(o *Options) { o.Directory = own })
		l1 := b.node(1, &station{}, nil)
		_ = l1.Connect(2)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := to(l1, 2); !strings.Contains(s.LastError, "node 2 does not know node 1") {
			t.Errorf("last error %q", s.LastError)
		}
		n, _ := b.dir.Node(1)
		own.Apply(directory.Change{Nodes: []directory.Node{n}})
		time.Sleep(6 * time.Second)
		say(t, l1, 2, 1, "known")
		expect(t, c2, "known")
		_, _ = l1.Close(), l2.Close()
	})
}

func TestRestart_NewProcessOfAPeerTakesOver(t *testing.T) {
	for _, restarted := range []uint32{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			other := 3 - restarted
			r, c := words()
			stays := b.node(other, r, nil)
			old := b.node(restarted, &station{}, nil)
			say(t, old, other, 1, "old")
			expect(t, c, "old")
			// The old process dies without a word; the new one has other lanes.
			b.mem.freeze()
			fresh := b.node(restarted, &station{}, func(o *Options) { o.Instance = [16]byte{byte(restarted), 2}; o.Lanes = 2 })
			say(t, fresh, other, 1, "new")
			expect(t, c, "new")
			r2, c2 := words()
			fresh.opts.Receiver.(*station).receive = r2.receive
			say(t, stays, restarted, 1, "answer")
			expect(t, c2, "answer")
			_, _, _ = stays.Close(), old.Close(), fresh.Close()
		})
	}
}

func TestDirectory_RemovedPeerLosesItsLinkAndFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		r2, c2 := words()
		l1, l2 := b.node(1, &station{}, nil), b.node(2, r2, nil)
		say(t, l1, 2, 1, "x")
		expect(t, c2, "x")
		b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: 5, Address: "nowhere"}}})
		b.dir.Apply(directory.Change{GoneNodes: []uint32{2, 5}})
		time.Sleep(time.Second)
		synctest.Wait()
		var book ledger
		if v := l1.Send(&fabric.Frame{Dst: 2, Owner: book.owner(t)}); v != fabric.NoRoute {
			t.Errorf("a removed node: %v", v)
		}
		book.check(t)
		if n := len(l1.Stats()); n != 1 {
			t.Errorf("%d peers left", n-1)
		}
		if to(l2, 1).Lanes != 0 {
			t.Error("the removed node still has its link")
		}
		_, _ = l1.Close(), l2.Close()
	})
}

func TestClose_SendsWhatIsQueuedAndReleasesTheRest(t *testing.T) {
	b := newBed(t)
	var got atomic.Int64
	l1 := b.node(1, &station{}, func(o *Options) { o.Timing.Linger = patience })
	b.node(2, &station{receive: func(f *fabric.Frame) { got.Add(1); f.Release() }}, nil)
	b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: 3, Address: "127.0.0.1:1"}}})
	say(t, l1, 2, 0, "x")
	await(t, "the link", func() bool { return to(l1, 2).Lanes == 4 && got.Load() == 1 })
	var book ledger
	sent := int64(1)
	for i := range uint32(2000) {
		e := book.owner(t)
		if l1.Send(&fabric.Frame{Dst: 2, Flow: i, Payload: make([]byte, 3000), Owner: e}) == fabric.Sent {
			sent++
		} else {
			e.take()
		}
		l1.Send(&fabric.Frame{Dst: 3, Flow: i, Class: fabric.Datagram, Owner: book.owner(t)})
		l1.Send(&fabric.Frame{Dst: 1, Flow: i, Class: fabric.Datagram, Owner: book.owner(t)})
	}
	if err := l1.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "what was queued", func() bool { return got.Load() == sent })
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
	for _, dst := range []uint32{1, 2, 3, 4} {
		v := l1.Send(&fabric.Frame{Dst: dst, Owner: book.owner(t)})
		if v != fabric.Dropped && v != fabric.NoRoute {
			t.Errorf("node %d after Close: %v", dst, v)
		}
	}
	book.check(t)
}

// A peer that reads nothing more costs Close no more than it is ready to wait.
func TestClose_DoesNotWaitForADeadPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		r2, c2 := words()
		l1, l2 := b.node(1, &station{}, nil), b.node(2, r2, nil)
		say(t, l1, 2, 1, "x")
		expect(t, c2, "x")
		synctest.Wait()
		b.mem.freeze()
		var book ledger
		for i := range uint32(100) {
			e := book.owner(t)
			if l1.Send(&fabric.Frame{Dst: 2, Flow: i, Payload: make([]byte, 200<<10), Owner: e}) == fabric.Full {
				e.take()
			}
		}
		start := time.Now()
		_ = l1.Close()
		if d, most := time.Since(start), l1.opts.Timing.Linger+2*burial; d > most {
			t.Errorf("Close took %v, want at most %v", d, most)
		}
		_ = l2.Close()
		book.check(t)
	})
}

func TestClose_LeaksNoGoroutineWithADeadPeer(t *testing.T) {
	before := runtime.NumGoroutine()
	b := newBed(t)
	gate := make(chan struct{})
	l1 := b.node(1, &station{}, nil)
	l2 := b.node(2, &station{receive: func(f *fabric.Frame) { <-gate; f.Release() }}, nil)
	var book ledger
	for i := range uint32(300) {
		e := book.owner(t)
		if l1.Send(&fabric.Frame{Dst: 2, Flow: i, Payload: make([]byte, 200<<10), Owner: e}) == fabric.Full {
			e.take()
		}
	}
	await(t, "the link", func() bool { return to(l1, 2).Lanes == 4 })
	_ = l1.Close() // the peer does not read before it has returned
	close(gate)
	_ = l2.Close()
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
	await(t, "goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

func TestBackoff_DoublesWithJitterUpToItsBound(t *testing.T) {
	b := backoff{least: 100, most: 1000}
	for _, nominal := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if d := b.next(); d < nominal/2 || d > nominal {
			t.Errorf("a pause of %d where %d is the nominal one", d, nominal)
		}
	}
	b.reset()
	if d := b.next(); d > 100 {
		t.Errorf("a pause of %d after reset", d)
	}
}

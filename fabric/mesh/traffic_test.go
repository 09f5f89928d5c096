// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/queue"
)

// checker is a receiver that checks numbered frames: header = number, length
// and CRC of the payload.
type checker struct {
	t    testing.TB
	gaps bool // frames may be missing
	slow func()
	mu   sync.Mutex
	next map[[2]uint32]uint64
	got  atomic.Int64
	room chan struct{} // closed and replaced when there is room; guarded by mu
}

func newChecker(t testing.TB) *checker {
	return &checker{t: t, next: map[[2]uint32]uint64{}, room: make(chan struct{})}
}

func (c *checker) Receive(f *fabric.Frame) {
	n := binary.BigEndian.Uint64(f.Header)
	if int(binary.BigEndian.Uint32(f.Header[8:])) != len(f.Payload) || binary.BigEndian.Uint32(f.Header[12:]) != crc32.ChecksumIEEE(f.Payload) {
		c.t.Errorf("flow %d frame %d: the payload is damaged", f.Flow, n)
	}
	k := [2]uint32{f.Src, f.Flow}
	c.mu.Lock()
	due := c.next[k]
	if n < due || n > due && !c.gaps {
		c.t.Errorf("from node %d flow %d: frame %d where %d was due", f.Src, f.Flow, n, due)
	}
	c.next[k] = n + 1
	c.mu.Unlock()
	if c.slow != nil {
		c.slow()
	}
	f.Release()
	c.got.Add(1)
}

func (c *checker) Writable(uint32, uint8) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.room)
	c.room = make(chan struct{})
}

func (c *checker) nextRoom() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room
}

// numbered makes the next frame for a checker.
func numbered(dst, flow uint32, n uint64, payload []byte) fabric.Frame {
	h := binary.BigEndian.AppendUint64(nil, n)
	h = binary.BigEndian.AppendUint32(h, uint32(len(payload)))
	h = binary.BigEndian.AppendUint32(h, crc32.ChecksumIEEE(payload))
	return fabric.Frame{Dst: dst, Flow: flow, Header: h, Payload: payload}
}

// pour sends frames of one flow as fast as the link takes them.
func pour(t testing.TB, l *Link, c *checker, book *ledger, dst, flow uint32, frames int, size func() int) {
	r := rand.New(rand.NewPCG(uint64(flow), 1))
	for n := range frames {
		payload := make([]byte, size())
		for i := 0; i < len(payload); i += 1 + len(payload)/64 {
			payload[i] = byte(r.Uint32())
		}
		f := numbered(dst, flow, uint64(n), payload)
		e := book.owner(t)
		e.payload = payload
		f.Owner = e
		for {
			room := c.nextRoom()
			v := l.Send(&f)
			if v == fabric.Sent {
				break
			}
			if v != fabric.Full {
				t.Errorf("flow %d frame %d: %v", flow, n, v)
				return
			}
			select {
			case <-room:
			case <-time.After(patience):
				t.Errorf("flow %d frame %d: full, and no word of room", flow, n)
				e.take()
				return
			}
		}
	}
}

// Both sides send at full speed to slow receivers over several lanes: every
// flow arrives whole and in order although its memory is used again as soon as
// it is released, nothing deadlocks, every owner is released.
func TestP6_TrafficBothWaysAtFullSpeedKeepsOrder(t *testing.T) {
	t.Run("plain", func(t *testing.T) { bothWays(t, nil, nil) })
	t.Run("smallest window", func(t *testing.T) {
		small := func(o *Options) { o.Window = minWindow }
		bothWays(t, small, small)
	})
	t.Run("tls", func(t *testing.T) {
		ca := newAuthority(t)
		secure := func(name string) func(*Options) {
			return func(o *Options) {
				o.Insecure = false
				o.ServerCredentials, o.ClientCredentials = ca.issue(t, name)
			}
		}
		bothWays(t, secure("node-1"), secure("node-2"))
	})
}

func bothWays(t *testing.T, change1, change2 func(*Options)) {
	b := newBed(t)
	c1, c2 := newChecker(t), newChecker(t)
	for _, c := range []*checker{c1, c2} {
		var n atomic.Int64
		c.slow = func() {
			if n.Add(1)%512 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	small := func(change func(*Options)) func(*Options) {
		return func(o *Options) {
			patient(o)
			o.Limits = queue.Limits{Group: 600 << 10, Reliable: 1 << 20}
			if change != nil {
				change(o)
			}
		}
	}
	l1, l2 := b.node(1, c1, small(change1)), b.node(2, c2, small(change2))
	connect(t, l1, l2)
	var book ledger
	var wg sync.WaitGroup
	const flows, frames = 12, 300
	for flow := range uint32(flows) {
		size := func() int { return rand.IntN(6000) }
		switch flow % 4 {
		case 0:
			size = func() int { return rand.IntN(fabric.MaxChunk + 1) }
		case 1:
			size = func() int { return rand.IntN(64) }
		}
		wg.Go(func() { pour(t, l1, c1, &book, 2, flow, frames, size) })
		wg.Go(func() { pour(t, l2, c2, &book, 1, flow, frames, size) })
	}
	wg.Wait()
	await(t, "all frames", func() bool { return c1.got.Load() == flows*frames && c2.got.Load() == flows*frames || t.Failed() })
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
	counted(t, l1, 2, func(s *fabric.PeerStats) bool {
		return s.TxFrames == flows*frames && s.RxFrames == flows*frames && s.TxMessages < s.TxFrames
	})
	// Slow receivers make gRPC cut messages, which copies them: how many is told, not judged.
	s := to(l1, 2)
	t.Logf("full %d, frames per message %.1f, copied messages %d of %d", s.Full, float64(s.TxFrames)/float64(s.TxMessages), s.RxCopies, s.RxMessages)
}

func TestTraffic_ManyNodes(t *testing.T) {
	const nodes, flows, frames = 5, 3, 60
	b := newBed(t)
	var ls [nodes + 1]*Link
	var cs [nodes + 1]*checker
	for id := uint32(1); id <= nodes; id++ {
		cs[id] = newChecker(t)
		ls[id] = b.node(id, cs[id], patient)
	}
	connect(t, ls[1:]...)
	var book ledger
	var wg sync.WaitGroup
	for from := 1; from <= nodes; from++ {
		for to := uint32(1); to <= nodes; to++ {
			for flow := range uint32(flows) {
				wg.Go(func() { pour(t, ls[from], cs[from], &book, to, flow, frames, func() int { return rand.IntN(20000) }) })
			}
		}
	}
	wg.Wait()
	for id := 1; id <= nodes; id++ {
		await(t, fmt.Sprint("all frames of node ", id), func() bool { return cs[id].got.Load() == nodes*flows*frames || t.Failed() })
	}
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
}

// A receiver that stands still costs bounded memory: reliable senders are
// pushed back, lossy frames are dropped, and all goes on when it moves again.
func TestP5_BackPressureBoundsMemoryAndEnds(t *testing.T) {
	b := newBed(t)
	gate := make(chan struct{})
	var got, lossy atomic.Int64
	stuck := &station{receive: func(f *fabric.Frame) {
		<-gate
		if f.Class.Lossy() {
			lossy.Add(1)
		} else {
			got.Add(1)
		}
		f.Release()
	}}
	room := make(chan uint8, 10000)
	l1 := b.node(1, &station{writable: func(dst uint32, group uint8) {
		if dst != 2 {
			t.Errorf("room to node %d", dst)
		}
		room <- group
	}}, func(o *Options) { o.Lanes = 2; patient(o) })
	connect(t, l1, b.node(2, stuck, patient))

	var book ledger
	chunk := make([]byte, fabric.MaxChunk)
	sent, full := 0, map[uint8]bool{}
	deadline := time.Now().Add(patience)
	const flows = 40
	for quiet := 0; quiet < 200; {
		quiet++
		for flow := range uint32(flows) {
			e := book.owner(t)
			switch v := l1.Send(&fabric.Frame{Dst: 2, Flow: flow, Payload: chunk, Owner: e}); v {
			case fabric.Sent:
				sent++
				quiet = 0
			case fabric.Full:
				e.take()
				full[fabric.Group(flow)] = true
			default:
				t.Fatal(v)
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("never full")
		}
		time.Sleep(time.Millisecond)
	}
	s := to(l1, 2)
	// Queues, batches with gRPC, windows, socket buffers.
	limits := l1.opts.Limits
	if most := uint64(2 * 2 * limits.Reliable); s.QueuedBytes > most {
		t.Errorf("%d bytes queued, at most %d may be", s.QueuedBytes, most)
	}
	if held := book.given.Load() - book.released.Load(); held*fabric.MaxChunk > int64(2*2*limits.Reliable+2*maxOutstanding*fabric.MaxChunk) {
		t.Errorf("%d payloads held", held)
	}
	dropped := 0
	for flow := range uint32(500) {
		e := book.owner(t)
		if v := l1.Send(&fabric.Frame{Dst: 2, Class: fabric.Datagram, Flow: 1000 + flow, Payload: chunk, Owner: e}); v == fabric.Dropped {
			dropped++
		} else if v != fabric.Sent {
			t.Fatalf("a datagram: %v", v)
		}
	}
	if dropped == 0 || to(l1, 2).Drops[fabric.DropQueueFull] != uint64(dropped) {
		t.Errorf("%d datagrams dropped, counted %d", dropped, to(l1, 2).Drops[fabric.DropQueueFull])
	}

	close(gate)
	await(t, "delivery", func() bool { return got.Load() == int64(sent) && lossy.Load() == int64(500-dropped) })
	told := map[uint8]bool{}
	await(t, "word of room for every group", func() bool {
		for {
			select {
			case g := <-room:
				told[g] = true
				continue
			default:
			}
			break
		}
		for g := range full {
			if !told[g] {
				return false
			}
		}
		return true
	})
	await(t, "all owners", func() bool { return book.given.Load() == book.released.Load() })
}

// A bulk flow on the same lane delays a small frame by about a chunk, not by
// what it has queued.
func TestP3_SmallFrameOvertakesABulkFlowOnTheSameLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemBed(t)
		var mu sync.Mutex
		var order []uint32
		gate := make(chan struct{})
		r := &station{receive: func(f *fabric.Frame) {
			<-gate
			mu.Lock()
			order = append(order, f.Flow)
			mu.Unlock()
			f.Release()
		}}
		l1 := b.node(1, &station{}, func(o *Options) { o.Lanes = 1 })
		l2 := b.node(2, r, nil)
		chunk := make([]byte, fabric.MaxChunk)
		bulk := 0
		for l1.Send(&fabric.Frame{Dst: 2, Flow: 1, Payload: chunk}) == fabric.Sent {
			bulk++
			time.Sleep(time.Millisecond)
		}
		if bulk < 5 {
			t.Fatalf("only %d chunks on their way", bulk)
		}
		synctest.Wait()
		queued := int(to(l1, 2).QueuedFrames)
		say(t, l1, 2, 2, "small")
		close(gate)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i, flow := range order {
			if flow == 2 {
				// What was with gRPC and the wire already, and one more.
				if ahead := bulk - queued; i > ahead+1 {
					t.Errorf("the small frame came after %d chunks, %d were under way when it was sent", i, ahead)
				}
				_, _ = l1.Close(), l2.Close()
				return
			}
		}
		t.Error("the small frame did not come")
	})
}

// Large frames arrive without an extra copy, and the steady state allocates
// per message, not per frame or byte.
func TestTraffic_LargeFramesAreNotCopied(t *testing.T) {
	b := newBed(t)
	done := make(chan struct{}, 1)
	var got atomic.Int64
	const n = 400
	l1 := b.node(1, &station{}, patient)
	l2 := b.node(2, &station{receive: func(f *fabric.Frame) {
		f.Release()
		if got.Add(1)%n == 0 {
			done <- struct{}{}
		}
	}}, patient)
	connect(t, l1, l2)
	header, chunk := make([]byte, 96), make([]byte, fabric.MaxChunk)
	run := func(size int) {
		for i := range n {
			f := fabric.Frame{Dst: 2, Flow: uint32(i % 3), Header: header, Payload: chunk[:size]}
			for l1.Send(&f) == fabric.Full {
				time.Sleep(100 * time.Microsecond)
			}
		}
		<-done
	}
	for _, size := range []int{fabric.MaxChunk, 64 << 10, 16<<10 - 100, 4096, 1025, 200} {
		// A receiver that falls behind makes gRPC cut messages where its window
		// ends, and those are copied: one series without that must be there.
		var copies, messages uint64
		for range 10 {
			before := to(l2, 1)
			run(size)
			after := to(l2, 1)
			copies, messages = after.RxCopies-before.RxCopies, after.RxMessages-before.RxMessages
			if copies*4 <= messages {
				break
			}
		}
		if copies*4 > messages {
			t.Errorf("%d bytes: %d of %d messages were copied in the last of ten series", size, copies, messages)
		}
	}
}

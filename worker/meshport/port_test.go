// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/fabric"
)

// office is the fabric and the manager of a test: ports by node, and who claims
// which address.
type office struct {
	mu      sync.Mutex
	ports   map[uint32]*Port
	claims  map[[6]byte]uint32
	absent  map[uint32]*Absent // nodes whose LIF is not on the mesh
	verdict fabric.Verdict
	sent    []string // "src>dst"
}

// link is the office as one node sees it.
type link struct {
	*office
	self uint32
}

type sentOwner struct{ done func() }

func (s sentOwner) Release() { s.done() }

func (l link) Send(f *fabric.Frame) fabric.Verdict {
	l.mu.Lock()
	l.sent = append(l.sent, fmt.Sprintf("%d>%d", l.self, f.Dst))
	v, to, absent := l.verdict, l.ports[f.Dst], l.absent[f.Dst]
	l.mu.Unlock()
	if v != fabric.Sent || to == nil && absent == nil {
		if v == fabric.Sent {
			v = fabric.NoRoute
		}
		if v != fabric.Full {
			f.Drop()
		}
		return v
	}
	in := fabric.Frame{
		Src: l.self, Dst: f.Dst, Class: f.Class, Flow: f.Flow,
		Header: bytes.Clone(f.Header), Payload: bytes.Clone(f.Payload),
	}
	f.Drop()
	if absent != nil {
		absent.Deliver(&in, link{l.office, f.Dst})
	} else {
		to.Deliver(&in)
	}
	return fabric.Sent
}

func (link) Close() error { return nil }

// log returns what was sent since the last call, sorted.
func (o *office) log() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sent
	o.sent = nil
	slices.Sort(s)
	return s
}

func mac(n byte) [6]byte { return [6]byte{2, 0, 0, 0, 0, n} }

// newOffice returns n ports, of the nodes 1 to n with the MAC addresses 1 to n,
// that are in the mesh. None of the addresses is claimed.
func newOffice(t testing.TB, n int) *office {
	t.Helper()
	o := &office{ports: map[uint32]*Port{}, claims: map[[6]byte]uint32{}}
	var all []uint32
	for i := 1; i <= n; i++ {
		all = append(all, uint32(i))
	}
	for i := range uint32(n) {
		node := i + 1
		p, err := New(Config{MAC: mac(byte(node)), Queues: 2, Owner: func(m [6]byte) (uint32, bool) {
			o.mu.Lock()
			defer o.mu.Unlock()
			owner, ok := o.claims[m]
			return owner, ok
		}})
		if err != nil {
			t.Fatal(err)
		}
		o.ports[node] = p
		p.SetPeers(all, all)
		p.Join(link{o, node}, node)
		t.Cleanup(func() { p.Close() })
	}
	return o
}

func frame(dst, src [6]byte, size int) []byte {
	f := append(append([]byte{}, dst[:]...), src[:]...)
	f = append(f, 0x88, 0xb5)
	for i := len(f); i < size; i++ {
		f = append(f, byte(i))
	}
	return f
}

var everybody = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// send sends and returns where copies went.
func (o *office) send(t testing.TB, node uint32, f []byte) []string {
	t.Helper()
	if err := o.ports[node].Send(0, f); err != nil {
		t.Fatalf("node %d: %v", node, err)
	}
	return o.log()
}

// take returns what waits at a port.
func take(t testing.TB, p *Port) (frames [][]byte) {
	t.Helper()
	b := netport.NewBatch(8, 0)
	for q := range p.Queues() {
		for p.queues[q].n > 0 {
			n, err := p.Receive(q, b)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				frames = append(frames, bytes.Clone(b.Frame(i)))
			}
			b.Done()
		}
	}
	return frames
}

func TestSend_FloodsUntilItLearnsAndThenSendsToOneNode(t *testing.T) {
	o := newOffice(t, 3)
	if got := o.send(t, 1, frame(mac(2), mac(1), 100)); !slices.Equal(got, []string{"1>2", "1>3"}) {
		t.Errorf("an unknown address goes to %v", got)
	}
	if got := o.send(t, 2, frame(mac(1), mac(2), 100)); !slices.Equal(got, []string{"2>1"}) {
		t.Errorf("the answer goes to %v", got)
	}
	if got := o.send(t, 1, frame(mac(2), mac(1), 100)); !slices.Equal(got, []string{"1>2"}) {
		t.Errorf("a learned address goes to %v", got)
	}
	for name, dst := range map[string][6]byte{"broadcast": everybody, "multicast": {0x33, 0x33, 0, 0, 0, 1}} {
		if got := o.send(t, 1, frame(dst, mac(1), 60)); !slices.Equal(got, []string{"1>2", "1>3"}) {
			t.Errorf("%s goes to %v", name, got)
		}
	}
}

// A worker whose LIF is on a TAP says so once, and is left alone for a minute.
func TestSend_FloodsOnlyNodesWithALIFOnTheMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 3)
		o.absent = map[uint32]*Absent{3: {}}
		all := []uint32{1, 2, 3}
		if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2", "1>3", "3>1"}) {
			t.Errorf("the first frame: %v", got)
		}
		for range 3 {
			if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2"}) {
				t.Errorf("a later frame: %v", got)
			}
		}
		if n := o.ports[1].Counters.RxAbsent.Load(); n != 1 || o.absent[3].Frames.Load() != 1 {
			t.Errorf("%d answers to %d frames", n, o.absent[3].Frames.Load())
		}
		time.Sleep(absence + time.Second)
		if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2", "1>3", "3>1"}) {
			t.Errorf("after a minute: %v", got)
		}
		// It starts anew, with its LIF on the mesh: the members change.
		o.absent = nil
		o.ports[1].SetPeers(all, all)
		if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2", "1>3"}) {
			t.Errorf("with a LIF: %v", got)
		}
		// Who sends is there, whatever it said.
		o.ports[1].Deliver(&fabric.Frame{Src: 3, Class: fabric.Ethernet, Header: noLIF[:]})
		if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2"}) {
			t.Errorf("said that it is absent: %v", got)
		}
		o.send(t, 3, frame(mac(1), mac(3), 60))
		if got := o.send(t, 1, frame(everybody, mac(1), 60)); !slices.Equal(got, []string{"1>2", "1>3"}) {
			t.Errorf("after a frame of it: %v", got)
		}
	})
}

// Two workers without a LIF on the mesh do not tell each other for ever, and one
// that is flooded does not answer as often.
func TestAbsent_SaysLittle(t *testing.T) {
	o := &office{absent: map[uint32]*Absent{1: {}, 2: {}}}
	var header [headerLen]byte
	encode(&header, &netport.Offload{})
	for range 10 * absentRate {
		o.absent[1].Deliver(&fabric.Frame{Src: 2, Header: header[:], Payload: frame(everybody, mac(2), 60)}, link{o, 1})
	}
	if n := len(o.log()); n < absentRate || n > 5*absentRate {
		t.Errorf("%d answers to %d frames", n, 10*absentRate)
	}
	o.absent[1].Deliver(&fabric.Frame{Src: 2, Header: header[:]}, nil) // in no mesh
}

func TestSend_FollowsClaimsBeforeWhatItLearned(t *testing.T) {
	o := newOffice(t, 3)
	o.send(t, 3, frame(everybody, mac(9), 60)) // 9 was seen behind node 3
	o.claims[mac(9)] = 2
	if got := o.send(t, 1, frame(mac(9), mac(1), 60)); !slices.Equal(got, []string{"1>2"}) {
		t.Errorf("a claimed address goes to %v", got)
	}
	o.claims[mac(9)] = 1
	if got := o.send(t, 1, frame(mac(9), mac(1), 60)); len(got) != 0 {
		t.Errorf("an address of the guest itself goes to %v", got)
	}
	delete(o.claims, mac(9))
	if got := o.send(t, 1, frame(mac(9), mac(1), 60)); !slices.Equal(got, []string{"1>3"}) {
		t.Errorf("an address that is not claimed any more goes to %v", got)
	}
}

func TestSend_FrameArrivesAsSentInOrder(t *testing.T) {
	o := newOffice(t, 2)
	o.claims[mac(2)] = 2
	for _, size := range []int{14, 60, small, small + 1, 9000, netport.MaxOffload} {
		f := frame(mac(2), mac(1), size)
		off := netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 16, Segment: netport.SegmentTCP6, Size: 1440}
		if err := o.ports[1].SendOffload(0, f, &off); err != nil {
			t.Fatal(err)
		}
		b := netport.NewBatch(1, 0)
		for q := range 2 {
			if o.ports[2].queues[q].n == 0 {
				continue
			}
			if _, err := o.ports[2].Receive(q, b); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(b.Frame(0), f) || *b.Offload(0) != off {
			t.Errorf("%d bytes arrive as %d with %+v", size, len(b.Frame(0)), *b.Offload(0))
		}
		b.Done()
	}
	for i := range 200 {
		f := frame(mac(2), mac(1), 100)
		f[20] = byte(i)
		o.send(t, 1, f)
	}
	for i, f := range take(t, o.ports[2]) {
		if f[20] != byte(i) {
			t.Fatalf("frame %d comes as number %d", f[20], i)
		}
	}
}

// A peer cannot send from the guest's address or from one that another node
// claims, nor take over an address in use.
func TestDeliver_APeerCannotBeSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 3)
		o.claims[mac(2)] = 2
		for _, src := range [][6]byte{mac(1), mac(2)} {
			o.send(t, 3, frame(everybody, src, 60))
		}
		if got := take(t, o.ports[1]); len(got) != 0 {
			t.Errorf("%d forged frames reached the guest", len(got))
		}
		if n := o.ports[1].Counters.RxSpoofed.Load(); n != 2 {
			t.Errorf("%d frames counted as forged, want 2", n)
		}

		o.send(t, 2, frame(everybody, mac(7), 60)) // a guest inside guest 2
		o.send(t, 3, frame(everybody, mac(7), 60))
		if got := o.send(t, 1, frame(mac(7), mac(1), 60)); !slices.Equal(got, []string{"1>2"}) {
			t.Errorf("an address in use moved to %v", got)
		}
		time.Sleep(steady * time.Second) // its user is silent: it may move
		o.send(t, 3, frame(everybody, mac(7), 60))
		if got := o.send(t, 1, frame(mac(7), mac(1), 60)); !slices.Equal(got, []string{"1>3"}) {
			t.Errorf("an address that moved is looked for at %v", got)
		}
	})
}

func TestTable_AddressOfTheGuestIsNotLookedForElsewhere(t *testing.T) {
	o := newOffice(t, 2)
	o.send(t, 2, frame(everybody, mac(7), 60))
	o.send(t, 1, frame(everybody, mac(7), 60)) // moved into guest 1
	if got := o.send(t, 1, frame(mac(7), mac(1), 60)); !slices.Equal(got, []string{"1>2"}) || o.ports[1].Counters.TxFlooded.Load() != 2 {
		t.Errorf("sent to %v after %d floods", got, o.ports[1].Counters.TxFlooded.Load())
	}
}

func TestTable_AddressesAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 3)
		o.send(t, 2, frame(everybody, mac(2), 60))
		time.Sleep(lifetime * time.Second)
		if got := o.send(t, 1, frame(mac(2), mac(1), 60)); len(got) != 1 {
			t.Errorf("an address that is %d s old goes to %v", lifetime, got)
		}
		time.Sleep(2 * time.Second)
		if got := o.send(t, 1, frame(mac(2), mac(1), 60)); len(got) != 2 {
			t.Errorf("an old address goes to %v", got)
		}
	})
}

func TestTable_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tb table
		tb.init()
		learn := func(node uint32, n int) (learned int) {
			for i := range n {
				if tb.learn(address(node)<<32|address(i), node, uint32(time.Now().Unix())) {
					learned++
				}
			}
			return learned
		}
		for node := range uint32(40) {
			want := maxNodeEntries
			if node >= maxEntries/maxNodeEntries {
				want = 0
			}
			if got := learn(node, 3000); got != want {
				t.Fatalf("node %d has %d addresses, want %d", node, got, want)
			}
		}
		time.Sleep((lifetime + 1) * time.Second)
		if got := learn(50, 3000); got != maxNodeEntries {
			t.Errorf("after all others aged a node has %d addresses, want %d", got, maxNodeEntries)
		}
		tb.keep(map[uint32]*source{})
		if tb.total != 0 || len(tb.nodes) != 0 {
			t.Errorf("%d addresses of %d nodes are left without any node", tb.total, len(tb.nodes))
		}
	})
}

func TestSetPeers_ForgetsWhoLeft(t *testing.T) {
	o := newOffice(t, 3)
	o.send(t, 2, frame(everybody, mac(2), 60))
	take(t, o.ports[1])
	o.ports[1].SetPeers([]uint32{1, 3}, []uint32{1, 3})
	if got := o.send(t, 1, frame(mac(2), mac(1), 60)); !slices.Equal(got, []string{"1>3"}) {
		t.Errorf("an address of a node that left goes to %v", got)
	}
	o.send(t, 2, frame(mac(1), mac(2), 60))
	if len(take(t, o.ports[1])) != 0 || o.ports[1].Counters.RxStranger.Load() != 1 {
		t.Error("a frame of a node that is not in the mesh reached the guest")
	}
}

func TestStorm_IsBoundedAtBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 2)
		passed := func() (n int) {
			for range 3 * floodBurst {
				if o.ports[1].Send(0, frame(everybody, mac(1), 60)) == nil {
					n++
				}
				take(t, o.ports[2])
			}
			return n
		}
		if got := passed(); got != floodBurst {
			t.Errorf("%d frames for everybody at once, want %d", got, floodBurst)
		}
		if err := o.ports[1].Send(0, frame(mac(9), mac(1), 60)); err == nil {
			t.Error("an unknown address escapes the bound")
		}
		o.claims[mac(2)] = 2
		if err := o.ports[1].Send(0, frame(mac(2), mac(1), 60)); err != nil {
			t.Errorf("a storm stops frames to one node: %v", err)
		}
		take(t, o.ports[2])
		time.Sleep(time.Second / 8)
		if got := passed(); got != floodRate/8 {
			t.Errorf("%d frames for everybody in 1/8 s, want %d", got, floodRate/8)
		}

		// A peer that does not keep to it.
		var header [headerLen]byte
		encode(&header, &netport.Offload{})
		time.Sleep(time.Second)
		o.ports[2].Counters.RxFrames.Store(0)
		for range 3 * floodBurst {
			f := fabric.Frame{Src: 1, Header: header[:], Payload: frame(everybody, mac(1), 60)}
			o.ports[2].Deliver(&f)
			take(t, o.ports[2])
		}
		if got := o.ports[2].Counters.RxFrames.Load(); got != floodBurst {
			t.Errorf("%d frames for everybody of a peer at once, want %d", got, floodBurst)
		}
		f := fabric.Frame{Src: 1, Header: header[:], Payload: frame(mac(2), mac(1), 60)}
		if o.ports[2].Deliver(&f); len(take(t, o.ports[2])) != 1 {
			t.Error("a storm stops frames for the guest alone")
		}
	})
}

func TestCarrier_IsUpInAMeshOnly(t *testing.T) {
	p, err := New(Config{MAC: mac(1), Queues: 1, Owner: func([6]byte) (uint32, bool) { return 0, false }})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	p.Watch(func(up bool, why string) { said = append(said, fmt.Sprint(up, " ", why)) })
	if err := p.Send(0, frame(everybody, mac(1), 60)); err == nil {
		t.Error("a port without a mesh takes a frame")
	}
	p.Join(link{&office{}, 4}, 4)
	if err := p.Send(0, frame(everybody, mac(1), 60)); err != nil {
		t.Errorf("alone in a mesh: %v", err)
	}
	p.Leave("it was sunny")
	p.Close()
	p.Leave("nobody listens")
	want := []string{"false this worker is not registered with the manager yet", "true ", "false it was sunny"}
	if !slices.Equal(said, want) {
		t.Errorf("the carrier was %q, want %q", said, want)
	}
}

func TestSend_SaysWhatTheFabricDidNotTake(t *testing.T) {
	o := newOffice(t, 2)
	o.claims[mac(2)] = 2
	for _, v := range []fabric.Verdict{fabric.Dropped, fabric.NoRoute, fabric.Full} {
		o.verdict = v
		if err := o.ports[1].Send(0, frame(mac(2), mac(1), 60)); err == nil {
			t.Errorf("%v: no error", v)
		}
	}
	o.verdict = fabric.Dropped
	o.send(t, 1, frame(everybody, mac(1), 60)) // one of many is no error
	if n := o.ports[1].Counters.TxLost.Load(); n != 4 {
		t.Errorf("%d frames counted as lost, want 4", n)
	}
	for _, f := range [][]byte{{1, 2, 3}, make([]byte, netport.MaxOffload+1)} {
		if err := o.ports[1].Send(0, f); !errors.Is(err, errOversize) {
			t.Errorf("%d bytes: %v", len(f), err)
		}
	}
}

func TestReceive_QueueIsBoundedAndGivenBack(t *testing.T) {
	p, err := New(Config{MAC: mac(1), Queues: 1, Owner: func([6]byte) (uint32, bool) { return 0, false }})
	if err != nil {
		t.Fatal(err)
	}
	p.SetPeers([]uint32{2}, nil)
	p.Join(link{&office{}, 1}, 1)
	released := 0
	var header [headerLen]byte
	encode(&header, &netport.Offload{})
	deliver := func(n, size int) {
		for range n {
			f := fabric.Frame{Src: 2, Header: header[:], Payload: frame(mac(1), mac(2), size), Owner: sentOwner{func() { released++ }}}
			p.Deliver(&f)
		}
	}
	deliver(queueBytes/60000+20, 60000)
	if got := p.Counters.RxFull.Load(); got != 20 || released != 20 {
		t.Errorf("%d large frames found no room, %d were given back; want 20", got, released)
	}
	if got := len(take(t, p)); got != queueBytes/60000 || released != got+20 {
		t.Errorf("%d frames waited and %d were given back", got, released)
	}
	released = 0
	deliver(queueFrames+5, 60)
	if got := p.Counters.RxFull.Load(); got != 25 || released != queueFrames+5 {
		t.Errorf("%d small frames found no room, %d were given back", got-20, released)
	}
	deliver(1, 5000)
	p.Close()
	if _, err := p.Receive(0, netport.NewBatch(1, 0)); !errors.Is(err, netport.ErrClosed) {
		t.Errorf("receive from a closed port: %v", err)
	}
	deliver(1, 5000)
	if released != queueFrames+7 {
		t.Errorf("%d frames were given back of %d", released, queueFrames+7)
	}
}

func TestPort_DoesNotAllocate(t *testing.T) {
	owner := func(m [6]byte) (uint32, bool) { return uint32(m[5]), m[5] == 2 }
	p, err := New(Config{MAC: mac(1), Queues: 1, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	p.SetPeers([]uint32{1, 2}, []uint32{1, 2})
	p.Join(swallow{}, 1)
	b := netport.NewBatch(8, 0)
	var header [headerLen]byte
	encode(&header, &netport.Offload{})
	for _, size := range []int{60, 9000, 65000} {
		out, in := frame(mac(2), mac(1), size), frame(mac(1), mac(2), size)
		o := &netport.Offload{}
		f := &fabric.Frame{}
		if n := testing.AllocsPerRun(200, func() {
			if err := p.SendOffload(0, out, o); err != nil {
				t.Fatal(err)
			}
			*f = fabric.Frame{Src: 2, Header: header[:], Payload: in}
			p.Deliver(f)
			if n, err := p.Receive(0, b); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			b.Done()
		}); n > 0.1 { // a collection may empty the pools
			t.Errorf("%d bytes: %v allocations", size, n)
		}
	}
}

// swallow is a link that takes everything.
type swallow struct{}

func (swallow) Send(f *fabric.Frame) fabric.Verdict { f.Drop(); return fabric.Sent }
func (swallow) Close() error                        { return nil }

func FuzzDeliver(f *testing.F) {
	var h [headerLen]byte
	encode(&h, &netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 16, Segment: netport.SegmentTCP4, Size: 1448})
	f.Add(h[:], frame(mac(1), mac(2), 100), uint32(2), uint32(7))
	encode(&h, &netport.Offload{})
	f.Add(h[:], frame(everybody, mac(1), 5000), uint32(2), uint32(0xffffffff))
	f.Add([]byte{}, []byte{1}, uint32(0), uint32(0))
	p, err := New(Config{MAC: mac(1), Queues: 3, Owner: func([6]byte) (uint32, bool) { return 0, false }})
	if err != nil {
		f.Fatal(err)
	}
	p.SetPeers([]uint32{2}, []uint32{2})
	p.Join(swallow{}, 1)
	f.Fuzz(func(t *testing.T, header, payload []byte, src, flow uint32) {
		released := 0
		in := fabric.Frame{Src: src, Flow: flow, Header: header, Payload: payload, Owner: sentOwner{func() { released++ }}}
		p.Deliver(&in)
		for _, got := range take(t, p) {
			if !bytes.Equal(got, payload) || src != 2 {
				t.Fatalf("%x of node %d became %x", payload, src, got)
			}
		}
		if released != 1 {
			t.Fatalf("the frame was given back %d times", released)
		}
	})
}

func BenchmarkPort(b *testing.B) {
	owner := func(m [6]byte) (uint32, bool) { return uint32(m[5]), m[5] == 2 }
	p, err := New(Config{MAC: mac(1), Queues: 1, Owner: owner})
	if err != nil {
		b.Fatal(err)
	}
	p.Join(swallow{}, 1)
	for _, size := range []int{60, 1514, 65000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := frame(mac(2), mac(1), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Send(0, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// counted is payload memory that counts how often it is given back.
type counted struct {
	mu sync.Mutex
	n  int
}

func (c *counted) Release() { c.mu.Lock(); c.n++; c.mu.Unlock() }

// fromPeer makes a packet as b, the peer of a in pair, would send it.
func fromPeer(op packet.Op, psn uint32, bytes int, owner packet.Releaser) *packet.Packet {
	p := packet.Wrap(make([]byte, bytes), owner)
	p.Op, p.PSN, p.Count = op, psn, 1
	p.SrcQPN, p.DstQPN = 2, 3
	p.SrcGID[0], p.DstGID[0] = 'a', 'b'
	p.Flags = packet.First | packet.Last
	p.Length = uint32(bytes)
	p.VA, p.RKey = 0x10000, 1
	return p
}

func TestDeliver_BeyondTheBoundIsDroppedAndCounted(t *testing.T) {
	_, _, b := pair(t, qp.RC, plain)
	var own counted
	const sent = 10_000
	for i := range sent {
		b.q.Deliver(fromPeer(packet.Write, uint32(i), 8, &own))
	}
	dropped := own.n
	if dropped == 0 || dropped == sent {
		t.Fatalf("%d of %d packets were dropped", dropped, sent)
	}
	for b.step() {
	}
	if own.n != sent {
		t.Errorf("%d of %d packets were released", own.n, sent)
	}
	if got := b.count[qp.DropInbox]; got != uint64(dropped) {
		t.Errorf("drop_inbox is %d, want %d", got, dropped)
	}
}

func TestDeliver_BoundsBytesToo(t *testing.T) {
	_, _, b := pair(t, qp.RC, plain)
	var own counted
	for range 100 {
		b.q.Deliver(fromPeer(packet.Write, 0, packet.MaxPayload, &own))
	}
	if held := (100 - own.n) * packet.MaxPayload; held > 8<<20 || held < 2<<20 {
		t.Errorf("the inbox holds %d bytes", held)
	}
}

func TestDeliver_AsksForOneStepPerBatch(t *testing.T) {
	_, _, b := pair(t, qp.RC, plain)
	if !b.q.Deliver(fromPeer(packet.Write, 0, 8, nil)) {
		t.Error("the first packet asks for no Step")
	}
	if b.q.Deliver(fromPeer(packet.Write, 1, 8, nil)) {
		t.Error("the second packet asks for a Step again")
	}
	b.step()
	if !b.q.Deliver(fromPeer(packet.Write, 2, 8, nil)) {
		t.Error("a packet after the Step asks for none")
	}
}

func TestClose_ReleasesEverything(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	var own counted
	for i := range 10 {
		b.q.Deliver(fromPeer(packet.ReadRequest, uint32(i), 0, &own))
	}
	b.full = true
	b.step() // parks an answer, leaves requests behind it
	a.full = true
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 100)
	a.step() // parks a request
	a.q.Close()
	b.q.Close()
	b.q.Deliver(fromPeer(packet.Write, 0, 8, &own))
	if own.n != 11 {
		t.Errorf("%d of 11 packets were released", own.n)
	}
	if w.live != 0 {
		t.Errorf("%d packets on the link", w.live)
	}
	if err := b.q.Modify(qp.MaskState, &qp.Attr{State: qp.Reset}); err == nil {
		t.Error("a closed QP can be modified")
	}
}

// TestClose_UnderTraffic proves with the race detector that no call of the
// environment comes after Close has returned.
func TestClose_UnderTraffic(t *testing.T) {
	for range 20 {
		w, a, b := pair(t, qp.RC, plain)
		var stop, stepping sync.WaitGroup
		done := make(chan struct{})
		stop.Add(2)
		stepping.Add(1)
		go func() {
			defer stop.Done()
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					b.q.Deliver(fromPeer(packet.Write, uint32(i), 8, nil))
				}
			}
		}()
		go func() {
			defer stop.Done()
			for i := range 1000 {
				b.q.Step(start)
				if i == 100 {
					stepping.Done()
				}
			}
		}()
		stepping.Wait()
		b.q.Close()
		b.count = [qp.NumCounters]uint64{} // races with any later Count
		b.w = nil                          // and with any later Transmit
		close(done)
		stop.Wait()
		b.w = w
		_ = a
	}
}

func TestModify_RacesWithTraffic(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		for i := range 2000 {
			b.q.Deliver(fromPeer(packet.Write, uint32(i), 8, nil))
			b.q.Query()
		}
	}()
	go func() {
		defer wg.Done()
		for range 500 {
			b.q.Step(start)
			b.q.Step(start)
		}
	}()
	for range 50 {
		for _, s := range []qp.State{qp.Err, qp.Reset} {
			if err := b.q.Modify(qp.MaskState, &qp.Attr{State: s}); err != nil {
				t.Error(err)
			}
		}
		if err := b.toRTR(a, plain, 0); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for len(w.wire) > 0 {
		w.drop(0)
	}
}

func TestStep_DoesABoundedShare(t *testing.T) {
	_, a, b := pair(t, qp.RC, plain)
	for range 1000 {
		a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 8)
	}
	if !a.step() {
		t.Fatal("a Step with 1000 messages to send has nothing more to do")
	}
	if sent := len(a.w.wire); sent == 0 || sent > 100 {
		t.Errorf("one Step sent %d packets", sent)
	}
	a.w.settle()
	if b.count[qp.RxPackets] != 1000 {
		t.Errorf("%d of 1000 messages arrived", b.count[qp.RxPackets])
	}
}

func TestStep_WaitingForTheLinkDoesNotSpin(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	b.full = true
	for i := range 3 {
		b.q.Deliver(fromPeer(packet.FetchAdd, uint32(i), 0, nil))
	}
	if b.step() {
		t.Error("a Step whose answer waits for the link wants another at once")
	}
	b.q.Deliver(fromPeer(packet.FetchAdd, 3, 0, nil)) // stays in the inbox
	if b.step() {
		t.Error("requests behind a waiting answer make Step spin")
	}
	b.full = false
	for b.step() {
	}
	if n := b.count[qp.RxPackets]; n != 4 {
		t.Errorf("%d of 4 requests were executed", n)
	}
	a.full = true
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 8)
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 8)
	if a.step() {
		t.Error("a requester that waits for the link spins")
	}
	for len(w.wire) > 0 {
		w.drop(0)
	}
}

func TestStep_IdleIsQuiet(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 8)
	w.settle()
	w.advance(time.Second) // the timer that was set may run out once
	a.steps, b.steps = 0, 0
	w.now = w.now.Add(time.Hour)
	if !a.wake.IsZero() || !b.wake.IsZero() {
		t.Errorf("an idle QP wants to be woken: a %v, b %v", a.wake, b.wake)
	}
}

// vast is an environment with memory nobody looks at, for messages of a size
// no test can hold. It checks that the pieces come without gap or overlap.
type vast struct {
	*node
	next uint64
	bad  bool
}

func (v *vast) Gather(_ *qp.SendWork, off uint64, dst []byte) qp.Status { return qp.OK }

func (v *vast) Scatter(_ []qp.SGE, off uint64, src []byte) qp.Status {
	v.bad = v.bad || off != v.next
	v.next = off + uint64(len(src))
	return qp.OK
}

func (v *vast) RemoteCheck(uint32, uint64, uint64, qp.Access) qp.Status { return qp.OK }
func (v *vast) RemoteRead(uint32, uint64, []byte) qp.Status             { return qp.OK }

func (v *vast) RemoteWrite(_ uint32, va uint64, src []byte) qp.Status {
	return v.Scatter(nil, va, src)
}

func (v *vast) Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict {
	v.w.wire = append(v.w.wire, p)
	return qp.Sent
}

func TestTransfer_LargestMessage(t *testing.T) {
	for _, op := range []qp.Op{qp.OpSend, qp.OpWriteImm, qp.OpRead} {
		t.Run(op.String(), func(t *testing.T) {
			w := newWorld()
			mk := func(name string, num uint32) *vast {
				v := &vast{node: &node{w: w, name: name, num: num, keys: map[uint32]*region{}, quiet: true}}
				copy(v.gid[:], name)
				v.q = qp.New(qp.Config{Number: num, Type: qp.RC}, v)
				w.nodes = append(w.nodes, v.node)
				return v
			}
			a, b := mk("a", 2), mk("b", 3)
			o := plain
			o.mtu = 8 // 2^23 PSNs: half of their space
			o.psnA = 0xfffff0
			if err := connect(a.node, b.node, o); err != nil {
				t.Fatal(err)
			}
			var got []string
			b.onRecv = func(c *qp.RecvCompletion) { got = append(got, fmt.Sprintf("%d %v %d", c.ID, c.Status, c.Length)) }
			a.onCQE = func(kind string, id uint64, st qp.Status) {
				got = append(got, fmt.Sprintf("%s %d %v", kind, id, st))
			}
			b.receive(5, 1, 0, 1<<31)
			a.post(qp.SendWork{Op: op, Signaled: true, RKey: 1}, 1, 0, 1<<31)
			for idle := 0; idle < 2; idle++ {
				for _, v := range []*vast{a, b} {
					for v.step() {
						idle = 0
					}
				}
				for len(w.wire) > 0 {
					w.deliver(0)
					idle = 0
				}
			}
			sink, want := b, "[5 OK 2147483648 msn 1 OK]"
			if op == qp.OpRead {
				sink, want = a, "[msn 1 OK]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("completions %v, want %s", got, want)
			}
			if sink.bad || sink.next != 1<<31 {
				t.Errorf("%d bytes placed, in order: %v", sink.next, !sink.bad)
			}
			if a.count[qp.ReqRetransmitPkts] != 0 {
				t.Errorf("%d packets were sent twice", a.count[qp.ReqRetransmitPkts])
			}
		})
	}
}

// TestTransfer_IndicesWrap runs a QP past the wrap of its 16-bit ring index,
// of the ring of messages and of the PSN.
func TestTransfer_IndicesWrap(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	next := uint64(1)
	a.onCQE = func(kind string, id uint64, st qp.Status) {
		if kind != "msn" || id != next || st != qp.OK {
			t.Fatalf("completion %s %d %v, want msn %d", kind, id, st, next)
		}
		next++
	}
	const n = 70_000
	for done := 0; done < n; done += 1000 {
		a.sq, a.sqNext = a.sq[:0], 0
		for range 1000 {
			a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 8)
		}
		w.settle()
	}
	if next != n+1 || b.count[qp.RxPackets] != n {
		t.Errorf("%d completions, %d arrived, want %d", next-1, b.count[qp.RxPackets], n)
	}
}

// A queue of 32768 entries posted at once drains in order.
func TestTransfer_DeepQueue(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	done := 0
	a.onCQE = func(kind string, id uint64, st qp.Status) { done++ }
	got := uint64(0)
	b.onRecv = func(c *qp.RecvCompletion) {
		if c.ID != got || c.Status != qp.OK {
			t.Fatalf("receive %d %v, want %d", c.ID, c.Status, got)
		}
		got++
	}
	const n = 32768
	for i := range n {
		a.post(qp.SendWork{Op: qp.OpSend}, 1, 0x10000, 4)
		b.receive(uint64(i), 1, 0x10000, 4)
	}
	w.settle()
	if done != n || got != n {
		t.Errorf("%d completions, %d receives, want %d", done, got, n)
	}
}

// A refused request leaves every byte of the responder as it was, also when
// only the end of a large message is out of range.
func TestP10_ARefusedRequestChangesNoByte(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	copy(b.keys[1].buf, noise(8<<20, 3))
	before := string(b.keys[1].buf)
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000 + 5<<20, RKey: 1}, 1, 0x10000, 3<<20+1)
	w.settle()
	if string(b.keys[1].buf) != before {
		t.Error("the refused WRITE has changed memory")
	}
	if a.q.State() != qp.Err || b.q.State() != qp.Err {
		t.Errorf("states %v and %v, want ERR", a.q.State(), b.q.State())
	}
}

// A region that goes away under a WRITE fails the work with an access error.
func TestRefusal_RegionLostInTheMiddle(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	var status qp.Status
	a.onCQE = func(kind string, _ uint64, st qp.Status) {
		if kind == "msn" {
			status = st
		}
	}
	a.post(qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 4<<20)
	a.step()
	w.deliver(0)
	b.step()
	b.keys[1].invalidated = true
	w.settle()
	if status != qp.RemoteAccErr {
		t.Errorf("status %v, want %v", status, qp.RemoteAccErr)
	}
}

// The storm: many QPs flushed at once, one completion per queue each.
func TestFlush_ThousandQPs(t *testing.T) {
	w := newWorld()
	for i := range 1000 {
		n := w.add(fmt.Sprintf("n%d", i), qp.RC, uint32(i+2))
		n.quiet = true
		n.register(1, 0x1000, 64)
	}
	flushes := 0
	for i, n := range w.nodes {
		n.onCQE = func(kind string, _ uint64, st qp.Status) {
			if kind != "flush" {
				t.Errorf("completion %s %v", kind, st)
			}
			flushes++
		}
		n.onRecv = func(c *qp.RecvCompletion) { flushes++ }
		if err := n.toRTR(w.nodes[i^1], plain, 0); err != nil {
			t.Fatal(err)
		}
		if err := n.toRTS(plain, 0); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			n.post(qp.SendWork{Op: qp.OpWrite, RKey: 1, RemoteVA: 0x1000}, 1, 0x1000, 8)
			n.receive(1, 1, 0x1000, 8)
		}
		n.step()
	}
	for _, n := range w.nodes {
		if err := n.q.Modify(qp.MaskState, &qp.Attr{State: qp.Err}); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	if flushes != 2000 {
		t.Errorf("%d flush completions, want 2000", flushes)
	}
	for _, n := range w.nodes {
		n.q.Close()
	}
	if w.live != 0 {
		t.Errorf("%d packets were never released", w.live)
	}
}

func TestModify_ErrorsNameWhatIsWrong(t *testing.T) {
	_, a, _ := pair(t, qp.RC, plain)
	var se *qp.StateError
	if err := a.q.Modify(qp.MaskState, &qp.Attr{State: 9}); !errors.As(err, &se) || se.QP != 2 || se.From != qp.RTS {
		t.Errorf("error %v, want a StateError of QP 2 in RTS", err)
	}
	var ae *qp.AttrError
	if err := a.q.Modify(qp.MaskSQPSN, &qp.Attr{}); !errors.As(err, &ae) || ae.Attr != qp.MaskSQPSN {
		t.Errorf("error %v, want an AttrError of SQ_PSN", err)
	}
	// Fields whose bit is clear are garbage.
	before := a.q.Query()
	if err := a.q.Modify(0, &qp.Attr{State: qp.Err, PathMTU: 99, DestQPN: 77, SQPSN: 5}); err != nil {
		t.Error(err)
	}
	if a.q.Query() != before {
		t.Errorf("attributes changed to %+v", a.q.Query())
	}
}

func TestTimers_MatchTheSpecification(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := qp.RNRTimer(code); got != want {
			t.Errorf("RNR timer %d is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{
		0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 4096 << 31 * time.Nanosecond,
	} {
		if got := qp.AckTimeout(code); got != want {
			t.Errorf("ACK timeout %d is %v, want %v", code, got, want)
		}
	}
}

func TestString_NamesEveryValue(t *testing.T) {
	check := func(s fmt.Stringer) {
		if strings.ContainsAny(s.String(), "()") || s.String() == "" {
			t.Errorf("%T %d has no name: %q", s, s, s)
		}
	}
	for c := range qp.NumCounters {
		check(c)
	}
	for s := qp.Reset; s <= qp.Err; s++ {
		check(s)
	}
	for s := qp.OK; s <= qp.RNRRetryExceeded; s++ {
		check(s)
	}
	for o := qp.OpSend; o <= qp.OpBindMW; o++ {
		check(o)
	}
	for o := qp.RecvSend; o <= qp.RecvWriteImm; o++ {
		check(o)
	}
	for _, e := range []qp.Event{qp.EventSQDrained, qp.EventCommEst, qp.EventQPFatal, qp.EventRequestErr, qp.EventAccessErr} {
		check(e)
	}
	for _, s := range []fmt.Stringer{qp.RC, qp.UC, qp.UD, qp.Sent, qp.Full, qp.Lost, qp.RemoteRead, qp.Access(0), qp.MaskAV, qp.Mask(0)} {
		check(s)
	}
	if got := (qp.MaskState | qp.MaskAV | 1<<31).String(); got != "STATE|AV|0x80000000" {
		t.Errorf("mask is %q", got)
	}
	if got := qp.State(9).String(); got != "state(9)" {
		t.Errorf("unknown state is %q", got)
	}
}

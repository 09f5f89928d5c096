// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// silent is a QP whose peer never answers; it keeps what it sends.
type silent struct {
	bencher
	sent   []*packet.Packet
	counts [qp.NumCounters]uint64
}

func (e *silent) Transmit(_ *packet.Address, p *packet.Packet) qp.Verdict {
	e.sent = append(e.sent, p)
	return qp.Sent
}

func (e *silent) Count(c qp.Counter, n uint64) { e.counts[c] += n }

func (e *silent) CompleteMSN(_ uint32, _ qp.Status, _ bool) { e.done++ }

func (e *silent) bytes() (n int) {
	for _, p := range e.sent {
		n += len(p.Payload)
	}
	return n
}

// run calls Step until there is no more to do.
func (e *silent) run(now time.Time) {
	for e.q.Step(now) {
	}
}

func (e *silent) acknowledge(now time.Time) {
	last := e.sent[len(e.sent)-1]
	p := packet.Get(0)
	p.Header = packet.Header{Op: packet.Ack, PSN: last.PSN + last.Count - 1, Count: 1, SrcQPN: last.DstQPN, DstQPN: last.SrcQPN}
	for _, p := range e.sent {
		p.Release()
	}
	e.sent = nil
	e.q.Deliver(p)
	e.run(now)
}

// lonely makes a connected RC QP without a peer; timeout 14 is 67.1 ms.
func lonely(t *testing.T, c qp.Config) *silent {
	t.Helper()
	e := &silent{bencher: bencher{mem: make([]byte, 8<<20)}}
	e.q = qp.New(c, e)
	for _, m := range []struct {
		mask qp.Mask
		attr qp.Attr
	}{
		{maskInit, qp.Attr{State: qp.Init}},
		{maskRTR, qp.Attr{State: qp.RTR, PathMTU: 12, DestQPN: 9}},
		{maskRTS, qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7}},
	} {
		if err := e.q.Modify(m.mask, &m.attr); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		e.q.Close()
		for _, p := range e.sent {
			p.Release()
		}
	})
	return e
}

func (e *silent) post(n, size int) {
	e.work = qp.SendWork{Op: qp.OpWrite, Length: uint32(size), Signaled: true, NumSGE: 1}
	e.posted = n
}

func TestShare_BoundsWhatAllQPsHaveUnderWay(t *testing.T) {
	const qps = 64
	var share qp.Share
	now, total := time.Now(), 0
	var all []*silent
	for i := range uint32(qps) {
		e := lonely(t, qp.Config{Number: 2 + i, Type: qp.RC, Share: &share})
		all = append(all, e)
		e.post(64, 64<<10)
		e.run(now)
		total += e.bytes()
		if e.bytes() < 64<<10 {
			t.Fatalf("QP %d sends %d bytes beside others, want one message", i, e.bytes())
		}
	}
	// The first ones had the window for themselves; from then on they share.
	for _, e := range all {
		e.acknowledge(now)
	}
	for _, e := range all {
		e.acknowledge(now)
	}
	after := 0
	for _, e := range all {
		after += e.bytes()
	}
	if after > 16<<20 || after < 4<<20 {
		t.Fatalf("%d QPs have %d bytes under way (%d at first), want 4 to 16 MiB", qps, after, total)
	}
}

func TestShare_ComesBackWhenOthersAreDone(t *testing.T) {
	var share qp.Share
	now := time.Now()
	const size = 1 << 20
	for i := range uint32(32) {
		e := lonely(t, qp.Config{Number: 2 + i, Type: qp.RC, Share: &share})
		e.post(1, 4096)
		e.run(now)
		switch i % 3 {
		case 0:
			e.acknowledge(now)
		case 1:
			e.q.Close()
		default:
			if err := e.q.Modify(qp.MaskState, &qp.Attr{State: qp.Err}); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := lonely(t, qp.Config{Number: 100, Type: qp.RC, Share: &share})
	e.post(8, size)
	e.run(now)
	if e.bytes() != 2*size {
		t.Fatalf("%d bytes under way, want the whole window of %d", e.bytes(), 2*size)
	}
}

// When the share shrinks below what is under way, an acknowledgement must be on
// its way all the same.
func TestShare_NeverClosesTheWindowWithoutAnAcknowledgementToCome(t *testing.T) {
	var share qp.Share
	now := time.Now()
	e := lonely(t, qp.Config{Number: 2, Type: qp.RC, Share: &share})
	e.post(1, 256<<10+4096) // its first chunk asks for nothing
	e.run(now)
	e.acknowledge(now)
	for i := range uint32(40) {
		o := lonely(t, qp.Config{Number: 3 + i, Type: qp.RC, Share: &share})
		o.post(1, 4096)
		o.run(now)
	}
	e.post(2, 8<<20)
	for range 200 {
		e.run(now)
		asked := false
		for _, p := range e.sent {
			asked = asked || p.Flags&packet.AckRequest != 0
		}
		if e.done == 3 {
			return
		}
		if !asked {
			t.Fatalf("%d packets under way and none asks for an acknowledgement", len(e.sent))
		}
		e.acknowledge(now)
	}
	t.Fatalf("%d of 3 messages done", e.done)
}

const timeout = 67108864 * time.Nanosecond

func TestTimer_LateFireIsNoTimeout(t *testing.T) {
	now := time.Now()
	e := lonely(t, qp.Config{Number: 2, Type: qp.RC})
	e.post(1, 64)
	e.run(now)
	now = now.Add(timeout + timeout/2 + time.Millisecond) // nobody ran for a while
	e.run(now)
	if n := e.counts[qp.ReqAckTimeout]; n != 0 {
		t.Fatal("a timer that fired late counts as a timeout: the answer may wait unread")
	}
	e.run(now.Add(timeout - time.Millisecond))
	if n := e.counts[qp.ReqAckTimeout]; n != 0 {
		t.Fatal("the timer was not started anew")
	}
	e.run(now.Add(timeout))
	if n := e.counts[qp.ReqAckTimeout]; n != 1 {
		t.Fatalf("%d timeouts after a timer that fired in time, want 1", n)
	}
}

// A link that is busy with the packets of others costs no retry.
func TestTimer_WaitsForABusyLink(t *testing.T) {
	now := time.Now()
	held, moved := true, uint64(0)
	e := lonely(t, qp.Config{Number: 2, Type: qp.RC, Pending: func() (bool, uint64) { return held, moved }})
	e.post(1, 64)
	e.run(now)
	for range 10 {
		now = now.Add(timeout)
		moved++
		e.run(now)
	}
	if n := e.counts[qp.ReqAckTimeout]; n != 0 {
		t.Fatalf("%d timeouts although the link has not come to the packet", n)
	}
	held = false
	now = now.Add(timeout)
	e.run(now)
	if n := e.counts[qp.ReqAckTimeout]; n != 1 {
		t.Fatalf("%d timeouts after the link has sent the packet, want 1", n)
	}
}

// A link that stands still, or sends everything but our packets, ends the
// connection.
func TestTimer_GivesUpOnALinkThatNeverSends(t *testing.T) {
	for _, c := range []struct {
		name        string
		moves       bool
		least, most time.Duration
	}{
		{"it stands still", false, 2 * time.Second, 2*time.Second + timeout},
		{"it sends for others only", true, 2 * time.Second, 2*time.Second + 9*timeout},
	} {
		now := time.Now()
		begin := now
		moved := uint64(0)
		e := lonely(t, qp.Config{Number: 2, Type: qp.RC, Pending: func() (bool, uint64) { return true, moved }})
		e.post(1, 64)
		for e.run(now); e.done == 0 && now.Sub(begin) < time.Minute; e.run(now) {
			now = now.Add(timeout)
			if c.moves {
				moved++
			}
		}
		if e.counts[qp.ReqRetryExceeded] != 1 {
			t.Fatalf("%s: %d retries exceeded, want 1", c.name, e.counts[qp.ReqRetryExceeded])
		}
		if d := now.Sub(begin); d < c.least || d > c.most {
			t.Errorf("%s: gave up after %v, want %v to %v", c.name, d, c.least, c.most)
		}
	}
}

// However late the timer is looked at, a retry is used up in the end: a machine
// without CPU for us cannot keep a dead connection alive.
func TestTimer_LateForEverGivesUp(t *testing.T) {
	now := time.Now()
	e := lonely(t, qp.Config{Number: 2, Type: qp.RC})
	e.post(1, 64)
	for looks := 1; ; looks++ {
		e.run(now)
		if e.done > 0 {
			if looks != 1+5*8 {
				t.Fatalf("gave up at look %d, want %d: five for each of 8 tries", looks, 1+5*8)
			}
			return
		}
		if looks > 100 {
			t.Fatal("never gives up")
		}
		now = now.Add(5 * timeout)
	}
}

// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/proto/gid"
)

// fakeLink answers every frame with one verdict and keeps the last one.
type fakeLink struct {
	verdict fabric.Verdict
	last    fabric.Frame
	header  []byte
}

func (l *fakeLink) Send(f *fabric.Frame) fabric.Verdict {
	l.last, l.header = *f, append(l.header[:0], f.Header...)
	if l.verdict != fabric.Full {
		f.Release()
	}
	return l.verdict
}

func (l *fakeLink) Close() error { return nil }

// fakeEngine keeps what is delivered.
type fakeEngine struct {
	got      []*packet.Packet
	writable []uint32
}

func (e *fakeEngine) Deliver(p *packet.Packet) { e.got = append(e.got, p) }

func (e *fakeEngine) Writable(match func(uint32) bool) {
	for qpn := range uint32(1024) {
		if match(qpn) {
			e.writable = append(e.writable, qpn)
		}
	}
}

type fixedRoute map[[16]byte]uint32

func (r fixedRoute) Route(dst *packet.Address) (uint32, bool) {
	n, ok := r[dst.GID]
	return n, ok
}

func (r fixedRoute) RouteMAC(mac [6]byte) (uint32, bool) {
	n, ok := r[gid.FromMAC(mac)]
	return n, ok
}

func newPacket(op packet.Op, flags packet.Flags) *packet.Packet {
	p := packet.Get(100)
	p.Op, p.Flags, p.SrcQPN, p.DstQPN, p.Count = op, flags, 9, 8, 1
	return p
}

func TestTransmit_VerdictsOfTheLink(t *testing.T) {
	dst := &packet.Address{GID: [16]byte{15: 1}}
	for _, c := range []struct {
		name string
		link fabric.Verdict
		want qp.Verdict
	}{
		{"sent", fabric.Sent, qp.Sent},
		{"full", fabric.Full, qp.Full},
		{"no route", fabric.NoRoute, qp.Lost},
		{"dropped", fabric.Dropped, qp.Lost},
	} {
		link := &fakeLink{verdict: c.link}
		k := &carrier{router: fixedRoute{dst.GID: 7}}
		k.use(link)
		p := newPacket(packet.Write, packet.First)
		if v := k.Transmit(dst, p); v != c.want {
			t.Errorf("%s: verdict %v, want %v", c.name, v, c.want)
		}
		if link.last.Dst != 7 || link.last.Flow != 9 || len(link.last.Payload) != 100 {
			t.Errorf("%s: frame %+v", c.name, link.last)
		}
		if c.want == qp.Full {
			p.Release() // still ours
		}
	}
}

// A guest that has only been booted is known by its MAC. A neighbour that knows
// the MAC must be able to connect; data goes by the address alone.
func TestTransmit_ConnectsToAGuestThatHasSentNothing(t *testing.T) {
	mac := [6]byte{2, 0, 0, 0, 0, 7}
	dst := &packet.Address{GID: [16]byte{15: 1}, MAC: mac}
	k := &carrier{router: fixedRoute{gid.FromMAC(mac): 7}}
	link := &fakeLink{}
	k.use(link)
	for _, c := range []struct {
		op   packet.Op
		qpn  uint32
		want qp.Verdict
	}{{packet.Datagram, gsi, qp.Sent}, {packet.Datagram, 8, qp.Lost}, {packet.Send, 8, qp.Lost}} {
		p := newPacket(c.op, 0)
		p.DstQPN = c.qpn
		if v := k.Transmit(dst, p); v != c.want {
			t.Errorf("%v for QP %d: verdict %v, want %v", c.op, c.qpn, v, c.want)
		}
	}
	if link.last.Dst != 7 {
		t.Errorf("sent to node %d", link.last.Dst)
	}
}

func TestTransmit_WithoutRouteOrLinkLosesAndCounts(t *testing.T) {
	k := &carrier{router: fixedRoute{}}
	if v := k.Transmit(&packet.Address{}, newPacket(packet.Send, 0)); v != qp.Lost || k.noLink.Load() != 1 {
		t.Errorf("no link: verdict %v, counted %d", v, k.noLink.Load())
	}
	k.use(&fakeLink{})
	if v := k.Transmit(&packet.Address{}, newPacket(packet.Send, 0)); v != qp.Lost || k.noRoute.Load() != 1 {
		t.Errorf("no route: verdict %v, counted %d", v, k.noRoute.Load())
	}
}

func TestP5_OnlyConnectedTrafficMayWaitForRoom(t *testing.T) {
	dst := &packet.Address{}
	link := &fakeLink{}
	k := &carrier{router: fixedRoute{dst.GID: 1}}
	k.use(link)
	for _, c := range []struct {
		op    packet.Op
		flags packet.Flags
		want  fabric.Class
	}{
		{packet.Send, 0, fabric.Reliable}, {packet.Ack, 0, fabric.Reliable}, {packet.ReadResponse, 0, fabric.Reliable},
		{packet.Write, packet.Unreliable, fabric.Reliable}, {packet.Datagram, 0, fabric.Datagram},
	} {
		k.Transmit(dst, newPacket(c.op, c.flags))
		if link.last.Class != c.want {
			t.Errorf("op %d flags %d travels as %v, want %v", c.op, c.flags, link.last.Class, c.want)
		}
	}
}

func TestTransmit_AnswersDoNotWaitBehindRequests(t *testing.T) {
	dst := &packet.Address{}
	link := &fakeLink{}
	k := &carrier{router: fixedRoute{dst.GID: 1}}
	k.use(link)
	flows := map[packet.Op]uint32{}
	for _, op := range []packet.Op{packet.Send, packet.Write, packet.ReadRequest, packet.FetchAdd, packet.Ack, packet.ReadResponse, packet.AtomicAck} {
		k.Transmit(dst, newPacket(op, 0))
		flows[op] = link.last.Flow
	}
	if flows[packet.Send] != flows[packet.Write] || flows[packet.Write] != flows[packet.ReadRequest] || flows[packet.ReadRequest] != flows[packet.FetchAdd] {
		t.Errorf("requests of one queue pair may overtake each other: %v", flows)
	}
	if flows[packet.Ack] != flows[packet.ReadResponse] || flows[packet.Ack] != flows[packet.AtomicAck] {
		t.Errorf("answers of one queue pair may overtake each other: %v", flows)
	}
	if flows[packet.Ack] == flows[packet.Send] {
		t.Error("answers wait behind requests")
	}
}

type counted struct{ n int }

func (c *counted) Release() { c.n++ }

func TestReceive_DeliversWhatTransmitSent(t *testing.T) {
	dst := &packet.Address{GID: [16]byte{15: 2}}
	link, e := &fakeLink{verdict: fabric.Full}, &fakeEngine{}
	k := &carrier{router: fixedRoute{dst.GID: 1}, engine: e}
	k.use(link)
	p := newPacket(packet.WriteImm, packet.First|packet.Last)
	p.Imm, p.VA = [4]byte{1, 2, 3, 4}, 0x1234
	k.Transmit(dst, p)

	owner := new(counted)
	k.Receive(&fabric.Frame{Class: fabric.Reliable, Header: link.header, Payload: p.Payload, Owner: owner})
	if len(e.got) != 1 || e.got[0].Header != p.Header || len(e.got[0].Payload) != 100 {
		t.Fatalf("delivered %+v, sent %+v", e.got, p.Header)
	}
	e.got[0].Release()
	if owner.n != 1 {
		t.Errorf("payload released %d times", owner.n)
	}
}

func TestP11_WhatIsNoPacketIsRefusedAndReleased(t *testing.T) {
	e, owner := &fakeEngine{}, new(counted)
	k := &carrier{engine: e}
	k.Receive(&fabric.Frame{Class: fabric.Reliable, Header: []byte("short"), Owner: owner})
	k.Receive(&fabric.Frame{Class: fabric.Control, Header: make([]byte, packet.HeaderLen), Owner: owner})
	if len(e.got) != 0 || owner.n != 2 || k.badHeader.Load() != 1 || k.badClass.Load() != 1 {
		t.Errorf("delivered %d, released %d, counted %d and %d", len(e.got), owner.n, k.badHeader.Load(), k.badClass.Load())
	}
}

// fakeLAN counts what it gets and gives it back.
type fakeLAN struct{ n int }

func (l *fakeLAN) Deliver(f *fabric.Frame) { l.n++; f.Release() }

func TestReceive_EthernetGoesToTheLAN(t *testing.T) {
	l, owner := &fakeLAN{}, new(counted)
	k := &carrier{engine: &fakeEngine{}}
	k.Receive(&fabric.Frame{Class: fabric.Ethernet, Owner: owner})
	k.lan = l
	k.Receive(&fabric.Frame{Class: fabric.Ethernet, Owner: owner})
	if l.n != 1 || owner.n != 2 || k.noLAN.Frames.Load() != 1 {
		t.Errorf("%d frames delivered, %d released, %d counted as nobody's", l.n, owner.n, k.noLAN.Frames.Load())
	}
}

func TestWritable_WakesTheQueuePairsOfTheGroup(t *testing.T) {
	e := &fakeEngine{}
	k := &carrier{engine: e}
	k.Writable(3, fabric.Group(77))
	found := false
	for _, qpn := range e.writable {
		if fabric.Group(qpn) != fabric.Group(77) && fabric.Group(qpn|answers) != fabric.Group(77) {
			t.Fatalf("queue pair %d is of another group", qpn)
		}
		found = found || qpn == 77
	}
	if !found {
		t.Error("the queue pair that waits is not woken")
	}
}

func FuzzReceive(f *testing.F) {
	p := newPacket(packet.Send, packet.First)
	f.Add(append([]byte(nil), p.Encode()...), []byte("payload"), uint8(0))
	f.Fuzz(func(t *testing.T, header, payload []byte, class uint8) {
		e, owner := &fakeEngine{}, new(counted)
		k := &carrier{engine: e}
		k.Receive(&fabric.Frame{Class: fabric.Class(class), Header: header, Payload: payload, Owner: owner})
		for _, p := range e.got {
			p.Release()
		}
		if owner.n != 1 {
			t.Fatalf("frame released %d times", owner.n)
		}
	})
}

func BenchmarkTransmit(b *testing.B) {
	dst := &packet.Address{}
	k := &carrier{router: fixedRoute{dst.GID: 1}}
	k.use(&fakeLink{})
	b.ReportAllocs()
	for b.Loop() {
		k.Transmit(dst, newPacket(packet.Send, packet.First|packet.Last))
	}
}

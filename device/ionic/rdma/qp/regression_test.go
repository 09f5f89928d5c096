// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// Public failures of this class of device, one test each.

// recorder collects what the completion queues of a node hold.
func record(n *node) *[]string {
	var got []string
	n.onCQE = func(kind string, id uint64, st qp.Status) {
		got = append(got, fmt.Sprintf("%s %d %v", kind, id, st))
	}
	n.onRecv = func(c *qp.RecvCompletion) {
		if c.Status == qp.Flushed {
			got = append(got, "recv flush")
			return
		}
		got = append(got, fmt.Sprintf("recv %d %v %d", c.ID, c.Status, c.Length))
	}
	return &got
}

func expect(t *testing.T, what string, got *[]string, want ...string) {
	t.Helper()
	if fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("%s: %q, want %q", what, *got, want)
	}
}

func datagramPair(t *testing.T) (w *world, a, b *node) {
	t.Helper()
	w = newWorld()
	a, b = w.add("a", qp.UD, 2), w.add("b", qp.UD, 3)
	for _, n := range w.nodes {
		n.quiet = true
		n.register(1, 0x10000, 8192)
		if err := n.toDatagram(7); err != nil {
			t.Fatal(err)
		}
	}
	return w, a, b
}

func TestRegression_HeaderAndCompletionOfADatagramAgree(t *testing.T) {
	for _, path := range []packet.Path{0, packet.PathIPv4, packet.PathVLAN, packet.PathIPv4 | packet.PathVLAN} {
		_, _, b := datagramPair(t)
		var got qp.RecvCompletion
		b.onRecv = func(c *qp.RecvCompletion) { got = *c }
		b.receive(1, 1, 0x10000, 4096)
		p := packet.Get(5)
		copy(p.Payload, "hello")
		p.Op, p.Flags, p.QKey, p.SrcQPN, p.Count = packet.Datagram, packet.First|packet.Last, 7, 0xabcdef, 1
		p.Path, p.VLAN, p.SrcMAC = path, 0x6005, [6]byte{2, 1, 2, 3, 4, 5}
		copy(p.GRH[:], noise(40, uint64(path)))
		grh := p.GRH
		b.q.Deliver(p)
		b.step()
		if got.Path != path || got.VLAN != 0x6005 || got.SrcMAC != [6]byte{2, 1, 2, 3, 4, 5} || got.SrcQPN != 0xabcdef || got.Length != 45 {
			t.Errorf("path %v: completion %+v", path, got)
		}
		if mem := b.keys[1].buf; !bytes.Equal(mem[:40], grh[:]) || string(mem[40:45]) != "hello" {
			t.Errorf("path %v: memory %x", path, mem[:45])
		}
	}
}

func TestRegression_UnsignalledLocalAndDatagramWorkCompletes(t *testing.T) {
	w, a, _ := datagramPair(t)
	got := record(a)
	for range 3 {
		a.post(qp.SendWork{Op: qp.OpSend, AH: 1, DestQPN: 3, QKey: 7}, 1, 0x10000, 8)
	}
	w.settle()
	expect(t, "datagrams", got, "npg 0 OK", "npg 1 OK", "npg 2 OK")

	w, a, _ = pair(t, qp.RC, plain)
	got = record(a)
	a.keys[5] = &region{invalidated: true}
	a.post(qp.SendWork{Op: qp.OpRegMR, Local: qp.LocalWork{Key: 5}}, 1, 0, 0)
	a.post(qp.SendWork{Op: qp.OpLocalInv, Local: qp.LocalWork{Key: 5}}, 1, 0, 0)
	w.settle()
	expect(t, "local work", got, "npg 0 OK", "npg 1 OK")
}

func TestRegression_WriteImmReportsTheWrittenLength(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	got := record(b)
	b.receive(4, 1, 0x10000, 8) // its own size does not matter
	a.post(qp.SendWork{Op: qp.OpWriteImm, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 1<<20+3)
	w.settle()
	expect(t, "receives", got, "recv 4 OK 1048579")
}

func TestRegression_WriteImmWithoutAReceiveWaits(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	sent, got := record(a), record(b)
	a.post(qp.SendWork{Op: qp.OpWriteImm, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 700_000)
	w.settle()
	expect(t, "before the receive", sent)
	b.receive(9, 1, 0x10000, 8)
	w.advance(qp.RNRTimer(plain.timer))
	expect(t, "sends", sent, "msn 1 OK")
	expect(t, "receives", got, "recv 9 OK 700000")
}

func TestRegression_NoSuccessAfterAFailedCopy(t *testing.T) {
	// The copy out of the sender's memory, in the middle of the message.
	w, a, b := pair(t, qp.RC, plain)
	sent, got := record(a), record(b)
	b.receive(1, 1, 0x10000, 1<<20)
	a.keys[2] = &region{va: 0x10000, buf: make([]byte, 300<<10)}
	a.post(qp.SendWork{Op: qp.OpSend}, 2, 0x10000, 600<<10)
	w.settle()
	expect(t, "sender", sent, "msn 1 LOCAL_PROT_ERR", "flush 0 WQE_FLUSHED_ERR", "recv flush")
	expect(t, "receiver", got)

	// The copy into the receiver's memory.
	w, a, b = pair(t, qp.RC, plain)
	sent, got = record(a), record(b)
	b.keys[2] = &region{va: 0x10000, buf: make([]byte, 300<<10), localWrite: true}
	b.receive(1, 2, 0x10000, 1<<20)
	a.post(qp.SendWork{Op: qp.OpSend}, 1, 0x10000, 600<<10)
	w.settle()
	expect(t, "sender", sent, "msn 1 REMOTE_OPER_ERR", "flush 0 WQE_FLUSHED_ERR", "recv flush")
	expect(t, "receiver", got, "recv 1 LOCAL_PROT_ERR 0", "flush 0 WQE_FLUSHED_ERR", "recv flush")
}

func TestRegression_BadElementFailsTheWholeList(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	sent := record(a)
	before := bytes.Clone(b.keys[1].buf)
	work := qp.SendWork{Op: qp.OpWrite, RemoteVA: 0x10000, RKey: 1, Length: 24, NumSGE: 3}
	copy(a.keys[1].buf, noise(64, 1))
	work.SGE[0] = qp.SGE{VA: 0x10000, Len: 8, Key: 1}
	work.SGE[1] = qp.SGE{VA: 0x10000, Len: 8, Key: 77}
	work.SGE[2] = qp.SGE{VA: 0x10010, Len: 8, Key: 1}
	a.sq = append(a.sq, work)
	w.settle()
	expect(t, "sender", sent, "msn 1 LOCAL_PROT_ERR", "flush 0 WQE_FLUSHED_ERR", "recv flush")
	if !bytes.Equal(b.keys[1].buf, before) {
		t.Error("memory of the peer has changed")
	}
}

func TestRegression_ReceiveLengthBeyond32Bits(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	got := record(b)
	r := qp.RecvWork{ID: 3, Length: 1<<32 + 4, NumSGE: 2}
	r.SGE[0] = qp.SGE{VA: 0x10000, Len: 100, Key: 1}
	r.SGE[1] = qp.SGE{VA: 0x20000, Len: math.MaxUint32, Key: 1}
	b.rq = append(b.rq, r)
	a.post(qp.SendWork{Op: qp.OpSend}, 1, 0x10000, 64)
	w.settle()
	expect(t, "receives", got, "recv 3 OK 64")
}

func TestRegression_RangeThatWrapsIsRefused(t *testing.T) {
	for _, op := range []qp.Op{qp.OpWrite, qp.OpRead, qp.OpWriteImm} {
		w, a, b := pair(t, qp.RC, plain)
		b.keys[1].va = math.MaxUint64 - 4095 // the region ends where addresses end
		sent := record(a)
		a.post(qp.SendWork{Op: op, RemoteVA: math.MaxUint64 - 3, RKey: 1}, 1, 0x10000, 8)
		w.settle()
		expect(t, op.String(), sent, "msn 1 REMOTE_ACC_ERR", "flush 0 WQE_FLUSHED_ERR", "recv flush")
	}
}

func TestRegression_PeerReadsBeyondAOnePageRegion(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	b.register(2, 0x10000, 4096)
	sent := record(a)
	a.post(qp.SendWork{Op: qp.OpRead, RemoteVA: 0x10000, RKey: 2}, 1, 0x10000, 4097)
	w.settle()
	expect(t, "reader", sent, "msn 1 REMOTE_ACC_ERR", "flush 0 WQE_FLUSHED_ERR", "recv flush")
}

func TestRegression_ResponseDoesNotWaitBehindABlockedSend(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	blocked, reads := record(a), record(b)
	a.post(qp.SendWork{Op: qp.OpSend}, 1, 0x10000, 64) // b has no receive
	w.settle()
	b.post(qp.SendWork{Op: qp.OpRead, RemoteVA: 0x10000, RKey: 1}, 1, 0x10000, 64)
	w.settle()
	expect(t, "blocked sender", blocked)
	expect(t, "reader", reads, "msn 1 OK")
}

func TestRegression_QueryReturnsWhatWasSetAndLivePSNs(t *testing.T) {
	o := options{mtu: 9, timeout: 13, retry: 5, rnr: 4, timer: 9, depth: 3, psnA: 0xfffffe, psnB: 77, access: qp.RemoteRead}
	w, a, b := pair(t, qp.RC, o)
	a.post(qp.SendWork{Op: qp.OpWrite, RKey: 1, RemoteVA: 0x10000}, 1, 0x10000, 0)
	a.post(qp.SendWork{Op: qp.OpWrite, RKey: 1, RemoteVA: 0x10000}, 1, 0x10000, 0)
	a.post(qp.SendWork{Op: qp.OpWrite, RKey: 1, RemoteVA: 0x10000}, 1, 0x10000, 0)
	w.settle()
	want := qp.Attr{
		State: qp.RTS, Access: qp.RemoteRead, DestQPN: 3, PathMTU: 9, Timeout: 13, RetryCnt: 5, RNRRetry: 4,
		MinRNRTimer: 9, RQPSN: 77, SQPSN: 1, MaxRead: 3, MaxDestRead: 3,
		Dest: packet.Address{GID: b.gid}, SrcGID: a.gid,
	}
	if got := a.q.Query(); got != want {
		t.Errorf("sender\n got %+v\nwant %+v", got, want)
	}
	if got := b.q.Query().RQPSN; got != 1 {
		t.Errorf("receiver expects PSN %d, want 1", got)
	}
}

func TestRegression_CompareAndSwapThatMissesDoesNotWrite(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	copy(b.keys[1].buf, noise(16, 9))
	before := bytes.Clone(b.keys[1].buf[:16])
	a.post(qp.SendWork{Op: qp.OpCompareSwap, RemoteVA: 0x10000, RKey: 1, Operand: 1, Compare: 2}, 1, 0x10000, 8)
	w.settle()
	if !bytes.Equal(b.keys[1].buf[:16], before) {
		t.Error("memory has changed")
	}
	if !bytes.Equal(a.keys[1].buf[:8], before[:8]) {
		t.Errorf("the original value %x was not returned: %x", before[:8], a.keys[1].buf[:8])
	}
}

func TestRegression_PostsInErrorAreIgnored(t *testing.T) {
	w, a, b := pair(t, qp.RC, plain)
	got := record(a)
	if err := a.q.Modify(qp.MaskState, &qp.Attr{State: qp.Err}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		a.post(qp.SendWork{Op: qp.OpWrite, RKey: 1, RemoteVA: 0x10000}, 1, 0x10000, 8)
		a.receive(1, 1, 0x10000, 8)
		w.settle()
	}
	expect(t, "completions", got, "flush 0 WQE_FLUSHED_ERR", "recv flush")
	if len(w.wire) > 0 || b.count[qp.RxPackets] > 0 {
		t.Error("a QP in error has sent")
	}
}

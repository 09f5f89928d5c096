// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// The first commands of the driver, with the exact bytes of every answer.
func TestProbe_FollowsTheDriver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t, newFabric(), 1, options{})
		n.probe()
		n.settle()
		if got := n.interrupts(7); got != 0 {
			t.Fatalf("arming the empty CQ interrupted %d times", got)
		}

		buf := n.ram.Alloc(4096)
		n.post(abi.AdminStatsHeaders, &abi.Stats{DMA: buf, Length: 4096})
		n.ringAdmin()
		n.settle()
		if got := n.interrupts(7); got != 1 {
			t.Fatalf("STATS_HDRS interrupted %d times", got)
		}
		if got := n.ram.Read(n.eqs[2].at, 8); string(got) != "\x00\x00\x00\x01\x00\x00\x00\x00" {
			t.Fatalf("EQ 2 starts with %x", got)
		}
		if e := n.isr(n.eqs[2]); len(e) != 1 || e[0] != (abi.EQE{Type: abi.EventCQ, Code: abi.EventCQNotify, QID: 0}) {
			t.Fatalf("events %+v", e)
		}
		n.expect(n.acq, "0000 04 00 00000000 0000000000000000 0000000000000000 00000000 00000001")
		n.arm(n.acq, abi.RingArm)

		var first abi.Stat
		first.Get(n.ram.Read(buf, 32))
		if first != (abi.Stat{Type: abi.StatLE64, Offset: 384, Name: "tx_rdma_ucast_bytes"}) {
			t.Fatalf("first counter %+v", first)
		}

		// The MAD layer.
		for i, id := range []uint32{1, 8} {
			q := &compRing{id: id, at: n.ram.Alloc(32 << 10), depth: 10}
			n.must(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2 + uint32(i), DepthLog2: 10, StrideLog2: 5, ID: id, MapCount: 1, DMA: q.at})
			n.arm(q, abi.RingArm)
		}
		sq, rq := n.ram.Alloc(16<<10), n.ram.Alloc(64<<10)
		n.must(abi.AdminCreateQP, &abi.CreateQP{
			Flags: 0x8300, ID: 1, Type: abi.TypeUD,
			SQ: abi.RingDesc{CQ: 1, DepthLog2: 8, StrideLog2: 6, MapCount: 1, DMA: sq},
			RQ: abi.RingDesc{CQ: 1, DepthLog2: 10, StrideLog2: 6, MapCount: 1, DMA: rq},
		})
		n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x51, State: 1, QKeyDestQPN: 0x80010000, ID: 1})
		n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x1, State: 2, ID: 1})
		n.must(abi.AdminModifyQP, &abi.ModifyQP{Mask: 0x10001, State: 3, ID: 1})
		for i := range 512 {
			n.ring(0, 6, abi.Doorbell{Index: uint16(i + 1), QID: 1})
		}
		n.settle()
	})
}

// Unloading the driver is one command; nothing may be written or raised after
// it, and loading again finds an empty device.
func TestResetLIF_ForgetsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFabric()
		n := newNode(t, f, 1, options{})
		for range 3 {
			n.ids = 16
			n.probe()
			p := n.createQP(qpOptions{})
			p.connect(p)
			at, key := n.region(4096, 0, mrAll)
			n.mustCommand(abi.QueueCommand{Opcode: abi.CmdResetLIF})
			for _, q := range n.eqs {
				if m := n.bank.Read(uint64(q.vec)*32 + 4); m != 1 {
					t.Fatalf("vector %d is open after the reset", q.vec)
				}
			}
			before := n.ram.Read(p.scq.at, 4096)
			p.postRecv(0, sge{at, 4096, key})
			p.postSend(p.send(abi.OpSend, sge{at, 64, key}))
			n.arm(n.acq, abi.RingArm)
			n.post(abi.AdminNoop, nil)
			n.ringAdmin()
			n.settle()
			if string(before) != string(n.ram.Read(p.scq.at, 4096)) {
				t.Fatal("the CQ was written after the reset")
			}
			if _, ok := n.poll(n.acq); ok {
				t.Fatal("a command completed after the reset")
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// What a guest may have at once, and more.
const (
	manyQPs = 10_000
	manyMRs = 100_000
	manyAHs = 10_000
)

// What the identity promises is really there at the same time, works to the
// last id, and an idle engine is small.
func TestCapacity_AllThatIsAdvertised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		runtime.GC()
		var before, idle, full runtime.MemStats
		runtime.ReadMemStats(&before)
		n := newProbed(t)
		runtime.ReadMemStats(&idle)
		if size := int64(idle.HeapAlloc) - int64(before.HeapAlloc); size > 2<<20 {
			t.Errorf("an idle engine takes %d KiB", size>>10)
		}
		n.populate(n.drainAdmin, manyQPs, manyMRs, manyAHs)
		runtime.ReadMemStats(&full)
		t.Logf("%d QPs and CQs, %d MRs and %d AHs take %d MiB", manyQPs, manyMRs, manyAHs, (full.HeapAlloc-idle.HeapAlloc)>>20)
		want := rdma.Objects{EQs: 4, CQs: 1 + manyQPs, QPs: manyQPs, MRs: manyMRs, AHs: manyAHs}
		if got := n.engine.Objects(); got != want {
			t.Errorf("the engine has %+v, want %+v", got, want)
		}
		// The last queue pair sends through the last region and, as the last
		// handle's user, to itself.
		p := n.createQP(qpOptions{id: firstMany + manyQPs, scq: n.createCQ(8, 0)})
		p.connect(p)
		at, key := n.manyPage, uint32(firstMany+manyMRs-1)<<8
		data := n.fill(at, 64, 9)
		p.postSend(p.send(abi.OpWrite, sge{at, 64, key}).remote(at+1024, key))
		n.expect(p.scq, msnCQE(1, p.id))
		if !bytes.Equal(n.ram.Read(at+1024, 64), data) {
			t.Error("other bytes arrived")
		}
		d := n.datagramQP(qpOptions{}, 7)
		d.postRecv(1, sge{at, 256, key})
		d.postSend(d.sendTo(firstMany+manyAHs-1, d.id, 7, sge{at + 1024, 64, key}))
		n.settle()
		if c, ok := n.poll(d.rcq); !ok || c.Error {
			t.Errorf("a datagram through the last address handle: %+v, %v", c, ok)
		}
		n.mustCommand(abi.QueueCommand{Opcode: abi.CmdResetLIF})
		if got := n.engine.Objects(); got != (rdma.Objects{}) {
			t.Errorf("after the reset the engine has %+v", got)
		}
	})
}

// firstMany is the first id of what populate makes.
const firstMany = 1000

// populate makes many objects, all with one page of memory: queue pairs with a
// CQ each, regions, address handles. drain rings the admin queue and waits.
func (n *node) populate(drain func(), qps, mrs, ahs uint32) {
	page := n.ram.Alloc(4096)
	n.manyPage = page
	tmpl := n.template(n)
	at := n.ram.Alloc(64)
	n.ram.Write(at, tmpl)
	posted := 0
	post := func(op uint8, b body) {
		n.post(op, b)
		if posted++; posted%100 == 0 {
			drain()
		}
	}
	for i := range qps {
		post(abi.AdminCreateCQ, &abi.CreateCQ{EQ: 2, DepthLog2: 7, StrideLog2: 5, ID: firstMany + i, MapCount: 1, DMA: page})
	}
	drain()
	for i := range qps {
		ring := abi.RingDesc{CQ: firstMany + i, DepthLog2: 6, StrideLog2: 6, MapCount: 1, DMA: page}
		post(abi.AdminCreateQP, &abi.CreateQP{ID: firstMany + i, SQ: ring, RQ: ring})
	}
	for i := range mrs {
		post(abi.AdminCreateMR, &abi.CreateMR{VA: page, Length: 4096, ID: (firstMany + i) << 8, MapCount: 1, DMA: page, Flags: mrAll})
	}
	for i := range ahs {
		post(abi.AdminCreateAH, &abi.CreateAH{DMA: at, Length: uint32(len(tmpl)), ID: firstMany + i})
	}
	drain()
}

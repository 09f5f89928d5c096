// SPDX-License-Identifier: Apache-2.0

package cq

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/internal/testram"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

func failedAndFlush() (*abi.CQE, *abi.CQE) {
	return &abi.CQE{Type: abi.CQESendMSN, QID: 20, MSN: 7, Error: true, StatusLength: 9},
		&abi.CQE{Type: abi.CQESendNPG, QID: 20, Error: true, StatusLength: abi.StatusFlushed}
}

func TestPostFailed_WritesBothInOrderWithOneEvent(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	for lap := range 5 {
		g.arm(abi.RingArm)
		g.q.PostFailed(failedAndFlush())
		if n, failed := g.events(); n != 1 || failed != 0 {
			t.Fatalf("lap %d: %d events, %d errors", lap, n, failed)
		}
		a, ok1 := g.poll()
		b, ok2 := g.poll()
		if !ok1 || !ok2 || a.Type != abi.CQESendMSN || a.MSN != 7 || a.StatusLength != 9 || b.Type != abi.CQESendNPG || b.StatusLength != abi.StatusFlushed {
			t.Fatalf("lap %d: %+v %v, %+v %v", lap, a, ok1, b, ok2)
		}
		if _, more := g.poll(); more {
			t.Fatalf("lap %d: a third completion", lap)
		}
		g.consumed()
	}
}

// The guest may look at any moment: what it must find behind the failed
// request is there before the failed request is.
func TestPostFailed_WritesTheFlushFirst(t *testing.T) {
	const lower = 3 // entries in front of the border of two windows
	var border uint64
	g := newGuest(t, Config{DepthLog2: 3}, func(g *guest) (m pbl.Map) {
		border = testram.Base + g.ram.Size/2
		m.Contiguous(border - lower*abi.CQELen)
		return m
	})
	for i := range uint32(lower - 1) {
		g.q.Post(msn(i+1), false)
	}
	// The place of the failed request is gone, that of the flush is not.
	if err := g.ram.Space.Unmap(testram.Base, g.ram.Size/2); err != nil {
		t.Fatal(err)
	}
	g.q.PostFailed(failedAndFlush())
	var c abi.CQE
	b := g.ram.Read(border, abi.CQELen)
	if c.Get(b); c.Type != abi.CQESendNPG || c.StatusLength != abi.StatusFlushed || b[abi.CQELen-1]&abi.CQEColor == 0 {
		t.Errorf("behind the border is %x", b)
	}
	if g.q.Stats().Lost == 0 {
		t.Error("nothing is counted as lost")
	}
}

func TestPostFailed_WaitsForRoomLikeAnyOther(t *testing.T) {
	g := newGuest(t, Config{DepthLog2: 2}, nil)
	g.q.Post(msn(1), false)
	g.q.Post(msn(2), false)
	g.q.PostFailed(failedAndFlush()) // room for one
	for i := range 4 {
		c, ok := g.poll()
		if !ok || (c.Type == abi.CQESendNPG) != (i == 3) {
			t.Fatalf("completion %d is %+v, %v", i, c, ok)
		}
		g.consumed()
		g.q.Drain()
	}
	g.q.Stop()
	g.q.PostFailed(failedAndFlush())
	if _, ok := g.poll(); ok {
		t.Error("written after Stop")
	}
}

// SPDX-License-Identifier: Apache-2.0

// Under the race detector sync.Pool forgets entries on purpose.
//go:build !race

package qp_test

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

func TestStep_AllocatesNothingInTheSteadyState(t *testing.T) {
	for _, c := range []struct {
		op   qp.Op
		size uint32
	}{{qp.OpSend, 64}, {qp.OpSend, 4096}, {qp.OpWrite, 64}, {qp.OpWrite, 4096}, {qp.OpWriteImm, 64}, {qp.OpRead, 4096}, {qp.OpFetchAdd, 8}} {
		x, y := benchPair(t, qp.RC)
		x.work = qp.SendWork{Op: c.op, Length: c.size, Signaled: true, NumSGE: 1}
		move(x, y, 1000, 64)
		allocs := testing.AllocsPerRun(20, func() {
			x.done = 0
			move(x, y, 1000, 64)
		})
		// The packet pools may lose an entry to the garbage collector.
		if allocs > 20 {
			t.Errorf("%v of %d bytes: %v allocations per 1000 messages", c.op, c.size, allocs)
		}
	}
}

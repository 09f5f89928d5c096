// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

func TestQueuePairs_AddUpToTheCountersOfTheDevice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, pa, pb := twoNodes(t, abi.TypeRC)
		src, skey := a.region(4096, 0, mrAll)
		dst, dkey := b.region(4096, 0, mrAll)
		pb.postRecv(1, sge{dst, 4096, dkey})
		pa.postSend(pa.send(abi.OpSend, sge{src, 3000, skey}))
		a.expect(pa.scq, msnCQE(1, pa.id))

		sum := map[string]uint64{}
		seen := 0
		a.engine.QueuePairs(func(q *rdma.QueuePair) bool {
			seen++
			q.Counters(func(name string, v uint64) { sum[name] += v })
			if q.ID == pa.id && (q.Type != qp.RC || q.State != qp.RTS || q.Peer != pb.id) {
				t.Errorf("queue pair %+v, want RC in RTS to %d", q, pb.id)
			}
			return true
		})
		if seen != a.engine.Objects().QPs {
			t.Errorf("%d queue pairs are shown, %d are alive", seen, a.engine.Objects().QPs)
		}
		if sum["tx_rdma_ucast_bytes"] != 3000 || sum["tx_rdma_ucast_pkts"] != 1 {
			t.Errorf("a message of 3000 bytes is counted as %d bytes, %d packets", sum["tx_rdma_ucast_bytes"], sum["tx_rdma_ucast_pkts"])
		}
		a.engine.Counters(func(name string, v uint64) {
			if w, ok := sum[name]; ok && w != v {
				t.Errorf("%s: %d of all queue pairs, %d of the device", name, w, v)
			}
		})
		seen = 0
		b.engine.QueuePairs(func(*rdma.QueuePair) bool {
			seen++
			return false
		})
		if seen != 1 {
			t.Errorf("%d queue pairs after the first was enough", seen)
		}
	})
}

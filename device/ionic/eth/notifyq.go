// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// notifyQueue is the ring of events the device sends. It has no colour: the
// driver compares the event id, which counts from 1, as the last word written.
//
//	 0      8      10       12      16                64
//	| eid  | code | status | speed |     reserved     |
type notifyQueue struct {
	on     bool
	vec    int
	mask   uint64
	events uint64 // DMA address
	sent   uint64
}

// notifyEvents is where the events start in the ring, as an offset: behind the
// descriptors, which are never used, on the next page.
func notifyEvents(ringLog2 uint8) uint64 {
	descs := uint64(abi.NotifyDescSize) << ringLog2
	return (descs + abi.PageSize - 1) &^ (abi.PageSize - 1)
}

func (n *notifyQueue) init(q *abi.QInit) {
	*n = notifyQueue{on: true, vec: int(q.Intr), mask: 1<<q.RingLog2 - 1, events: q.Ring + notifyEvents(q.RingLog2)}
}

// notifyLink sends a LINK_CHANGE event. Holds ctl.
func (l *LIF) notifyLink(e abi.NotifyLink) {
	n := &l.ctl.notify
	if !n.on || !l.ctl.busMaster || l.ctl.mem == nil {
		return
	}
	at := n.events + (n.sent&n.mask)*abi.NotifyEventSize
	n.sent++
	l.pub.storeLIFEID(n.sent)
	err := l.ctl.mem.StoreUint64(at+8, e.Body())
	if err == nil {
		err = l.ctl.mem.StoreUint64(at, n.sent)
	}
	if err != nil {
		l.log.Warn().Str("side", "guest").Err(err).Msg("notify queue event cannot be written")
		return
	}
	l.cfg.Bank.Post(n.vec, 1)
}

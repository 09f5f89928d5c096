// SPDX-License-Identifier: Apache-2.0

package rdma

import "github.com/ernic-dev/ernic/device/ionic/rdma/abi"

// Doorbell takes the value stored to slot of the doorbell page of process pid.
// It records an index and hands over; it neither blocks nor allocates. A
// doorbell for a queue that does not exist, or is of another process, is
// ignored and counted.
func (e *Engine) Doorbell(pid uint32, slot uint8, value uint64) {
	d, ok := abi.DecodeDoorbell(value)
	if !ok || !e.current.Load().ring(pid, slot, d) {
		e.stats.badDoorbells.Add(1)
	}
}

// ring hands a doorbell over to its queue; false when there is none.
func (l *lif) ring(pid uint32, slot uint8, d abi.Doorbell) bool {
	switch slot {
	case SlotSQ:
		q := l.qps.Get(d.QID)
		if q == nil || uint32(q.dbid) != pid || d.Ring != abi.RingIndex {
			return false
		}
		q.sq.produce(d.Index)
		q.actor.Schedule()
	case SlotRQ:
		q := l.qps.Get(d.QID)
		if q == nil || uint32(q.dbid) != pid || d.Ring != abi.RingIndex {
			return false
		}
		q.rq.produce(d.Index)
		if q.flushing.Load() {
			q.actor.Schedule()
		}
	case SlotCQ:
		c := l.cqs.Get(d.QID)
		return c != nil && uint32(c.DBID) == pid && c.Doorbell(d)
	case SlotAQ:
		if d.QID >= uint32(len(l.aqs)) {
			return false
		}
		a := l.aqs[d.QID].Load()
		if a == nil || uint32(a.dbid) != pid || d.Ring != abi.RingIndex {
			return false
		}
		a.produce(d.Index)
	default:
		return false
	}
	return true
}

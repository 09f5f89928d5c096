// SPDX-License-Identifier: Apache-2.0

package rdma

import "github.com/ernic-dev/ernic/device/ionic/rdma/qp"

// Objects are the numbers of objects the driver has made.
type Objects struct{ EQs, CQs, QPs, MRs, AHs int }

// Objects counts what there is now.
func (e *Engine) Objects() Objects {
	l := e.current.Load()
	o := Objects{CQs: l.cqs.Len(), QPs: l.qps.Len(), MRs: l.mrs.Len(), AHs: l.ahs.Len()}
	for i := range l.eqs {
		if l.eqs[i].Load() != nil {
			o.EQs++
		}
	}
	return o
}

// Counters calls f for every counter of the engine: the hw_counters the guest
// sees, under their names, then those of the device alone (rdma_...).
func (e *Engine) Counters(f func(name string, value uint64)) {
	v := e.sum()
	for i := range counters {
		c := &counters[i]
		if c.from < qp.NumCounters {
			f(c.name, v[c.from])
		} else {
			f(c.name, 0)
		}
	}
	for _, c := range e.stats.device() {
		f(c.name, c.v.Load())
	}
}

// QueuePair is what is known of one living QP.
type QueuePair struct {
	ID    uint32
	Type  qp.Type
	State qp.State
	Peer  uint32 // QP number of the other side; 0 unless connected

	counts [qp.NumCounters]uint64
}

// Counters calls f for every hw_counter that is kept per QP, under its name, in
// the order of the list the guest is given.
func (q *QueuePair) Counters(f func(name string, value uint64)) {
	for i := range counters {
		if c := &counters[i]; !c.ofLIF {
			f(c.name, q.counts[c.from])
		}
	}
}

// QueuePairs calls f for the living QPs in the order of their numbers until f
// returns false. What f is given is valid during the call.
func (e *Engine) QueuePairs(f func(*QueuePair) bool) {
	var v QueuePair
	e.current.Load().qps.All(func(id uint32, q *queuePair) bool {
		a := q.core.Query()
		v.ID, v.Type, v.State, v.Peer = id, q.typ, a.State, a.DestQPN
		for i := range v.counts {
			v.counts[i] = q.counters[i].Load()
		}
		return f(&v)
	})
}

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

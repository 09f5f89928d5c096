// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/cq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/eq"
	"github.com/ernic-dev/ernic/device/ionic/rdma/header"
	"github.com/ernic-dev/ernic/device/ionic/rdma/idtable"
	"github.com/ernic-dev/ernic/device/ionic/rdma/mr"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
	"github.com/ernic-dev/ernic/device/ionic/rdma/sched"
)

// lif holds the objects the driver has made since the last reset.
type lif struct {
	engine *Engine
	mem    *guestmem.Space // nil: no guest
	budget *pbl.Budget
	room   atomic.Int64 // completions that may still be held back

	eqs     []atomic.Pointer[eq.Queue] // by EQ id
	vectors []atomic.Pointer[eq.Queue] // by interrupt vector
	aqs     []atomic.Pointer[adminQueue]
	cqs     *idtable.Table[completionQueue]
	qps     *idtable.Table[queuePair]
	ahs     *idtable.Table[addressHandle]
	mrs     *mr.Table
}

func newLIF(e *Engine, mem *guestmem.Space) *lif {
	l := &e.config.Limits
	f := &lif{
		engine:  e,
		mem:     mem,
		budget:  pbl.NewBudget(int64(l.PageTables)),
		eqs:     make([]atomic.Pointer[eq.Queue], l.EQs),
		vectors: make([]atomic.Pointer[eq.Queue], e.config.Interrupts.Len()),
		aqs:     make([]atomic.Pointer[adminQueue], l.AQs),
		cqs:     idtable.New[completionQueue](l.CQs),
		qps:     idtable.New[queuePair](l.QPs),
		ahs:     idtable.New[addressHandle](l.AHs),
	}
	f.mrs = mr.New(l.MRs, mem, f.budget)
	f.room.Store(int64(l.HeldCQEs))
	return f
}

// end stops everything. When it returns nothing of this life touches guest
// memory or interrupts.
func (l *lif) end() {
	for i := range l.aqs {
		if a := l.aqs[i].Load(); a != nil {
			a.stop()
		}
	}
	l.qps.All(func(_ uint32, q *queuePair) bool {
		q.end()
		return true
	})
	l.cqs.All(func(_ uint32, c *completionQueue) bool {
		c.Stop()
		return true
	})
	for i := range l.eqs {
		if q := l.eqs[i].Load(); q != nil {
			q.Stop()
			// The driver frees the vectors of EQs without masking them, and
			// the Ethernet half may get them next.
			l.engine.config.Interrupts.Reset(q.Vector)
		}
	}
	l.mrs.Clear()
}

func (l *lif) eqOfVector(vec int) *eq.Queue {
	if uint(vec) >= uint(len(l.vectors)) {
		return nil
	}
	return l.vectors[vec].Load()
}

// eventQueue is the EQ for asynchronous events of a QP: EQ 0 or 1, which no CQ
// uses. nil when the driver has not made it.
func (l *lif) eventQueue(qpn uint32) *eq.Queue {
	i := qpn >> udmaShift & 1
	if i >= uint32(len(l.eqs)) {
		return nil
	}
	return l.eqs[i].Load()
}

// completionQueue is a CQ with the actor that writes held-back completions.
type completionQueue struct {
	*cq.Queue
	actor sched.Actor
}

// Run writes what the guest has made room for.
func (c *completionQueue) Run(time.Time) bool {
	c.Drain()
	return false
}

// addressHandle is a template by id: of CREATE_AH, or of a connected QP.
type addressHandle struct {
	pd       uint32
	template *header.Template
}

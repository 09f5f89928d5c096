// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/ionic/rdma/sched"
	"github.com/ernic-dev/ernic/device/ionic/rdma/wqe"
)

// Engine is the RDMA half of one NIC. All methods are safe for concurrent use.
type Engine struct {
	config Config
	log    zerolog.Logger
	sched  *sched.Scheduler

	current atomic.Pointer[lif] // never nil

	control sync.Mutex // serialises Command, Attach, Reset and Close
	closed  bool

	stats  stats
	parked parking
	share  qp.Share
	ways   ways
}

// New returns an engine without guest memory: commands fail until Attach.
func New(c Config) (*Engine, error) {
	c.Limits.setDefaults()
	if err := c.Limits.check(); err != nil {
		return nil, err
	}
	if c.Opcodes == 0 {
		c.Opcodes = wqe.V1
	}
	if c.Opcodes > wqe.V2 {
		return nil, fmt.Errorf("rdma: opcodes of version %d are not known", c.Opcodes)
	}
	if c.Interrupts == nil || c.Link == nil {
		return nil, errors.New("rdma: an engine needs Interrupts and a Link")
	}
	e := &Engine{
		config: c,
		// A guest can make every command fail; the log must not drown in it.
		log:   c.Log.Sample(&zerolog.BurstSampler{Burst: 20, Period: 10 * time.Second}),
		sched: sched.New(c.Workers),
	}
	e.stats.life = newLIF(e, nil)
	e.current.Store(e.stats.life)
	return e, nil
}

// Attach gives the engine the memory of a new guest and forgets the old one.
func (e *Engine) Attach(mem *guestmem.Space) {
	e.control.Lock()
	defer e.control.Unlock()
	if e.closed {
		return
	}
	e.replace(mem)
	e.stats.clear()
}

// Reset forgets every object and sets the counters back. When it returns,
// nothing reads or writes guest memory, and nothing interrupts, until the
// driver creates objects again. It must not be called from the Link or the
// Interrupts.
func (e *Engine) Reset() {
	e.control.Lock()
	defer e.control.Unlock()
	if e.closed {
		return
	}
	e.replace(e.current.Load().mem)
	e.stats.clear()
}

// Close ends the engine for good. Packets delivered later are dropped.
func (e *Engine) Close() {
	e.control.Lock()
	defer e.control.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.replace(nil)
	e.sched.Close()
}

// replace starts a new life with mem and ends the old one. Caller holds
// control.
func (e *Engine) replace(mem *guestmem.Space) {
	life := newLIF(e, mem)
	old := e.current.Swap(life)
	old.end()
	e.stats.turn(old, life)
	e.parked.clear()
}

// Deliver takes a packet that arrived for a QP of this engine. It never
// blocks; what no QP wants is dropped and counted.
func (e *Engine) Deliver(p *packet.Packet) {
	q := e.current.Load().qps.Get(p.DstQPN)
	if q == nil {
		e.stats.count(qp.DropNoQP)
		p.Release()
		return
	}
	if q.core.Deliver(p) {
		q.actor.Schedule()
	}
}

// Unmasking must be called when the guest unmasks interrupt vector vec, by
// mask = 0 or by credits with UNMASK, before the vector can interrupt again.
// It never blocks for long and does not allocate in the steady state.
func (e *Engine) Unmasking(vec int) {
	if q := e.current.Load().eqOfVector(vec); q != nil {
		q.Unmasking()
	}
}

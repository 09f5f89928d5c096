// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// adminQueue is an RDMA admin queue: a ring of 64-byte strides and a goroutine
// that executes its commands one after another.
type adminQueue struct {
	lif  *lif
	id   uint32
	dbid uint16
	base uint64
	mask uint32
	cq   *completionQueue

	prod  atomic.Uint32 // as the guest rang it
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
	ended atomic.Bool

	// Of the goroutine.
	cons  uint32
	frame [abi.MaxAdminBytes]byte // the command at hand
}

func startAdminQueue(l *lif, c *abi.QueueCommand, completions *completionQueue) *adminQueue {
	a := &adminQueue{
		lif: l, id: c.ID, dbid: c.DBID, base: c.DMA, mask: 1<<c.DepthLog2 - 1, cq: completions,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go a.serve()
	return a
}

// produce takes a doorbell.
func (a *adminQueue) produce(index uint16) {
	a.prod.Store(uint32(index) & a.mask)
	select {
	case a.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// stop ends the goroutine after the command it is at.
func (a *adminQueue) stop() {
	if !a.ended.Swap(true) {
		close(a.quit)
	}
	<-a.done
}

func (a *adminQueue) serve() {
	defer close(a.done)
	for {
		select {
		case <-a.quit:
			return
		case <-a.wake:
		}
		for a.cons != a.prod.Load() && !a.ended.Load() {
			a.next()
		}
	}
}

// next executes the command at the consumer index and completes it. A command
// that cannot be read completes with an error: one that does not complete
// within 2 s costs the guest its RDMA device.
func (a *adminQueue) next() {
	first := a.cons
	ready := (a.prod.Load() - first) & a.mask
	op, used, err := a.fetch(first, ready)
	a.cons = (first + used) & a.mask
	if err == nil {
		err = a.lif.execute(op, a.frame[:])
	}
	done := abi.CQE{Type: abi.CQEAdmin, QID: a.id, CmdIndex: uint16(first), CmdOp: op}
	if err != nil {
		done.Error = true
		done.StatusLength = uint32(refused(err))
		e := a.lif.engine
		e.stats.adminErrors.Add(1)
		e.log.Warn().Err(err).Str("command", abi.AdminOpName(op)).Uint32("queue", a.id).Msg("RDMA admin command of the guest failed")
	}
	a.cq.Post(&done, err != nil)
}

// refused is the status for the guest.
func refused(err error) abi.AdminStatus {
	var r *abi.Refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return abi.AdminBadAttr
}

// fetch copies the command at stride first into the frame and tells how many
// of the ready strides it takes. Bytes beyond the command are zero: the ring
// holds old ones there.
func (a *adminQueue) fetch(first, ready uint32) (op uint8, used uint32, err error) {
	if err := a.read(0, first); err != nil {
		return 0, 1, abi.Refuse(abi.AdminBadCmd, "admin queue %d: entry %d: %v", a.id, first, err)
	}
	op, n := abi.AdminHeader(a.frame[:])
	used = abi.AdminStrides(n)
	if used > ready {
		return op, ready, abi.Refuse(abi.AdminBadCmd, "admin queue %d: entry %d: %d bytes of command pass the producer", a.id, first, n)
	}
	if used > 1 {
		if err := a.read(1, (first+1)&a.mask); err != nil {
			return op, used, abi.Refuse(abi.AdminBadCmd, "admin queue %d: entry %d: %v", a.id, first, err)
		}
	}
	if int(n)+abi.AdminHeaderLen < len(a.frame) {
		clear(a.frame[int(n)+abi.AdminHeaderLen:])
	}
	return op, used, nil
}

// read copies stride index of the ring to stride i of the frame.
func (a *adminQueue) read(i int, index uint32) error {
	return a.lif.mem.ReadAt(a.frame[i*abi.AdminStride:(i+1)*abi.AdminStride], a.base+uint64(index)*abi.AdminStride)
}

// handlers are the commands and the least length of their bodies. QUERY_AH is
// not among them: its body (struct ionic_admin_query_ah) says where the answer
// goes and not which handle is meant. No driver sends it; ibv_query_ah is
// answered from the kernel's own copy.
var handlers = [abi.NumAdminOps]struct {
	body int
	run  func(l *lif, b []byte) error
}{
	abi.AdminNoop:         {0, func(*lif, []byte) error { return nil }},
	abi.AdminCreateCQ:     {abi.CreateCQLen, (*lif).adminCreateCQ},
	abi.AdminCreateQP:     {abi.CreateQPLen, (*lif).adminCreateQP},
	abi.AdminCreateMR:     {abi.CreateMRLen, (*lif).adminCreateMR},
	abi.AdminStatsHeaders: {abi.StatsLen, (*lif).adminStatsHeaders},
	abi.AdminStatsValues:  {abi.StatsLen, (*lif).adminStatsValues},
	abi.AdminDestroyMR:    {abi.DestroyLen, (*lif).adminDestroyMR},
	abi.AdminDestroyCQ:    {abi.DestroyLen, (*lif).adminDestroyCQ},
	abi.AdminModifyQP:     {abi.ModifyQPLen, (*lif).adminModifyQP},
	abi.AdminQueryQP:      {abi.QueryQPLen, (*lif).adminQueryQP},
	abi.AdminDestroyQP:    {abi.DestroyLen, (*lif).adminDestroyQP},
	abi.AdminCreateAH:     {abi.CreateAHLen, (*lif).adminCreateAH},
	abi.AdminDestroyAH:    {abi.DestroyLen, (*lif).adminDestroyAH},
	abi.AdminQPStatsHdrs:  {abi.StatsLen, (*lif).adminQPStatsHeaders},
	abi.AdminQPStatsVals:  {abi.StatsLen, (*lif).adminQPStatsValues},
}

// execute runs the command op, whose header and body are b.
func (l *lif) execute(op uint8, b []byte) error {
	if op >= abi.NumAdminOps || handlers[op].run == nil {
		return abi.Refuse(abi.AdminBadCmd, "%s (%d) is not offered", abi.AdminOpName(op), op)
	}
	h := &handlers[op]
	if _, n := abi.AdminHeader(b); int(n) < h.body {
		return abi.Refuse(abi.AdminBadCmd, "%s: body of %d bytes, want %d", abi.AdminOpName(op), n, h.body)
	}
	return h.run(l, b)
}

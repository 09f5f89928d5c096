// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// adminQueue is the queue of commands in guest memory. The driver keeps at most
// 15 outstanding and needs one completion per descriptor, in order.
type adminQueue struct {
	prod  atomic.Uint32 // from the doorbell
	wake  chan struct{}
	apart atomic.Bool // all commands of this guest were empty so far

	// Guarded by LIF.ctl.
	on    bool
	heard bool // a command of this guest was not empty
	vec   int
	mask  uint32
	descs uint64
	comps uint64
	cons  uint32
	color bool
}

// kick makes the worker look at the queue.
func (a *adminQueue) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *adminQueue) init(q *abi.QInit) {
	a.on = true
	a.vec, a.mask = int(q.Intr), 1<<q.RingLog2-1
	a.descs, a.comps = q.Ring, q.CQ
	a.cons, a.color = 0, true
	a.prod.Store(0)
}

func (a *adminQueue) clear() { a.on = false }

// MemoryApart reports that the driver rang for commands and there was nothing
// where they should be. No driver sends an empty command by this queue: the
// memory it wrote to and the memory that is read here are not the same. So it is
// with a memory backend that is a file but private to the guest (share=off).
func (l *LIF) MemoryApart() bool { return l.admin.apart.Load() }

// listen takes note of whether a command is an empty one. Holds ctl.
func (a *adminQueue) listen(l *LIF, cmd *abi.Command) {
	switch empty := *cmd == (abi.Command{}); {
	case !empty && !a.heard:
		a.heard = true
		a.apart.Store(false)
	case empty && !a.heard && !a.apart.Swap(true):
		l.log.Error().Str("side", "guest").Msg("the driver rang for an admin command and there is none in its memory: " +
			"the guest's memory is not shared with this worker; QEMU's memory backend needs share=on")
	}
}

// serveAdmin is the worker of the admin queue.
func (l *LIF) serveAdmin() {
	for {
		select {
		case <-l.done:
			return
		case <-l.admin.wake:
		}
		for l.adminCommand() {
		}
	}
}

// adminCommand executes one command of the admin queue and reports whether
// there may be more. The lock is given up between commands so that a device
// command or a reset gets its turn.
func (l *LIF) adminCommand() bool {
	l.ctl.Lock()
	defer l.ctl.Unlock()
	a := &l.admin
	if !a.on || !l.ctl.busMaster || l.ctl.mem == nil || (a.prod.Load()-a.cons)&a.mask == 0 {
		return false
	}
	slot := a.cons
	a.cons = (a.cons + 1) & a.mask
	var cmd abi.Command
	var comp abi.Completion
	if err := l.ctl.mem.ReadAt(cmd[:], a.descs+uint64(slot)*abi.AdminDescSize); err != nil {
		l.log.Warn().Str("side", "guest").Uint32("slot", slot).Err(err).Msg("admin queue descriptor cannot be read")
		comp.SetStatus(abi.StatusBadAddr)
	} else {
		a.listen(l, &cmd)
		l.exec(&request{cmd: &cmd, comp: &comp, path: adminq})
	}
	comp.SetIndex(uint16(slot))
	lo, hi := comp.Words(a.color)
	at := a.comps + uint64(slot)*abi.AdminCompSize
	if a.cons == 0 {
		a.color = !a.color
	}
	err := l.ctl.mem.StoreUint64(at, lo)
	if err == nil {
		err = l.ctl.mem.StoreUint64(at+8, hi)
	}
	if err != nil {
		l.log.Warn().Str("side", "guest").Uint32("slot", slot).Err(err).Msg("admin queue completion cannot be written")
		return true
	}
	l.cfg.Bank.Post(a.vec, 1)
	return true
}

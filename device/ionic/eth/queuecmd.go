// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// Flags each queue type may carry in Q_INIT.
const (
	adminFlags = abi.QFlagIRQ | abi.QFlagEnable | abi.QFlagDebug
	dataFlags  = abi.QFlagIRQ | abi.QFlagEnable | abi.QFlagSG | abi.QFlagDebug
)

func (l *LIF) cmdQInit(r *request) error {
	if err := l.needLIF(r); err != nil {
		return err
	}
	if err := l.needDMA(); err != nil {
		return err
	}
	q := r.cmd.QInit()
	if err := l.checkQInit(&q); err != nil {
		return err
	}
	switch q.Type {
	case abi.QTypeAdmin:
		l.admin.init(&q)
		l.admin.kick()
	case abi.QTypeNotify:
		l.ctl.notify.init(&q)
	case abi.QTypeTx:
		t := l.tx[q.Index]
		t.init(&q, l.ctl.mem)
		if q.Flags&abi.QFlagEnable != 0 {
			t.enable()
		}
	case abi.QTypeRx:
		t := l.rx[q.Index]
		t.init(&q, l.ctl.mem)
		if q.Flags&abi.QFlagEnable != 0 {
			t.enable()
		}
		l.refresh()
	}
	r.comp.SetQueue(q.Index, q.Type)
	return nil
}

// checkQInit checks everything a queue of the type relies on later.
func (l *LIF) checkQInit(q *abi.QInit) error {
	count, version, flags := 1, uint8(0), adminFlags
	switch q.Type {
	case abi.QTypeAdmin, abi.QTypeNotify:
	case abi.QTypeTx:
		count, version, flags = l.cfg.Queues, txVersion, dataFlags
	case abi.QTypeRx:
		count, version, flags = l.cfg.Queues, rxVersion, dataFlags
	default:
		return refuse(abi.StatusEQType, "there are no queues of type %v", q.Type)
	}
	switch {
	case q.Index >= uint32(count):
		return refuse(abi.StatusEQID, "%v %d does not exist, there are %d", q.Type, q.Index, count)
	case q.Version > version:
		return refuse(abi.StatusEVersion, "%v version %d does not exist, the newest is %d", q.Type, q.Version, version)
	case q.RingLog2 < abi.MinRingLog2 || q.RingLog2 > abi.MaxRingLog2:
		return refuse(abi.StatusEInval, "%v %d: ring size 2^%d is not within 2^%d..2^%d", q.Type, q.Index,
			q.RingLog2, abi.MinRingLog2, abi.MaxRingLog2)
	case q.Flags&^flags != 0:
		return refuse(abi.StatusENoSupp, "%v %d: flags %#x are not supported", q.Type, q.Index, uint16(q.Flags&^flags))
	case q.Features != 0:
		return refuse(abi.StatusENoSupp, "%v %d: features %#x are not supported", q.Type, q.Index, uint64(q.Features))
	case q.PID != 0:
		return refuse(abi.StatusEInval, "%v %d: doorbell page %d is not the kernel's", q.Type, q.Index, q.PID)
	case int(q.Intr) >= l.cfg.Vectors:
		return refuse(abi.StatusEInval, "%v %d: interrupt vector %d does not exist, there are %d", q.Type, q.Index,
			q.Intr, l.cfg.Vectors)
	}
	n := uint64(1) << q.RingLog2
	var areas [3]area
	switch q.Type {
	case abi.QTypeAdmin:
		areas = [3]area{
			{"descriptor ring", q.Ring, n * abi.AdminDescSize, guestmem.Read},
			{"completion ring", q.CQ, n * abi.AdminCompSize, guestmem.Write},
		}
	case abi.QTypeNotify:
		areas = [3]area{{"event ring", q.Ring, notifyEvents(q.RingLog2) + n*abi.NotifyEventSize, guestmem.Write}}
	case abi.QTypeTx:
		areas = [3]area{
			{"descriptor ring", q.Ring, n * abi.TxDescSize, guestmem.Read},
			{"completion ring", q.CQ, n * abi.TxCompSize, guestmem.Write},
		}
		if q.Flags&abi.QFlagSG != 0 {
			size := uint64(abi.TxSGDescSize)
			if q.Version == 0 {
				size = abi.TxSGDescSizeV0
			}
			areas[2] = area{"scatter-gather ring", q.SG, n * size, guestmem.Read}
		}
	case abi.QTypeRx:
		areas = [3]area{
			{"descriptor ring", q.Ring, n * abi.RxDescSize, guestmem.Read},
			{"completion ring", q.CQ, n * abi.RxCompSize, guestmem.Write},
		}
		if q.Flags&abi.QFlagSG != 0 {
			areas[2] = area{"scatter-gather ring", q.SG, n * abi.RxSGDescSize, guestmem.Read}
		}
	}
	if q.Flags&abi.QFlagSG == 0 {
		q.SG = 0 // no elements may be used
	}
	for i := range areas {
		if err := l.checkArea(q, &areas[i]); err != nil {
			return err
		}
	}
	return nil
}

// area is a piece of guest memory a queue uses for its life.
type area struct {
	what string
	addr uint64
	size uint64
	acc  guestmem.Access
}

// ringAlign is what the device needs of a ring: a completion may not straddle a
// page. The driver aligns to pages.
const ringAlign = 16

func (l *LIF) checkArea(q *abi.QInit, a *area) error {
	if a.size == 0 {
		return nil
	}
	if a.addr%ringAlign != 0 {
		return refuse(abi.StatusBadAddr, "%v %d: %s at %#x is not aligned to %d bytes", q.Type, q.Index, a.what,
			a.addr, ringAlign)
	}
	if err := l.ctl.mem.Check(a.addr, a.size, a.acc); err != nil {
		return refuse(abi.StatusBadAddr, "%v %d: %s: %v", q.Type, q.Index, a.what, err)
	}
	return nil
}

func (l *LIF) cmdQControl(r *request) error {
	q := r.cmd.QControl()
	if err := l.needLIF(r); err != nil {
		return err
	}
	if q.Oper > abi.QEnable {
		return refuse(abi.StatusEInval, "operation %d on %v %d is not supported", q.Oper, q.Type, q.Index)
	}
	var ready bool
	var enable, disable func()
	switch q.Type {
	case abi.QTypeTx:
		if q.Index < uint32(len(l.tx)) {
			t := l.tx[q.Index]
			ready, enable, disable = t.ready(), t.enable, t.disable
		}
	case abi.QTypeRx:
		if q.Index < uint32(len(l.rx)) {
			t := l.rx[q.Index]
			ready, enable, disable = t.ready(), t.enable, t.disable
		}
	default:
		return refuse(abi.StatusEQType, "queues of type %v cannot be enabled or disabled", q.Type)
	}
	if !ready {
		return refuse(abi.StatusEQID, "%v %d is not initialised", q.Type, q.Index)
	}
	if q.Oper == abi.QEnable {
		l.ctl.quiesced = false
		enable()
	} else {
		disable()
	}
	l.refresh()
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"math"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// Registration are the operands of REG_MR.
type Registration struct {
	Key       uint32 // only its index counts
	NewKey    uint8
	Access    uint16 // MR flags bits 0-5
	VA        uint64
	Length    uint64
	Offset    uint64 // of VA in the first page, when MapCount > 1
	DMA       uint64
	MapCount  uint32
	PageShift uint8
}

// Register executes REG_MR for a QP in d: it gives an invalid fast-register
// region memory, rights and a new key byte.
func (t *Table) Register(d *Domain, r *Registration) Fault {
	e := t.entries.Get(r.Key >> 8)
	if e == nil {
		return UnknownKey
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.gone:
		return UnknownKey
	case e.kind != fast:
		return WrongKind
	case e.pd != d.PD:
		return WrongPD
	case e.open:
		return WrongState
	case r.Access&^abi.MRAccessMask != 0:
		return NoRight
	case r.Length > 0 && r.Length-1 > math.MaxUint64-r.VA:
		return OutOfRange
	case r.MapCount == 0:
		return BadPages
	}
	offset := uint64(0)
	if r.MapCount > 1 {
		offset = r.Offset
	}
	if offset > math.MaxUint64-r.Length {
		return OutOfRange
	}
	n := r.Length
	if n > 0 {
		n += offset
	}
	if e.pages.Load(t.mem, t.budget, r.MapCount, r.DMA, r.PageShift, n) != nil {
		return BadPages
	}
	e.key, e.access = r.NewKey, r.Access
	e.va, e.length, e.offset = r.VA, r.Length, offset
	e.life++
	e.admit()
	return OK
}

// Invalidate executes LOCAL_INV, or the invalidation a SEND_INV asks for, of a
// fast-register region or a type 2 window; when it returns, nothing touches
// the memory through key any more.
func (t *Table) Invalidate(d *Domain, key uint32) Fault {
	e := t.entries.Get(key >> 8)
	if e == nil {
		return UnknownKey
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.gone || e.key != uint8(key):
		return UnknownKey
	case e.kind != fast && e.kind != window2:
		return WrongKind
	case e.pd != d.PD:
		return WrongPD
	case !e.open:
		return Invalid
	case e.kind == window2 && e.qp != d.QP:
		return WrongQP
	}
	t.shut(e)
	e.parent = nil
	return OK
}

// Binding are the operands of BIND_MW.
type Binding struct {
	Key    uint32 // of the window; only its index counts
	NewKey uint8
	Parent uint32 // lkey of the region
	Access uint16 // MR flags
	VA     uint64
	Length uint64 // 0 unbinds a type 1 window
}

// Bind executes BIND_MW for a QP in d.
func (t *Table) Bind(d *Domain, b *Binding) Fault {
	w := t.entries.Get(b.Key >> 8)
	if w == nil {
		return UnknownKey
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.gone:
		return UnknownKey
	case !w.kind.isWindow():
		return WrongKind
	case w.pd != d.PD:
		return WrongPD
	case w.kind == window2 && w.open:
		return WrongState
	case b.Length == 0 && w.kind == window1:
		t.shut(w)
		w.parent = nil
		return OK
	case b.Length == 0:
		return OutOfRange
	case b.Length-1 > math.MaxUint64-b.VA:
		return OutOfRange
	}
	p := t.entries.Get(b.Parent >> 8)
	if p == nil || b.Parent == 0 {
		return UnknownKey
	}
	if !t.enter(p) {
		return Invalid
	}
	off, ok := p.locate(b.VA, b.Length)
	f := OK
	switch {
	case p.key != uint8(b.Parent):
		f = UnknownKey
	case p.kind.isWindow():
		f = WrongKind
	case p.pd != d.PD:
		f = WrongPD
	case p.access&abi.MRBind == 0:
		f = NoRight
	case b.Access&(abi.MRRemoteWrite|abi.MRRemoteAtomic) != 0 && p.access&abi.MRLocalWrite == 0:
		f = NoRight
	case !ok:
		f = OutOfRange
	}
	life := p.life
	t.leave(p) // life tells whether the region is still the same later
	if f != OK {
		return f
	}
	t.shut(w)
	w.key, w.access = b.NewKey, b.Access&abi.MRAccessMask
	w.va, w.length, w.offset = b.VA, b.Length, off
	w.parent, w.parentLife, w.qp = p, life, d.QP
	w.admit()
	return OK
}

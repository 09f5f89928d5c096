// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"math"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
)

// Ref is an allowed access to n bytes: it holds uses of the entries involved
// until Release. It is a value and needs no allocation. The zero Ref is
// allowed to touch nothing.
type Ref struct {
	t      *Table
	region *entry // nil: key 0, off is a guest address
	window *entry
	off    uint64 // in the region's pages
	n      uint64
}

// Local asks for [va, va+n) under lkey for a WQE of d. n 0 is always allowed.
func (t *Table) Local(d *Domain, lkey uint32, va, n uint64, r Right) (Ref, Fault) {
	if n == 0 {
		return Ref{t: t}, OK
	}
	if lkey == 0 {
		return t.direct(d.Flags&abi.QPPrivileged != 0, va, n)
	}
	e := t.entries.Get(lkey >> 8)
	if e == nil {
		return Ref{}, UnknownKey
	}
	if !t.enter(e) {
		return Ref{}, Invalid
	}
	f := OK
	var off uint64
	switch ok := false; {
	case e.key != uint8(lkey):
		f = UnknownKey
	case e.kind.isWindow():
		f = WrongKind
	case e.pd != d.PD:
		f = WrongPD
	case e.access&need[r].mr != need[r].mr:
		f = NoRight
	default:
		if off, ok = e.locate(va, n); !ok {
			f = OutOfRange
		}
	}
	if f != OK {
		t.leave(e)
		return Ref{}, f
	}
	return Ref{t: t, region: e, off: e.offset + off, n: n}, OK
}

// Remote asks for [va, va+n) under rkey for a peer of d. n 0 is always
// allowed.
func (t *Table) Remote(d *Domain, rkey uint32, va, n uint64, r Right) (Ref, Fault) {
	if n == 0 {
		return Ref{t: t}, OK
	}
	if d.Flags&need[r].qp != need[r].qp {
		return Ref{}, NoRight
	}
	if rkey == 0 {
		return t.direct(d.Flags&abi.QPRemotePrivileged != 0, va, n)
	}
	e := t.entries.Get(rkey >> 8)
	if e == nil {
		return Ref{}, UnknownKey
	}
	if !t.enter(e) {
		return Ref{}, Invalid
	}
	off, ok := e.locate(va, n)
	f := OK
	switch {
	case e.key != uint8(rkey):
		f = UnknownKey
	case e.pd != d.PD:
		f = WrongPD
	case e.kind == window2 && e.qp != d.QP:
		f = WrongQP
	case e.access&need[r].mr != need[r].mr:
		f = NoRight
	case !ok:
		f = OutOfRange
	}
	if f != OK {
		t.leave(e)
		return Ref{}, f
	}
	if !e.kind.isWindow() {
		return Ref{t: t, region: e, off: e.offset + off, n: n}, OK
	}
	p := e.parent
	if !t.enter(p) {
		t.leave(e)
		return Ref{}, Invalid
	}
	if p.life != e.parentLife {
		t.leave(p)
		t.leave(e)
		return Ref{}, Invalid
	}
	return Ref{t: t, region: p, window: e, off: p.offset + e.offset + off, n: n}, OK
}

// direct is access by guest address, key 0.
func (t *Table) direct(allowed bool, va, n uint64) (Ref, Fault) {
	switch {
	case !allowed:
		return Ref{}, NotPrivileged
	case n-1 > math.MaxUint64-va:
		return Ref{}, OutOfRange
	}
	return Ref{t: t, off: va, n: n}, OK
}

// Release ends the access.
func (r *Ref) Release() {
	if r.region != nil {
		r.t.leave(r.region)
	}
	if r.window != nil {
		r.t.leave(r.window)
	}
	*r = Ref{}
}

// Len is the number of bytes.
func (r *Ref) Len() uint64 { return r.n }

// inside reports whether [off, off+n) is part of what was allowed.
func (r *Ref) inside(off, n uint64) bool { return off <= r.n && n <= r.n-off }

// ReadAt copies len(p) bytes from byte off of the access into p.
func (r *Ref) ReadAt(p []byte, off uint64) Fault {
	switch {
	case !r.inside(off, uint64(len(p))):
		return OutOfRange
	case len(p) == 0:
		return OK
	case r.region == nil:
		return memory(r.t.mem.ReadAt(p, r.off+off))
	}
	return memory(r.region.pages.ReadAt(r.t.mem, p, r.off+off))
}

// WriteAt copies p to byte off of the access. All of it is checked before the
// first byte changes.
func (r *Ref) WriteAt(p []byte, off uint64) Fault {
	switch {
	case !r.inside(off, uint64(len(p))):
		return OutOfRange
	case len(p) == 0:
		return OK
	case r.region == nil:
		return memory(r.t.mem.WriteAt(p, r.off+off))
	}
	return memory(r.region.pages.WriteAt(r.t.mem, p, r.off+off))
}

// Check reports whether guest memory backs the access with the rights acc.
func (r *Ref) Check(acc guestmem.Access) Fault {
	switch {
	case r.n == 0:
		return OK
	case r.region == nil:
		return memory(r.t.mem.Check(r.off, r.n, acc))
	}
	return memory(r.region.pages.Check(r.t.mem, r.off, r.n, acc))
}

// addr is the guest address of an access of 8 bytes that do not leave a page.
func (r *Ref) addr() (uint64, bool) {
	if r.n != 8 {
		return 0, false
	}
	if r.region == nil {
		return r.off, true
	}
	a, n := r.region.pages.Run(r.off, 8)
	return a, n == 8
}

// CompareAndSwap swaps the 8 bytes of the access for swap if they hold
// compare, and returns what they held.
func (r *Ref) CompareAndSwap(compare, swap uint64) (uint64, Fault) {
	a, ok := r.addr()
	if !ok {
		return 0, BadMemory
	}
	v, err := r.t.mem.CompareAndSwapUint64(a, compare, swap)
	return v, memory(err)
}

// Add adds delta to the 8 bytes of the access and returns what they held.
func (r *Ref) Add(delta uint64) (uint64, Fault) {
	a, ok := r.addr()
	if !ok {
		return 0, BadMemory
	}
	v, err := r.t.mem.AddUint64(a, delta)
	return v, memory(err)
}

func memory(err error) Fault {
	if err != nil {
		return BadMemory
	}
	return OK
}

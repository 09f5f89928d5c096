// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"math"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/mr"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// Gather implements qp.Env.
func (q *queuePair) Gather(w *qp.SendWork, off uint64, dst []byte) qp.Status {
	if w.Inline {
		if off > uint64(w.Length) || uint64(len(dst)) > uint64(w.Length)-off {
			return qp.LocalLenErr
		}
		if q.sq.read(q.lif.mem, dst, uint32(w.Index), abi.Payload+off) != nil {
			return qp.LocalProtErr
		}
		return qp.OK
	}
	for i := 0; i < int(w.NumSGE) && len(dst) > 0; i++ {
		s := &w.SGE[i]
		if off >= uint64(s.Len) {
			off -= uint64(s.Len)
			continue
		}
		n := min(uint64(s.Len)-off, uint64(len(dst)))
		ref, f := q.local(s, off, n, mr.LocalRead)
		if f == mr.OK {
			f = ref.ReadAt(dst[:n], 0)
			ref.Release()
		}
		if f != mr.OK {
			q.fault(f)
			return qp.LocalProtErr
		}
		dst = dst[n:]
		off = 0
	}
	if len(dst) > 0 {
		return qp.LocalLenErr
	}
	return qp.OK
}

// local asks for n bytes from byte off of an element.
func (q *queuePair) local(s *qp.SGE, off, n uint64, r mr.Right) (mr.Ref, mr.Fault) {
	if off > math.MaxUint64-s.VA {
		return mr.Ref{}, mr.OutOfRange
	}
	return q.lif.mrs.Local(q.domain.Load(), s.Key, s.VA+off, n, r)
}

// Scatter implements qp.Env. Nothing changes unless all of it is allowed.
func (q *queuePair) Scatter(sges []qp.SGE, off uint64, src []byte) qp.Status {
	var refs [qp.MaxSGE]mr.Ref
	used := 0
	st := qp.OK
	rest := uint64(len(src))
	for i := range sges {
		if rest == 0 || used == len(refs) {
			break
		}
		s := &sges[i]
		if off >= uint64(s.Len) {
			off -= uint64(s.Len)
			continue
		}
		n := min(uint64(s.Len)-off, rest)
		ref, f := q.local(s, off, n, mr.LocalWrite)
		if f != mr.OK {
			q.fault(f)
			st = qp.LocalProtErr
			break
		}
		refs[used] = ref
		used++
		rest -= n
		off = 0
	}
	if st == qp.OK && rest > 0 {
		st = qp.LocalLenErr
	}
	if st == qp.OK {
		st = q.place(refs[:used], src)
	}
	for i := range used {
		refs[i].Release()
	}
	return st
}

// place writes src over the refs in order.
func (q *queuePair) place(refs []mr.Ref, src []byte) qp.Status {
	if len(refs) > 1 { // a single write checks all of itself
		for i := range refs {
			if f := refs[i].Check(guestmem.Write); f != mr.OK {
				q.fault(f)
				return qp.LocalProtErr
			}
		}
	}
	for i := range refs {
		n := refs[i].Len()
		if f := refs[i].WriteAt(src[:n], 0); f != mr.OK {
			q.fault(f)
			return qp.LocalProtErr
		}
		src = src[n:]
	}
	return qp.OK
}

// rights translates what a peer needs.
func right(a qp.Access) mr.Right {
	switch a {
	case qp.RemoteRead:
		return mr.RemoteRead
	case qp.RemoteAtomic:
		return mr.RemoteAtomic
	}
	return mr.RemoteWrite
}

// RemoteCheck implements qp.Env.
func (q *queuePair) RemoteCheck(rkey uint32, va, n uint64, need qp.Access) qp.Status {
	ref, f := q.lif.mrs.Remote(q.domain.Load(), rkey, va, n, right(need))
	ref.Release()
	return q.remote(f)
}

// RemoteWrite implements qp.Env.
func (q *queuePair) RemoteWrite(rkey uint32, va uint64, src []byte) qp.Status {
	ref, f := q.lif.mrs.Remote(q.domain.Load(), rkey, va, uint64(len(src)), mr.RemoteWrite)
	if f == mr.OK {
		f = ref.WriteAt(src, 0)
		ref.Release()
	}
	return q.remote(f)
}

// RemoteRead implements qp.Env.
func (q *queuePair) RemoteRead(rkey uint32, va uint64, dst []byte) qp.Status {
	ref, f := q.lif.mrs.Remote(q.domain.Load(), rkey, va, uint64(len(dst)), mr.RemoteRead)
	if f == mr.OK {
		f = ref.ReadAt(dst, 0)
		ref.Release()
	}
	return q.remote(f)
}

// RemoteAtomic implements qp.Env. It is one instruction on guest memory.
func (q *queuePair) RemoteAtomic(rkey uint32, va uint64, op packet.Op, operand, compare uint64) (uint64, qp.Status) {
	if va%8 != 0 {
		return 0, qp.RemoteInvReqErr
	}
	ref, f := q.lif.mrs.Remote(q.domain.Load(), rkey, va, 8, mr.RemoteAtomic)
	var old uint64
	if f == mr.OK {
		if op == packet.CompareSwap {
			old, f = ref.CompareAndSwap(compare, operand)
		} else {
			old, f = ref.Add(operand)
		}
		ref.Release()
	}
	return old, q.remote(f)
}

// RemoteInvalidate implements qp.Env.
func (q *queuePair) RemoteInvalidate(rkey uint32) qp.Status {
	return q.remote(q.lif.mrs.Invalidate(q.domain.Load(), rkey))
}

// remote is what a peer is told of a fault.
func (q *queuePair) remote(f mr.Fault) qp.Status {
	if f == mr.OK {
		return qp.OK
	}
	q.fault(f)
	return qp.RemoteAccErr
}

// fault counts a refused access under its reason.
func (q *queuePair) fault(f mr.Fault) { q.lif.engine.stats.faults[f].Add(1) }

// Local implements qp.Env.
func (q *queuePair) Local(w *qp.SendWork) qp.Status {
	l := &w.Local
	f := mr.WrongKind
	switch w.Op {
	case qp.OpRegMR:
		// The work names guest addresses, so only the kernel may post it: its
		// own queue pairs have the privilege of key 0.
		f = mr.NotPrivileged
		if q.domain.Load().Flags&abi.QPPrivileged != 0 {
			f = q.lif.mrs.Register(q.domain.Load(), &mr.Registration{
				Key: l.Key, NewKey: l.NewKey, Access: l.Access, VA: l.VA, Length: l.Length,
				Offset: l.Offset, DMA: l.DMA, MapCount: l.MapCount, PageShift: l.PageShift,
			})
		}
	case qp.OpLocalInv:
		f = q.lif.mrs.Invalidate(q.domain.Load(), l.Key)
	case qp.OpBindMW:
		f = q.lif.mrs.Bind(q.domain.Load(), &mr.Binding{
			Key: l.Key, NewKey: l.NewKey, Parent: l.ParentKey, Access: l.Access, VA: l.VA, Length: l.Length,
		})
	}
	if f != mr.OK {
		q.fault(f)
		return qp.MemMgmtErr
	}
	return qp.OK
}

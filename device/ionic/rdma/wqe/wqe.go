// SPDX-License-Identifier: Apache-2.0

// Package wqe decodes send and receive queue entries into the QP core's work
// structures. The bytes come from the guest: whatever is wrong with them makes
// work that fails with a status, never a panic. Callers pass a private copy of
// the entry, so that the guest cannot change it between check and use.
package wqe

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

var ops = [abi.NumOps]qp.Op{
	abi.OpSend: qp.OpSend, abi.OpSendInv: qp.OpSendInv, abi.OpSendImm: qp.OpSendImm,
	abi.OpRead: qp.OpRead, abi.OpWrite: qp.OpWrite, abi.OpWriteImm: qp.OpWriteImm,
	abi.OpAtomicCS: qp.OpCompareSwap, abi.OpAtomicFA: qp.OpFetchAdd,
	abi.OpRegMR: qp.OpRegMR, abi.OpLocalInv: qp.OpLocalInv, abi.OpBindMW: qp.OpBindMW,
}

// Version is the version of the opcodes of a send queue, which the identity
// announces.
type Version uint8

// Versions.
const (
	V1 Version = 1
	V2 Version = 2
)

// unknown is no operation.
const unknown = 0xff

// codes are the operations by version and code.
var codes = func() (t [3][256]uint8) {
	for v := range t {
		for c := range t[v] {
			t[v][c] = unknown
		}
	}
	for _, v := range []Version{V1, V2} {
		for op, c := range abi.Opcodes[v] {
			t[v][c] = uint8(ops[op])
		}
	}
	return t
}()

// Send decodes b, one SQ entry of at least 64 bytes of version v, for a QP of
// type typ into w. index is the entry's place in the ring. A malformed entry
// gets a status in w.Bad.
func Send(w *qp.SendWork, b []byte, index uint16, typ qp.Type, v Version) {
	flags := be.Uint16(b[abi.WQEFlags:])
	*w = qp.SendWork{
		Index:     index,
		Fence:     flags&abi.WQEFence != 0,
		Solicited: flags&abi.WQESolicited != 0,
		Signaled:  flags&abi.WQESignaled != 0,
	}
	op := codes[v][b[abi.WQEOp]]
	if op == unknown {
		w.Bad = qp.LocalQPOperErr
		return
	}
	w.Op = qp.Op(op)
	copy(w.Imm[:], b[abi.WQEImm:])
	switch w.Op {
	case qp.OpRegMR, qp.OpLocalInv, qp.OpBindMW:
		local(w, b)
		return
	case qp.OpCompareSwap, qp.OpFetchAdd:
		if typ == qp.UD || typ == qp.UC {
			w.Bad = qp.LocalQPOperErr
		}
		atomic(w, b, v)
		return
	case qp.OpSend, qp.OpSendImm, qp.OpSendInv:
		if typ == qp.UD {
			w.AH = be.Uint32(b[abi.SendAH:])
			w.DestQPN = be.Uint32(b[abi.SendDestQPN:]) & abi.QIDMask
			w.QKey = be.Uint32(b[abi.SendQKey:])
		}
		if w.Op == qp.OpSendInv {
			w.InvKey = be.Uint32(b[abi.WQEImm:])
		}
	default:
		w.RemoteVA = be.Uint64(b[abi.RemoteVA:])
		w.RKey = be.Uint32(b[abi.RemoteKey:])
	}
	if !offered(typ, w.Op) {
		w.Bad = qp.LocalQPOperErr
	}
	payload(w, b, flags)
}

// offered reports whether a QP of type typ has the remote operation op.
func offered(typ qp.Type, op qp.Op) bool {
	switch typ {
	case qp.UD:
		return op == qp.OpSend || op == qp.OpSendImm
	case qp.UC:
		return op != qp.OpRead
	}
	return true
}

// fail keeps the first thing that was found wrong.
func fail(w *qp.SendWork, s qp.Status) {
	if w.Bad == qp.OK {
		w.Bad = s
	}
}

// payload decodes what SEND, WRITE and READ carry or fill.
func payload(w *qp.SendWork, b []byte, flags uint16) {
	w.Length = be.Uint32(b[abi.PayloadLen:])
	if w.Length > abi.MaxMessage {
		fail(w, qp.LocalLenErr)
		return
	}
	if flags&abi.WQEInline != 0 {
		w.Inline = true
		if w.Op == qp.OpRead {
			fail(w, qp.LocalQPOperErr)
		}
		if uint64(w.Length) > uint64(len(b)-abi.Payload) {
			fail(w, qp.LocalLenErr)
		}
		return
	}
	var sum uint64
	var ok bool
	w.NumSGE, sum, ok = elements(&w.SGE, b, flags)
	switch {
	case !ok:
		fail(w, qp.LocalQPOperErr)
	case sum > abi.MaxMessage:
		fail(w, qp.LocalLenErr)
	case sum != uint64(w.Length):
		fail(w, qp.LocalQPOperErr)
	}
}

// elements decodes the SGEs of an SQ or RQ entry; false when there are more
// than the entry, or the device, has room for. The sum of their lengths has 64
// bits. Where the list starts is said by the flags of this very entry.
func elements(sge *[qp.MaxSGE]qp.SGE, b []byte, flags uint16) (n uint8, sum uint64, ok bool) {
	at := abi.Payload
	switch flags >> abi.WQESpecShift {
	case 0:
	case abi.WQESpec32, abi.WQESpec16:
		at = abi.SpecSGE
	default:
		return 0, 0, false
	}
	n = b[abi.WQENumSGE]
	if n > qp.MaxSGE || at+int(n)*abi.SGELen > len(b) {
		return 0, 0, false
	}
	for i := range int(n) {
		sge[i] = element(b[at+i*abi.SGELen:])
		sum += uint64(sge[i].Len)
	}
	return n, sum, true
}

func element(b []byte) qp.SGE {
	return qp.SGE{VA: be.Uint64(b), Len: be.Uint32(b[8:]), Key: be.Uint32(b[12:])}
}

func atomic(w *qp.SendWork, b []byte, v Version) {
	w.RemoteVA = be.Uint64(b[abi.RemoteVA:])
	w.RKey = be.Uint32(b[abi.RemoteKey:])
	w.Operand = be.Uint64(b[abi.AtomicOperand:])
	w.Compare = be.Uint64(b[abi.AtomicCompare:])
	w.NumSGE, w.Length = 1, 8
	if v == V2 {
		// The length is not told: it is that of the operands.
		w.SGE[0] = qp.SGE{VA: be.Uint64(b[abi.AtomicV2VA:]), Len: 8, Key: be.Uint32(b[abi.AtomicV2Key:])}
	} else {
		w.SGE[0] = element(b[abi.AtomicSGE:])
	}
	if b[abi.WQENumSGE] != 1 || w.SGE[0].Len != 8 {
		fail(w, qp.LocalQPOperErr)
	}
}

func local(w *qp.SendWork, b []byte) {
	l := &w.Local
	l.Key = be.Uint32(b[abi.WQEImm:])
	l.NewKey = b[abi.WQENumSGE]
	switch w.Op {
	case qp.OpRegMR:
		l.VA = be.Uint64(b[abi.RegVA:])
		l.Length = be.Uint64(b[abi.RegLength:])
		l.Offset = be.Uint64(b[abi.RegOffset:])
		l.DMA = be.Uint64(b[abi.RegDMA:])
		l.MapCount = be.Uint32(b[abi.RegMapCount:])
		l.Access = be.Uint16(b[abi.RegAccess:])
		l.PageShift = b[abi.RegPageShift]
	case qp.OpBindMW:
		l.VA = be.Uint64(b[abi.BindVA:])
		l.Length = be.Uint64(b[abi.BindLength:])
		l.ParentKey = be.Uint32(b[abi.BindParent:])
		l.Access = be.Uint16(b[abi.BindAccess:])
	}
}

// Recv decodes b, one RQ entry of at least 64 bytes, into r. A malformed entry
// gets a status in r.Bad.
func Recv(r *qp.RecvWork, b []byte) {
	*r = qp.RecvWork{ID: le.Uint64(b[abi.WQEID:])}
	var ok bool
	r.NumSGE, r.Length, ok = elements(&r.SGE, b, be.Uint16(b[abi.WQEFlags:]))
	if !ok {
		r.Bad = qp.LocalQPOperErr
	}
}

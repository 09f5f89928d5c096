// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
)

// Opcode is the operation of a send work request.
type Opcode uint8

// Send operations.
const (
	OpSend      Opcode = 0
	OpSendInv   Opcode = 1
	OpSendImm   Opcode = 2
	OpRead      Opcode = 3
	OpWrite     Opcode = 4
	OpWriteImm  Opcode = 5
	OpCmpSwap   Opcode = 6
	OpFetchAdd  Opcode = 7
	OpRegMR     Opcode = 8
	OpLocalInv  Opcode = 9
	OpBindMW    Opcode = 10
	numOps             = 11
	atomicBytes        = 8
)

// opcodes are the device's numbers of the operations, by the version that its
// identity announces.
var opcodes = [...][numOps]uint8{
	1: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
	2: {
		OpSend: 0x20, OpSendInv: 0xa0, OpSendImm: 0x60, OpRead: 0x02, OpWrite: 0x21, OpWriteImm: 0x61,
		OpCmpSwap: 0x04, OpFetchAdd: 0x05, OpRegMR: 0x06, OpLocalInv: 0x07, OpBindMW: 0x08,
	},
}

// opTraits says how an operation completes and what a completion calls it.
var opTraits = [numOps]struct {
	local bool
	wc    Operation
}{
	OpSend: {false, WCSend}, OpSendInv: {false, WCSend}, OpSendImm: {false, WCSend},
	OpRead: {false, WCRead}, OpWrite: {false, WCWrite}, OpWriteImm: {false, WCWrite},
	OpCmpSwap: {false, WCCompareSwap}, OpFetchAdd: {false, WCFetchAdd},
	OpRegMR: {true, WCRegMR}, OpLocalInv: {true, WCLocalInv}, OpBindMW: {true, WCBindMW},
}

// SendFlags modify a send work request.
type SendFlags uint8

// Flags of send work requests.
const (
	Signaled SendFlags = 1 << iota
	Solicited
	Fence
	Inline
)

// Flags in a work request.
const (
	wqeFence  = 1 << 0
	wqeSol    = 1 << 1
	wqeInline = 1 << 2
	wqeSig    = 1 << 3
	wqeColour = 1 << 4
	wqeSpec32 = 1 << 12
)

// SGE is one piece of memory of a work request.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request. Which fields count depends on Op.
type SendWR struct {
	ID     uint64
	Op     Opcode
	Flags  SendFlags
	SGEs   []SGE
	Data   []byte // payload of an inline request
	Imm    uint32 // host order
	InvKey uint32 // key that SEND_INV and LOCAL_INV invalidate

	RemoteAddr uint64
	RKey       uint32
	Compare    uint64 // CMP_SWAP
	Swap       uint64 // CMP_SWAP; the addend of FETCH_ADD

	AH         *AH
	RemoteQPN  uint32
	RemoteQKey uint32

	MR     *MR    // REG_MR: the region; BIND_MW: the parent
	MW     *MW    // BIND_MW
	NewKey uint8  // REG_MR and BIND_MW
	VA     uint64 // REG_MR and BIND_MW
	Length uint64 // BIND_MW
	Access Access // REG_MR and BIND_MW
}

// RecvWR is a receive work request.
type RecvWR struct {
	ID   uint64
	SGEs []SGE
}

// ErrQueueFull is the error of posting to a queue without room.
var ErrQueueFull = errors.New("verbs: queue is full")

// PostSend posts work requests and rings the doorbell once. Requests before the
// one that failed are posted. It does not allocate.
func (qp *QP) PostSend(wrs ...SendWR) error {
	if s := qp.State(); s < RTS {
		return fmt.Errorf("verbs: post send to queue pair %d in %v", qp.QPN, s)
	}
	q := &qp.sq
	var err error
	q.mu.Lock()
	for i := range wrs {
		if q.ring.next(q.prod) == q.cons {
			err = ErrQueueFull
			break
		}
		if err = qp.prepareSend(&wrs[i]); err != nil {
			break
		}
	}
	q.mu.Unlock()

	h := qp.sendHalf
	h.mu.Lock()
	defer h.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.prod != q.rung {
		h.reserve((q.prod - q.rung) & q.ring.mask)
		q.rung = q.prod
		qp.c.ring(qp.c.d.SQ, qp.QPN, 0, q.prod)
	}
	if q.flushing {
		h.listFlush(qp, true)
	}
	return err
}

// prepareSend fills the next slot; the queue is locked.
func (qp *QP) prepareSend(wr *SendWR) error {
	q := &qp.sq
	if wr.Op >= numOps {
		return fmt.Errorf("verbs: opcode %d", wr.Op)
	}
	slot := q.ring.at(q.prod)
	clear(slot)
	length, flags, err := qp.sendBody(slot, wr)
	if err != nil {
		return err
	}
	for _, f := range [...]struct {
		set SendFlags
		bit uint16
	}{{Fence, wqeFence}, {Solicited, wqeSol}, {Inline, wqeInline}} {
		if wr.Flags&f.set != 0 {
			flags |= f.bit
		}
	}
	m := &q.meta[q.prod]
	*m = sendMeta{id: wr.ID, op: opTraits[wr.Op].wc, length: length, msn: q.msnProd}
	if m.signaled = qp.signalAll || wr.Flags&Signaled != 0; m.signaled {
		flags |= wqeSig
	}
	if q.colour && !qp.c.kernel {
		flags |= wqeColour
	}
	le.PutUint64(slot, uint64(q.prod))
	slot[8] = opcodes[qp.c.d.Version][wr.Op]
	be.PutUint16(slot[10:], flags)
	if m.remote = !qp.Type.datagram() && !opTraits[wr.Op].local; m.remote {
		q.msnIndex[q.msnProd] = q.prod
		q.msnProd = q.ring.next(q.msnProd)
	}
	if q.prod = q.ring.next(q.prod); q.prod == 0 {
		q.colour = !q.colour
	}
	return nil
}

// sendBody fills what depends on the operation and returns the payload's length
// and the flags that tell the layout.
func (qp *QP) sendBody(slot []byte, wr *SendWR) (uint32, uint16, error) {
	switch wr.Op {
	case OpSend, OpSendImm, OpSendInv:
		if qp.Type.datagram() {
			if wr.AH == nil || wr.Op == OpSendInv {
				return 0, 0, fmt.Errorf("verbs: datagram with opcode %d, address handle %v", wr.Op, wr.AH != nil)
			}
			be.PutUint32(slot[16:], wr.AH.ID)
			be.PutUint32(slot[20:], wr.RemoteQPN)
			be.PutUint32(slot[24:], wr.RemoteQKey)
		}
	case OpRead, OpWrite, OpWriteImm:
		be.PutUint64(slot[16:], wr.RemoteAddr)
		be.PutUint32(slot[24:], wr.RKey)
	case OpCmpSwap, OpFetchAdd:
		return atomicBytes, 0, atomicBody(slot, wr, qp.c.d.Version)
	case OpRegMR:
		return 0, 0, regBody(slot, wr)
	case OpLocalInv:
		be.PutUint32(slot[12:], wr.InvKey)
		return 0, 0, nil
	case OpBindMW:
		bindBody(slot, wr)
		return 0, 0, nil
	}
	switch wr.Op {
	case OpSendImm, OpWriteImm:
		be.PutUint32(slot[12:], wr.Imm)
	case OpSendInv:
		be.PutUint32(slot[12:], wr.InvKey)
	}
	length, flags, err := uint32(len(wr.Data)), uint16(0), error(nil)
	if wr.Flags&Inline != 0 {
		if wqeData+len(wr.Data) > len(slot) {
			return 0, 0, fmt.Errorf("verbs: %d inline bytes in a work request of %d", len(wr.Data), len(slot))
		}
		copy(slot[wqeData:], wr.Data)
	} else {
		slot[9] = uint8(len(wr.SGEs))
		length, flags, err = putSGEs(slot, wr.SGEs, qp.c.kernel)
	}
	be.PutUint32(slot[28:], length)
	return length, flags, err
}

// putSGEs writes the scatter-gather list. Above two elements their lengths are
// repeated in an array before them.
func putSGEs(slot []byte, sges []SGE, kernel bool) (total uint32, flags uint16, err error) {
	at := wqeData
	if len(sges) > specSGEs {
		flags = wqeSpec32
		at += 16 * specSGEs
	}
	if at+16*len(sges) > len(slot) || len(sges) > maxSGEs {
		return 0, 0, fmt.Errorf("verbs: %d SGEs in a work request of %d bytes", len(sges), len(slot))
	}
	sum := uint64(0)
	for i, s := range sges {
		n := uint64(s.Length)
		if kernel && n == 0 {
			n = 1 << 31 // what the kernel makes of it
		}
		if sum += n; sum > 1<<31 {
			return 0, 0, fmt.Errorf("verbs: message of %d bytes", sum)
		}
		be.PutUint64(slot[at+16*i:], s.Addr)
		be.PutUint32(slot[at+16*i+8:], uint32(n))
		be.PutUint32(slot[at+16*i+12:], s.LKey)
		if flags != 0 {
			be.PutUint32(slot[wqeData+4*i:], uint32(n))
		}
	}
	return uint32(sum), flags, nil
}

func atomicBody(slot []byte, wr *SendWR, version uint8) error {
	if len(wr.SGEs) != 1 || wr.SGEs[0].Length != atomicBytes {
		return fmt.Errorf("verbs: atomic needs one SGE of %d bytes", atomicBytes)
	}
	slot[9] = 1
	be.PutUint64(slot[16:], wr.RemoteAddr)
	be.PutUint32(slot[24:], wr.RKey)
	be.PutUint64(slot[28:], wr.Swap)
	if wr.Op == OpCmpSwap {
		be.PutUint64(slot[36:], wr.Compare)
	}
	be.PutUint64(slot[48:], wr.SGEs[0].Addr)
	if version >= 2 {
		be.PutUint32(slot[44:], wr.SGEs[0].LKey)
		return nil
	}
	be.PutUint32(slot[56:], atomicBytes)
	be.PutUint32(slot[60:], wr.SGEs[0].LKey)
	return nil
}

// regBody is REG_MR. The key byte in the lkey is the new one already, as most
// kernel users leave it.
func regBody(slot []byte, wr *SendWR) error {
	m := wr.MR
	if m == nil || m.Buffer == nil || m.table.count == 0 {
		return fmt.Errorf("verbs: REG_MR of a region without pages")
	}
	m.Key = m.id&^0xff | uint32(wr.NewKey)
	slot[9] = wr.NewKey
	be.PutUint32(slot[12:], m.Key)
	be.PutUint64(slot[16:], wr.VA)
	be.PutUint64(slot[24:], uint64(m.Buffer.Len))
	if m.table.count > 1 {
		be.PutUint64(slot[32:], uint64(m.Buffer.offset))
	}
	be.PutUint64(slot[40:], m.table.address)
	be.PutUint32(slot[48:], m.table.count)
	be.PutUint16(slot[52:], uint16(wr.Access))
	slot[55] = m.table.pageLog2
	return nil
}

func bindBody(slot []byte, wr *SendWR) {
	slot[9] = wr.NewKey
	be.PutUint32(slot[12:], wr.MW.Key)
	be.PutUint64(slot[16:], wr.VA)
	be.PutUint64(slot[24:], wr.Length)
	be.PutUint32(slot[32:], wr.MR.Key)
	be.PutUint16(slot[36:], uint16(wr.Access)|wr.MW.flags())
	wr.MW.Key = wr.MW.Key&^0xff | uint32(wr.NewKey)
}

// PostRecv posts receive requests and rings the doorbell once. It does not
// allocate.
func (qp *QP) PostRecv(wrs ...RecvWR) error {
	if s := qp.State(); s < Init {
		return fmt.Errorf("verbs: post receive to queue pair %d in %v", qp.QPN, s)
	}
	q := &qp.rq
	var err error
	q.mu.Lock()
	for i := range wrs {
		if q.ring.next(q.prod) == q.cons {
			err = ErrQueueFull
			break
		}
		if err = qp.prepareRecv(&wrs[i]); err != nil {
			break
		}
	}
	q.mu.Unlock()

	h := qp.recvHalf
	h.mu.Lock()
	defer h.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.prod != q.rung {
		h.reserve((q.prod - q.rung) & q.ring.mask)
		q.rung = q.prod
		qp.c.ring(qp.c.d.RQ, qp.QPN, 0, q.prod)
	}
	if q.flushing {
		h.listFlush(qp, false)
	}
	return err
}

// prepareRecv fills the next slot; the queue is locked.
func (qp *QP) prepareRecv(wr *RecvWR) error {
	q := &qp.rq
	slot := q.ring.at(q.prod)
	if be.Uint16(slot[10:])&wqeFence != 0 {
		return qp.c.d.wedge("queue pair %d: receive request %d has the fence flag: it could never be posted again", qp.QPN, q.prod)
	}
	clear(slot)
	total, flags, err := putSGEs(slot, wr.SGEs, qp.c.kernel)
	if err != nil {
		return err
	}
	i := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	q.slots[i] = recvSlot{id: wr.ID, index: q.prod, posted: true}
	q.slotOf[q.prod] = i
	token := q.prod
	if qp.c.kernel {
		token = i
	}
	le.PutUint64(slot, uint64(token))
	slot[9] = uint8(len(wr.SGEs))
	be.PutUint16(slot[10:], flags)
	be.PutUint32(slot[12:], total)
	q.prod = q.ring.next(q.prod)
	return nil
}

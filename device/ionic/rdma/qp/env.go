// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"time"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
)

// MaxSGE is the most scatter-gather elements a WQE can carry
// (ionic_rdma limits max_sge to 8).
const MaxSGE = 8

// SGE is one scatter-gather element of a WQE.
type SGE struct {
	VA  uint64
	Len uint32
	Key uint32 // lkey
}

// SendWork is a send queue WQE, decoded once into private memory so that a
// guest that changes the ring afterwards changes nothing here.
type SendWork struct {
	Index     uint16 // SQ ring index
	Op        Op
	Fence     bool
	Solicited bool
	Signaled  bool
	Inline    bool // payload lives in the WQE; Env.Gather reads it there
	NumSGE    uint8
	Length    uint32 // payload bytes in all
	Imm       [4]byte
	InvKey    uint32
	RemoteVA  uint64
	RKey      uint32
	Operand   uint64 // swap or add
	Compare   uint64
	AH        uint32 // UD and GSI
	DestQPN   uint32
	QKey      uint32
	Bad       Status // not OK: the WQE is malformed and must fail with this status
	// Unreadable says that guest memory does not hold the entry any more: nobody
	// knows what it asked for, so it has no place among the remote messages.
	Unreadable bool
	SGE        [MaxSGE]SGE
	Local      LocalWork
}

// LocalWork are the operands of REG_MR, LOCAL_INV and BIND_MW.
type LocalWork struct {
	Key       uint32 // lkey, rkey or MW key the operation names
	NewKey    uint8
	Access    uint16 // MR flags
	PageShift uint8
	MapCount  uint32
	ParentKey uint32
	VA        uint64
	Length    uint64
	Offset    uint64
	DMA       uint64
}

// RecvWork is a receive queue WQE.
type RecvWork struct {
	ID     uint64 // opaque token for the CQE
	NumSGE uint8
	Length uint64 // sum of the SGE lengths
	Bad    Status
	// Unreadable says that guest memory does not hold the entry any more: its
	// token is unknown, so that it cannot be completed. Bad is set too.
	Unreadable bool
	SGE        [MaxSGE]SGE
}

// Access is a right that a remote request needs.
type Access uint8

// Rights, in the order of the QP flags.
const (
	RemoteWrite Access = 1 << iota
	RemoteRead
	RemoteAtomic
)

// Verdict is what the link did with a packet.
type Verdict uint8

// Verdicts. Only after Full does the caller still own the packet; the QP gets
// a Step once the link has room again.
const (
	Sent Verdict = iota
	Full
	Lost // no route, or dropped by the link: looks like a lost packet
)

// RecvCompletion is a receive CQE to be.
type RecvCompletion struct {
	ID        uint64
	Status    Status
	Length    uint32 // bytes placed; UD and GSI include the 40 bytes in front
	Op        RecvOp
	SrcQPN    uint32
	Imm       [4]byte // immediate, or the invalidated rkey in network order
	Solicited bool
	SrcMAC    [6]byte
	VLAN      uint16
	Path      packet.Path
}

// Env is all that a QP needs from the device around it. Every method is
// called out of Step, Modify or Close with the QP's lock held, so from one
// goroutine at a time; none may block on the network, on another QP or on the
// guest, and none may call this QP back, except for Deliver.
type Env interface {
	// FetchSend decodes the next SQ WQE into w and moves the ring's fetch
	// index, false when the guest has posted nothing more. w is reused memory:
	// every field must be set, except SGEs beyond NumSGE.
	FetchSend(w *SendWork) bool
	// FetchRecv does the same for the receive queue. A receive that a message
	// turns out not to need is kept for the next one.
	FetchRecv(r *RecvWork) bool

	// Gather copies len(dst) payload bytes of w, starting at byte off of the
	// message, after checking lkey, PD and range. LocalProtErr on refusal.
	Gather(w *SendWork, off uint64, dst []byte) Status
	// Scatter writes src at byte off of the list. It checks lkey, PD, range
	// and LOCAL_WRITE of the whole touched part before the first byte.
	Scatter(sges []SGE, off uint64, src []byte) Status

	// RemoteCheck asks whether [va, va+n), n > 0, under rkey may be accessed by
	// a peer of this QP: key, PD, range, MR rights and window binding. The
	// core has checked the rights of the QP and that va+n does not wrap.
	RemoteCheck(rkey uint32, va, n uint64, need Access) Status
	RemoteWrite(rkey uint32, va uint64, src []byte) Status
	RemoteRead(rkey uint32, va uint64, dst []byte) Status
	// RemoteAtomic is atomic against guest CPUs and all QPs.
	RemoteAtomic(rkey uint32, va uint64, op packet.Op, operand, compare uint64) (uint64, Status)
	RemoteInvalidate(rkey uint32) Status

	// Local executes REG_MR, LOCAL_INV or BIND_MW.
	Local(w *SendWork) Status

	// CompleteMSN and CompleteNPG write a send CQE: all remote messages up to
	// msn, or exactly the WQE at index. signaled is false for work the guest
	// did not ask to hear of; an MSN completion may then be put off to the next
	// completion of the queue, which it must precede.
	CompleteMSN(msn uint32, st Status, signaled bool)
	CompleteNPG(index uint16, st Status, signaled bool)
	CompleteRecv(c *RecvCompletion)
	// FlushSend and FlushRecv write the one flush CQE of a queue.
	FlushSend()
	FlushRecv()
	// FlushAgain tells once more that the send queue, and with recv the receive
	// queue, is flushed, if the guest has posted to it since it was last told. It
	// is called in every Step of a QP in SQE or ERR.
	FlushAgain(recv bool)
	// Event raises an asynchronous QP event.
	Event(e Event)

	// Address fills the addressing part of a datagram's header (GIDs, MAC,
	// VLAN, GRH with lengths for n payload bytes) from an address handle and
	// gives the destination; false: the AH does not exist.
	Address(ah uint32, n int, imm bool, h *packet.Header) (packet.Address, bool)
	// Transmit hands p to the link. The packet belongs to the link unless the
	// verdict is Full.
	Transmit(dst *packet.Address, p *packet.Packet) Verdict

	// Wake makes sure that Step runs again at or soon after t, replacing an
	// earlier request; the zero time takes the request back.
	Wake(t time.Time)
	// Count adds to a counter.
	Count(c Counter, n uint64)
}

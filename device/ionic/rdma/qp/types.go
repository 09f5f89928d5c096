// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

// Type is the transport of a QP, numbered as in CREATE_QP (ionic_fw.h).
type Type uint8

// QP types. GSI is a UD QP with id 1.
const (
	RC Type = 0
	UC Type = 1
	UD Type = 3
)

// Op is a send queue operation, independent of the opcode version.
type Op uint8

// Send queue operations (v1 numbering).
const (
	OpSend Op = iota
	OpSendInv
	OpSendImm
	OpRead
	OpWrite
	OpWriteImm
	OpCompareSwap
	OpFetchAdd
	OpRegMR
	OpLocalInv
	OpBindMW
	numSendOps
)

// local reports whether the operation touches nothing but this device.
func (o Op) local() bool { return o >= OpRegMR }

// atomic reports whether the operation is one of the two atomics.
func (o Op) atomic() bool { return o == OpCompareSwap || o == OpFetchAdd }

// answered reports whether a response with data completes the operation.
func (o Op) answered() bool { return o == OpRead || o.atomic() }

// Status is a completion status code (ionic CQE status_length on error).
type Status uint8

// Completion status codes.
const (
	OK               Status = 0
	LocalLenErr      Status = 1
	LocalQPOperErr   Status = 2
	LocalProtErr     Status = 3
	Flushed          Status = 4
	MemMgmtErr       Status = 5
	BadRespErr       Status = 6
	LocalAccErr      Status = 7
	RemoteInvReqErr  Status = 8
	RemoteAccErr     Status = 9
	RemoteOperErr    Status = 10
	RetryExceeded    Status = 11
	RNRRetryExceeded Status = 12
)

// RecvOp is the op of a receive CQE.
type RecvOp uint8

// Receive operations.
const (
	RecvSend RecvOp = iota
	RecvSendInv
	RecvSendImm
	RecvWriteImm
)

// State is the state of a QP, numbered as in MODIFY_QP.
type State uint8

// QP states.
const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

// Event is an asynchronous QP event, numbered as the EQE code.
type Event uint8

// Asynchronous events.
const (
	EventSQDrained  Event = 1
	EventCommEst    Event = 2
	EventQPFatal    Event = 8
	EventRequestErr Event = 9
	EventAccessErr  Event = 10
)

// Mask selects the fields of Attr that a Modify sets; the bits are those of
// the verbs attribute mask.
type Mask uint32

// Attribute mask bits.
const (
	MaskState       Mask = 1 << 0
	MaskCurState    Mask = 1 << 1
	MaskSQDNotify   Mask = 1 << 2
	MaskAccess      Mask = 1 << 3
	MaskQKey        Mask = 1 << 6
	MaskAV          Mask = 1 << 7
	MaskPathMTU     Mask = 1 << 8
	MaskTimeout     Mask = 1 << 9
	MaskRetryCnt    Mask = 1 << 10
	MaskRNRRetry    Mask = 1 << 11
	MaskRQPSN       Mask = 1 << 12
	MaskMaxRead     Mask = 1 << 13
	MaskMinRNRTimer Mask = 1 << 15
	MaskSQPSN       Mask = 1 << 16
	MaskMaxDestRead Mask = 1 << 17
	MaskDestQPN     Mask = 1 << 20
	MaskRateLimit   Mask = 1 << 25
)

// Attr are the attributes of a QP that MODIFY_QP sets and QUERY_QP returns.
// PSNs are live in a query: the next PSN to send and the next one expected.
// Draining is only reported: the state is SQD and started work is unfinished.
type Attr struct {
	State       State
	Access      Access // QP flags bits 0-2
	SQDNotify   bool
	Draining    bool
	QKey        uint32
	DestQPN     uint32
	PathMTU     uint8 // log2 of bytes, 8..12
	Timeout     uint8 // 4.096 us << n, 0 = never
	RetryCnt    uint8
	RNRRetry    uint8 // 7 = for ever
	MinRNRTimer uint8
	RQPSN       uint32
	SQPSN       uint32
	MaxRead     uint8 // rrq_depth, log2 form of MODIFY_QP
	MaxDestRead uint8 // rsq_depth
	RateLimit   uint32
	Dest        packet.Address // from the AV's header template
	SrcGID      [16]byte
}

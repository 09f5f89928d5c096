// SPDX-License-Identifier: Apache-2.0

package abi

// Operations of an SQ WQE, with their codes of version 1.
const (
	OpSend = iota
	OpSendInv
	OpSendImm
	OpRead
	OpWrite
	OpWriteImm
	OpAtomicCS
	OpAtomicFA
	OpRegMR
	OpLocalInv
	OpBindMW
	NumOps
)

// Opcodes are the codes of the operations in each version of the send queue
// (enum ionic_v1_op, ionic_v2_op). In version 2 bit 5 says that the request
// carries payload, bit 6 an immediate, bit 7 a key to invalidate.
var Opcodes = [3][NumOps]uint8{
	1: {OpSend, OpSendInv, OpSendImm, OpRead, OpWrite, OpWriteImm, OpAtomicCS, OpAtomicFA, OpRegMR, OpLocalInv, OpBindMW},
	2: {0x20, 0xa0, 0x60, 0x02, 0x21, 0x61, 0x04, 0x05, 0x06, 0x07, 0x08},
}

// Flags of an SQ or RQ WQE.
const (
	WQEFence     = 1 << 0
	WQESolicited = 1 << 1
	WQEInline    = 1 << 2
	WQESignaled  = 1 << 3
	WQEColor     = 1 << 4 // express doorbells only
	WQESpecShift = 12
	WQESpec32    = 1 // value of the 4 bits from WQESpecShift
	WQESpec16    = 2
)

// Offsets of the fields of a WQE (struct ionic_v1_wqe). The first 16 bytes are
// common to SQ and RQ.
//
//	0   le64  wqe_id
//	8   u8    op
//	9   u8    number of SGEs, or new key byte of REG_MR and BIND_MW
//	10  be16  flags
//	12  be32  immediate, key, or total length of a receive
//
//	     SEND        SEND (UD)   WRITE, READ    ATOMIC          REG_MR     BIND_MW
//	16               ah_id       remote va hi   remote va hi    va         va
//	20               dest_qpn    remote va lo   remote va lo
//	24               dest_qkey   rkey           rkey            length     length
//	28   length      length      length         swap or add hi
//	32   payload or SGEs                        swap or add lo  offset     parent lkey
//	36                                          compare hi                 be16 flags
//	40                                          compare lo      dma_addr
//	44                                          v2: lkey
//	48                                          SGE, v2: va     map_count
//	52                                                          be16 flags
//	54                                                          u8 dir_size_log2
//	55                                                          u8 page_size_log2
const (
	WQEMinLen = 64

	WQEID     = 0
	WQEOp     = 8
	WQENumSGE = 9
	WQEFlags  = 10
	WQEImm    = 12

	SendAH      = 16
	SendDestQPN = 20
	SendQKey    = 24
	RemoteVA    = 16
	RemoteKey   = 24
	PayloadLen  = 28
	Payload     = 32

	AtomicOperand = 28
	AtomicCompare = 36
	AtomicSGE     = 48
	AtomicV2Key   = 44
	AtomicV2VA    = 48

	RegVA        = 16
	RegLength    = 24
	RegOffset    = 32
	RegDMA       = 40
	RegMapCount  = 48
	RegAccess    = 52
	RegPageShift = 55

	BindVA     = 16
	BindLength = 24
	BindParent = 32
	BindAccess = 36
)

// SGELen is the size of a scatter-gather element; SpecSGE is where the first
// one is when the WQE carries a redundant length array (SPEC32, SPEC16).
//
//	0  be64 va   8  be32 length   12  be32 lkey
const (
	SGELen  = 16
	SpecSGE = 64
)

// MaxMessage is the largest message, in bytes.
const MaxMessage = 1 << 31

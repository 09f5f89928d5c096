// SPDX-License-Identifier: Apache-2.0

package abi

import "strconv"

// QType is the logical queue type of Q_IDENTIFY, Q_INIT and Q_CONTROL
// (enum ionic_logical_qtype).
type QType uint8

// Logical queue types. This device uses the same numbers as hardware types,
// that is, as doorbell slots; the RDMA half uses other numbers.
const (
	QTypeAdmin  QType = 0
	QTypeNotify QType = 1
	QTypeRx     QType = 2
	QTypeTx     QType = 3
	QTypeEQ     QType = 4
	QTypeMax    QType = 16
)

// String returns the usual short name.
func (t QType) String() string {
	switch t {
	case QTypeAdmin:
		return "adminq"
	case QTypeNotify:
		return "notifyq"
	case QTypeRx:
		return "rxq"
	case QTypeTx:
		return "txq"
	case QTypeEQ:
		return "eq"
	}
	return "queue type " + strconv.Itoa(int(t))
}

// QFlags are the flags of Q_INIT.
type QFlags uint16

// Q_INIT flags.
const (
	QFlagIRQ    QFlags = 0x01
	QFlagEnable QFlags = 0x02
	QFlagSG     QFlags = 0x04
	QFlagEQ     QFlags = 0x08
	QFlagCMB    QFlags = 0x10
	QFlagDebug  QFlags = 0x80
)

// QOper is the operation of Q_CONTROL (enum ionic_q_control_oper).
type QOper uint8

// Q_CONTROL operations.
const (
	QDisable   QOper = 0
	QEnable    QOper = 1
	QHangReset QOper = 2
)

// Limits of the ring size in Q_INIT, log2 of entries.
const (
	MinRingLog2 = 2
	MaxRingLog2 = 16
)

// Sizes of ring entries in bytes.
const (
	AdminDescSize   = 64
	AdminCompSize   = 16
	NotifyDescSize  = 4
	NotifyEventSize = 64
	TxDescSize      = 16
	TxCompSize      = 16
	TxSGDescSizeV0  = 128 // Q_INIT version 0: 8 elements
	TxSGDescSize    = 256 // Q_INIT version 1 and up: 16 slots, 15 used
	TxMaxSGV0       = 8
	TxMaxSG         = 15
	RxDescSize      = 16
	RxCompSize      = 16
	RxSGDescSize    = 128
	RxMaxSG         = 8
	SGElemSize      = 16
)

// ColorBit is the colour in byte 15 of a completion, seen in the second
// little-endian quadword.
const ColorBit = uint64(0x80) << 56

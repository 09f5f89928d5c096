// SPDX-License-Identifier: Apache-2.0

package abi

// EQELen is the size of an event queue entry.
const (
	EQELen        = 4
	EQEStrideLog2 = 2
)

// Event types and codes of an EQE (enum ionic_v1_eqe_evt_bits).
const (
	EventCQ = 0
	EventQP = 1

	EventCQNotify = 0
	EventCQError  = 8
)

// EQE is an event queue entry, one big-endian word (struct ionic_v1_eqe).
//
//	bit  0     colour
//	bits 1-3   type
//	bits 4-7   code
//	bits 8-31  queue id
type EQE struct {
	Type uint8
	Code uint8
	QID  uint32
}

// Word is the entry in host order, with colour 0.
func (e EQE) Word() uint32 {
	return uint32(e.Type&7)<<1 | uint32(e.Code&15)<<4 | e.QID<<8
}

// DecodeEQE takes an entry in host order apart.
func DecodeEQE(v uint32) (e EQE, color uint8) {
	return EQE{Type: uint8(v>>1) & 7, Code: uint8(v>>4) & 15, QID: v >> 8}, uint8(v & 1)
}

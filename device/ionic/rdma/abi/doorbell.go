// SPDX-License-Identifier: Apache-2.0

package abi

// QIDMask is the range of a queue id: 24 bits everywhere in the interface.
const QIDMask = 1<<24 - 1

// Rings of a doorbell. SQ, RQ and AQ use ring 0 only.
const (
	RingIndex     = 0 // producer (SQ, RQ, AQ) or consumer (CQ) index
	RingArm       = 1 // CQ: notify on any completion
	RingSolicited = 2 // CQ: notify on a solicited or failed completion
)

// Doorbell is the decoded value of one doorbell store.
//
//	bits  0-15  index
//	bits 16-18  ring
//	bits 19-23  zero (express doorbells, not offered)
//	bits 24-47  queue id
//	bits 48-63  zero (express doorbells, not offered)
type Doorbell struct {
	Index uint16
	Ring  uint8
	QID   uint32
}

// doorbellReserved are the bits that must be zero.
const doorbellReserved = 0xffff_0000_00f8_0000

// Value is the 64-bit value to store.
func (d Doorbell) Value() uint64 {
	return uint64(d.Index) | uint64(d.Ring&7)<<16 | uint64(d.QID&QIDMask)<<24
}

// DecodeDoorbell takes a stored value apart; false when a reserved bit is set.
func DecodeDoorbell(v uint64) (Doorbell, bool) {
	return Doorbell{
		Index: uint16(v),
		Ring:  uint8(v>>16) & 7,
		QID:   uint32(v>>24) & QIDMask,
	}, v&doorbellReserved == 0
}

// SPDX-License-Identifier: Apache-2.0

package abi

// TxOpcode is the opcode of a transmit descriptor (enum ionic_txq_desc_opcode).
type TxOpcode uint8

// Transmit opcodes.
const (
	TxCsumNone    TxOpcode = 0
	TxCsumPartial TxOpcode = 1
	TxCsumHW      TxOpcode = 2
	TxTSO         TxOpcode = 3
)

// TxFlags are the flags of a transmit descriptor. Bits 2 and 3 mean L3 and L4
// for TxCsumHW, start and end of the segment chain for TxTSO.
type TxFlags uint8

// Transmit flags.
const (
	TxFlagVLAN  TxFlags = 0x1
	TxFlagEncap TxFlags = 0x2
	TxFlagL3    TxFlags = 0x4
	TxFlagL4    TxFlags = 0x8
	TxFlagSOT   TxFlags = 0x4
	TxFlagEOT   TxFlags = 0x8
)

// TxDesc is a decoded transmit descriptor (struct ionic_txq_desc).
type TxDesc struct {
	Addr       uint64 // 52 bits
	Len        uint16
	Op         TxOpcode
	Flags      TxFlags
	SGs        uint8
	VLAN       uint16
	CsumStart  uint16 // or header length
	CsumOffset uint16 // or MSS
}

// DecodeTxDesc reads 16 bytes.
func DecodeTxDesc(b []byte) TxDesc {
	cmd := le.Uint64(b[0:])
	return TxDesc{
		Addr:       cmd >> 12,
		Len:        le.Uint16(b[8:]),
		Op:         TxOpcode(cmd>>4) & 0xf,
		Flags:      TxFlags(cmd) & 0xf,
		SGs:        uint8(cmd>>8) & 0xf,
		VLAN:       le.Uint16(b[10:]),
		CsumStart:  le.Uint16(b[12:]),
		CsumOffset: le.Uint16(b[14:]),
	}
}

// Encode stores 16 bytes.
func (d TxDesc) Encode(b []byte) {
	le.PutUint64(b[0:], d.Addr<<12|uint64(d.SGs&0xf)<<8|uint64(d.Op&0xf)<<4|uint64(d.Flags&0xf))
	le.PutUint16(b[8:], d.Len)
	le.PutUint16(b[10:], d.VLAN)
	le.PutUint16(b[12:], d.CsumStart)
	le.PutUint16(b[14:], d.CsumOffset)
}

// SGElem is one scatter-gather element of either direction.
type SGElem struct {
	Addr uint64
	Len  uint16
}

// DecodeSGElem reads element i of a scatter-gather descriptor.
func DecodeSGElem(b []byte, i int) SGElem {
	b = b[i*SGElemSize:]
	return SGElem{Addr: le.Uint64(b[0:]), Len: le.Uint16(b[8:])}
}

// Encode stores the element as number i of a scatter-gather descriptor.
func (s SGElem) Encode(b []byte, i int) {
	b = b[i*SGElemSize:]
	le.PutUint64(b[0:], s.Addr)
	le.PutUint16(b[8:], s.Len)
}

// TxCompletion returns the two quadwords of a transmit completion.
func TxCompletion(index uint16, color bool) (lo, hi uint64) {
	lo = uint64(index) << 16
	if color {
		hi = ColorBit
	}
	return lo, hi
}

// RxOpcode is the opcode of a receive descriptor (enum ionic_rxq_desc_opcode).
type RxOpcode uint8

// Receive opcodes.
const (
	RxSimple RxOpcode = 0
	RxSG     RxOpcode = 1
)

// RxDesc is a decoded receive descriptor (struct ionic_rxq_desc).
type RxDesc struct {
	Op   RxOpcode
	Len  uint16
	Addr uint64
}

// DecodeRxDesc reads 16 bytes.
func DecodeRxDesc(b []byte) RxDesc {
	return RxDesc{Op: RxOpcode(b[0]), Len: le.Uint16(b[6:]), Addr: le.Uint64(b[8:])}
}

// Encode stores 16 bytes.
func (d RxDesc) Encode(b []byte) {
	clear(b[:RxDescSize])
	b[0] = byte(d.Op)
	le.PutUint16(b[6:], d.Len)
	le.PutUint64(b[8:], d.Addr)
}

// PktType is the packet type of a receive completion.
type PktType uint8

// Packet types.
const (
	PktNonIP   PktType = 0x00
	PktIPv4    PktType = 0x01
	PktIPv4TCP PktType = 0x03
	PktIPv4UDP PktType = 0x05
	PktIPv6    PktType = 0x08
	PktIPv6TCP PktType = 0x18
	PktIPv6UDP PktType = 0x28
)

// Flags of a receive completion.
const (
	RxCsumTCPOK   = 0x01
	RxCsumTCPBad  = 0x02
	RxCsumUDPOK   = 0x04
	RxCsumUDPBad  = 0x08
	RxCsumIPOK    = 0x10
	RxCsumIPBad   = 0x20
	RxFlagVLAN    = 0x40
	RxFlagCsum    = 0x80
	RxStatusError = 2 // any non-zero status makes the driver drop and recycle the buffer
)

// RxCompletion is struct ionic_rxq_comp:
//
//	 0        1        2            4                     8
//	+--------+--------+------------+---------------------+
//	| status | num_sg | comp_index |      rss_hash       |
//	+--------+--------+------------+----------+-----+-+--+
//	| csum            | vlan_tci   |   len    |flags|C|ty|
//	+-----------------+------------+----------+-----+-+--+
//	 8                 10           12         14    15
type RxCompletion struct {
	Status uint8
	SGs    uint8
	Index  uint16
	Hash   uint32
	Csum   uint16
	VLAN   uint16
	Len    uint16
	Flags  uint8
	Type   PktType
}

// Words returns the two little-endian quadwords of the completion; the second,
// which carries the colour, is published last.
func (c RxCompletion) Words(color bool) (lo, hi uint64) {
	lo = uint64(c.Status) | uint64(c.SGs)<<8 | uint64(c.Index)<<16 | uint64(c.Hash)<<32
	hi = uint64(c.Csum) | uint64(c.VLAN)<<16 | uint64(c.Len)<<32 | uint64(c.Flags)<<48 |
		uint64(c.Type&0x7f)<<56
	if color {
		hi |= ColorBit
	}
	return lo, hi
}

// DecodeRxCompletion reads 16 bytes; color is bit 7 of the last.
func DecodeRxCompletion(b []byte) (c RxCompletion, color bool) {
	return RxCompletion{
		Status: b[0], SGs: b[1], Index: le.Uint16(b[2:]), Hash: le.Uint32(b[4:]),
		Csum: le.Uint16(b[8:]), VLAN: le.Uint16(b[10:]), Len: le.Uint16(b[12:]),
		Flags: b[14], Type: PktType(b[15] & 0x7f),
	}, b[15]&0x80 != 0
}

// NotifyCode is the event code of the notify queue (enum ionic_event_code).
type NotifyCode uint16

// Notify codes. Others only make the driver log a warning.
const (
	NotifyLinkChange NotifyCode = 1
	NotifyReset      NotifyCode = 2
)

// NotifyLink is a LINK_CHANGE event (struct ionic_link_change_event): eid u64
// at 0, code u16 at 8, link status u16 at 10, speed u32 at 12.
type NotifyLink struct {
	Status PortOperStatus
	Speed  uint32
}

// Body returns the quadword at byte 8; the event id at byte 0 is published last.
func (n NotifyLink) Body() uint64 {
	return uint64(NotifyLinkChange) | uint64(n.Status)<<16 | uint64(n.Speed)<<32
}

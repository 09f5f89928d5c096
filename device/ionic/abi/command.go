// SPDX-License-Identifier: Apache-2.0

package abi

import "encoding/binary"

var le = binary.LittleEndian

// Command is the 64-byte command, from the BAR0 registers or an admin queue
// descriptor.
type Command [CommandSize]byte

// Opcode returns byte 0.
func (c *Command) Opcode() Opcode { return Opcode(c[0]) }

// SetOpcode stores byte 0.
func (c *Command) SetOpcode(o Opcode) { c[0] = byte(o) }

// LIFIndex returns the u16 at byte 2, where every LIF command but Q_IDENTIFY
// names its LIF.
func (c *Command) LIFIndex() uint16 { return le.Uint16(c[2:]) }

// Version returns byte 1 of IDENTIFY, byte 2 of LIF_IDENTIFY and PORT_IDENTIFY
// or byte 5 of Q_IDENTIFY: the newest structure version the driver knows.
func (c *Command) Version() uint8 {
	switch c.Opcode() {
	case OpIdentify:
		return c[1]
	case OpQIdentify:
		return c[5]
	}
	return c[2]
}

// Attr returns the attribute number at byte 1 of PORT_SETATTR, LIF_SETATTR and
// LIF_GETATTR.
func (c *Command) Attr() uint8 { return c[1] }

// PortIndex returns byte 1 of PORT_IDENTIFY, PORT_INIT, PORT_RESET.
func (c *Command) PortIndex() uint8 { return c[1] }

// InfoAddress returns the DMA address at byte 8 of PORT_INIT and LIF_INIT.
func (c *Command) InfoAddress() uint64 { return le.Uint64(c[8:]) }

// SetInfoAddress stores the DMA address of PORT_INIT and LIF_INIT.
func (c *Command) SetInfoAddress(a uint64) { le.PutUint64(c[8:], a) }

// Value returns the attribute value at byte 4 of LIF_SETATTR.
func (c *Command) Value() []byte { return c[4:] }

// QIdentifyType returns the logical queue type at byte 4 of Q_IDENTIFY.
func (c *Command) QIdentifyType() QType { return QType(c[4]) }

// Completion is the 16-byte completion.
type Completion [CompletionSize]byte

// Status returns byte 0.
func (c *Completion) Status() Status { return Status(c[0]) }

// SetStatus stores byte 0.
func (c *Completion) SetStatus(s Status) { c[0] = byte(s) }

// Index returns the descriptor index at byte 2.
func (c *Completion) Index() uint16 { return le.Uint16(c[2:]) }

// SetIndex stores the descriptor index at byte 2.
func (c *Completion) SetIndex(i uint16) { le.PutUint16(c[2:], i) }

// Words returns the completion as two little-endian quadwords with the colour
// set; the second one is published last.
func (c *Completion) Words(color bool) (lo, hi uint64) {
	lo, hi = le.Uint64(c[0:]), le.Uint64(c[8:])&^ColorBit
	if color {
		hi |= ColorBit
	}
	return lo, hi
}

// SetVersion stores the structure version of the identify commands: byte 1, or
// byte 4 for Q_IDENTIFY.
func (c *Completion) SetVersion(op Opcode, v uint8) {
	if op == OpQIdentify {
		c[4] = v
		return
	}
	c[1] = v
}

// SetLIFHWIndex stores the hardware index of LIF_INIT at byte 2.
func (c *Completion) SetLIFHWIndex(i uint16) { le.PutUint16(c[2:], i) }

// SetQueue stores the hardware index and type of Q_INIT, bytes 4 and 8.
func (c *Completion) SetQueue(hwIndex uint32, hwType QType) {
	le.PutUint32(c[4:], hwIndex)
	c[8] = byte(hwType)
}

// HWIndex returns the hardware index of Q_INIT.
func (c *Completion) HWIndex() uint32 { return le.Uint32(c[4:]) }

// HWType returns the hardware type, that is the doorbell slot, of Q_INIT.
func (c *Completion) HWType() QType { return QType(c[8]) }

// SetFeatures stores the granted features of LIF_SETATTR and LIF_GETATTR at byte 4.
func (c *Completion) SetFeatures(f Features) { le.PutUint64(c[4:], uint64(f)) }

// Features returns the granted features at byte 4.
func (c *Completion) Features() Features { return Features(le.Uint64(c[4:])) }

// SetFilterID stores the filter id of RX_FILTER_ADD at byte 4.
func (c *Completion) SetFilterID(id uint32) { le.PutUint32(c[4:], id) }

// FilterID returns the filter id of RX_FILTER_ADD.
func (c *Completion) FilterID() uint32 { return le.Uint32(c[4:]) }

// Value returns the bytes from byte 4 where LIF_GETATTR puts its answer.
func (c *Completion) Value() []byte { return c[4:15] }

// QInit is Q_INIT (struct ionic_q_init_cmd).
type QInit struct {
	LIF      uint16
	Type     QType
	Version  uint8
	Index    uint32
	PID      uint16
	Intr     uint16
	Flags    QFlags
	COS      uint8
	RingLog2 uint8  // log2 of the number of entries
	Ring     uint64 // DMA address of the descriptor ring
	CQ       uint64 // DMA address of the completion ring
	SG       uint64 // DMA address of the scatter-gather ring
	Features QFeatures
}

// QInit decodes the command as Q_INIT.
func (c *Command) QInit() QInit {
	return QInit{
		LIF:      le.Uint16(c[2:]),
		Type:     QType(c[4]),
		Version:  c[5],
		Index:    le.Uint32(c[8:]),
		PID:      le.Uint16(c[12:]),
		Intr:     le.Uint16(c[14:]),
		Flags:    QFlags(le.Uint16(c[16:])),
		COS:      c[18],
		RingLog2: c[19],
		Ring:     le.Uint64(c[20:]),
		CQ:       le.Uint64(c[28:]),
		SG:       le.Uint64(c[36:]),
		Features: QFeatures(le.Uint64(c[56:])),
	}
}

// Command encodes the request.
func (q QInit) Command() (c Command) {
	c.SetOpcode(OpQInit)
	le.PutUint16(c[2:], q.LIF)
	c[4], c[5] = byte(q.Type), q.Version
	le.PutUint32(c[8:], q.Index)
	le.PutUint16(c[12:], q.PID)
	le.PutUint16(c[14:], q.Intr)
	le.PutUint16(c[16:], uint16(q.Flags))
	c[18], c[19] = q.COS, q.RingLog2
	le.PutUint64(c[20:], q.Ring)
	le.PutUint64(c[28:], q.CQ)
	le.PutUint64(c[36:], q.SG)
	le.PutUint64(c[56:], uint64(q.Features))
	return c
}

// QControl is Q_CONTROL (struct ionic_q_control_cmd).
type QControl struct {
	Type  QType
	LIF   uint16
	Index uint32
	Oper  QOper
}

// QControl decodes the command as Q_CONTROL.
func (c *Command) QControl() QControl {
	return QControl{Type: QType(c[1]), LIF: le.Uint16(c[2:]), Index: le.Uint32(c[4:]), Oper: QOper(c[8])}
}

// Command encodes the request.
func (q QControl) Command() (c Command) {
	c.SetOpcode(OpQControl)
	c[1] = byte(q.Type)
	le.PutUint16(c[2:], q.LIF)
	le.PutUint32(c[4:], q.Index)
	c[8] = byte(q.Oper)
	return c
}

// RxMatch is the match kind of RX_FILTER_ADD (enum ionic_rx_filter_match_type).
type RxMatch uint16

// Match kinds.
const (
	RxMatchVLAN    RxMatch = 0
	RxMatchMAC     RxMatch = 1
	RxMatchMACVLAN RxMatch = 2
	RxMatchSteer   RxMatch = 0x10
)

// RxFilter is RX_FILTER_ADD (struct ionic_rx_filter_add_cmd).
type RxFilter struct {
	LIF   uint16
	QType QType
	QID   uint32
	Match RxMatch
	VLAN  uint16
	MAC   [6]byte
}

// RxFilter decodes the command as RX_FILTER_ADD.
func (c *Command) RxFilter() RxFilter {
	f := RxFilter{
		QType: QType(c[1]),
		LIF:   le.Uint16(c[2:]),
		QID:   le.Uint32(c[4:]),
		Match: RxMatch(le.Uint16(c[8:])),
	}
	switch f.Match {
	case RxMatchVLAN:
		f.VLAN = le.Uint16(c[10:])
	case RxMatchMAC:
		copy(f.MAC[:], c[10:16])
	case RxMatchMACVLAN:
		f.VLAN = le.Uint16(c[10:])
		copy(f.MAC[:], c[12:18])
	}
	return f
}

// Command encodes the request.
func (f RxFilter) Command() (c Command) {
	c.SetOpcode(OpRxFilterAdd)
	c[1] = byte(f.QType)
	le.PutUint16(c[2:], f.LIF)
	le.PutUint32(c[4:], f.QID)
	le.PutUint16(c[8:], uint16(f.Match))
	switch f.Match {
	case RxMatchVLAN:
		le.PutUint16(c[10:], f.VLAN)
	case RxMatchMAC:
		copy(c[10:16], f.MAC[:])
	case RxMatchMACVLAN:
		le.PutUint16(c[10:], f.VLAN)
		copy(c[12:18], f.MAC[:])
	}
	return c
}

// RxFilterID returns the filter id of RX_FILTER_DEL.
func (c *Command) RxFilterID() uint32 { return le.Uint32(c[4:]) }

// SetRxFilterID stores the filter id of RX_FILTER_DEL.
func (c *Command) SetRxFilterID(id uint32) { le.PutUint32(c[4:], id) }

// RxMode returns the mode of RX_MODE_SET.
func (c *Command) RxMode() RxMode { return RxMode(le.Uint16(c[4:])) }

// SetRxMode stores the mode of RX_MODE_SET.
func (c *Command) SetRxMode(m RxMode) { le.PutUint16(c[4:], uint16(m)) }

// LIFAttr is the attribute of LIF_SETATTR and LIF_GETATTR (enum ionic_lif_attr).
type LIFAttr uint8

// LIF attributes.
const (
	LIFAttrState     LIFAttr = 0
	LIFAttrName      LIFAttr = 1
	LIFAttrMTU       LIFAttr = 2
	LIFAttrMAC       LIFAttr = 3
	LIFAttrFeatures  LIFAttr = 4
	LIFAttrRSS       LIFAttr = 5
	LIFAttrStatsCtrl LIFAttr = 6
	LIFAttrTxStamp   LIFAttr = 7
)

// LIFState is the value of LIFAttrState (enum ionic_lif_state).
type LIFState uint8

// LIF states.
const (
	LIFQuiesce LIFState = 0
	LIFEnable  LIFState = 1
	LIFDisable LIFState = 2
)

// RSS is the value of LIFAttrRSS.
type RSS struct {
	Types RSSTypes
	Key   [RSSKeySize]byte
	Table uint64 // DMA address of the indirection table, one byte per entry
}

// RSS decodes the attribute value of LIF_SETATTR RSS.
func (c *Command) RSS() (r RSS) {
	r.Types = RSSTypes(le.Uint16(c[4:]))
	copy(r.Key[:], c[6:46])
	r.Table = le.Uint64(c[52:])
	return r
}

// SetRSS stores the attribute value of LIF_SETATTR RSS.
func (c *Command) SetRSS(r RSS) {
	le.PutUint16(c[4:], uint16(r.Types))
	copy(c[6:46], r.Key[:])
	le.PutUint64(c[52:], r.Table)
}

// LIFNameLen is the size of the LIF name, NUL terminated.
const LIFNameLen = 16

// PortAttr is the attribute of PORT_SETATTR (enum ionic_port_attr).
type PortAttr uint8

// Port attributes.
const (
	PortAttrState     PortAttr = 0
	PortAttrSpeed     PortAttr = 1
	PortAttrMTU       PortAttr = 2
	PortAttrAutoneg   PortAttr = 3
	PortAttrFEC       PortAttr = 4
	PortAttrPause     PortAttr = 5
	PortAttrLoopback  PortAttr = 6
	PortAttrStatsCtrl PortAttr = 7
)

// PortAdminState is the value of PortAttrState (enum ionic_port_admin_state).
type PortAdminState uint8

// Port administrative states.
const (
	PortAdminNone PortAdminState = 0
	PortAdminDown PortAdminState = 1
	PortAdminUp   PortAdminState = 2
)

// PortOperStatus is the operational state in port_info and lif_info
// (enum ionic_port_oper_status). The driver's carrier is exactly PortOperUp.
type PortOperStatus uint8

// Port operational states.
const (
	PortOperNone PortOperStatus = 0
	PortOperUp   PortOperStatus = 1
	PortOperDown PortOperStatus = 2
)

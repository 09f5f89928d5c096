// SPDX-License-Identifier: Apache-2.0

package abi

// CQELen is the size of a completion queue entry; CQETail is the offset of
// its last word, which holds the colour and is stored last.
const (
	CQELen        = 32
	CQEStrideLog2 = 5
	CQETail       = 28
)

// CQE types.
const (
	CQEAdmin   = 0
	CQERecv    = 1
	CQESendMSN = 2
	CQESendNPG = 3
)

// Bits of the last word of a CQE.
const (
	CQEColor = 1 << 0
	CQEError = 1 << 1
)

// Bits of src_qpn_op of a receive CQE.
const (
	RecvOpShift = 24
	RecvVLAN    = 1 << 30
	RecvIPv4    = 1 << 31
)

// StatusFlushed is the status of a flush CQE, the one error status that names
// no WQE.
const StatusFlushed = 4

// CQE is a completion queue entry (struct ionic_v1_cqe).
//
//	     admin            recv              send MSN          send NPG
//	0    be16 cmd_idx     le64 wqe_id       zero              zero
//	2    u8   cmd_op
//	4                                       be32 msg_msn
//	8                     be32 src_qpn_op
//	12                    u8[6] src_mac
//	16                                                        le64 npg_wqe_id
//	18                    be16 vlan_tag
//	20                    imm_data_rkey
//	24   be32 status_length (all)
//	28   be32 bit 0 colour, bit 1 error, bits 5-7 type, bits 8-31 queue id (all)
//
// Only the fields of Type are written or read.
type CQE struct {
	Type         uint8
	Error        bool
	QID          uint32
	StatusLength uint32 // byte count of a receive, status on error

	CmdIndex uint16 // admin
	CmdOp    uint8

	WQEID    uint64 // recv and NPG
	SrcQPNOp uint32
	SrcMAC   [6]byte
	VLAN     uint16
	Imm      [4]byte

	MSN uint32 // MSN
}

// Put writes the entry with colour 0 to the first CQELen bytes of b.
func (c *CQE) Put(b []byte) {
	b = b[:CQELen]
	clear(b)
	switch c.Type {
	case CQEAdmin:
		be.PutUint16(b[0:], c.CmdIndex)
		b[2] = c.CmdOp
	case CQERecv:
		le.PutUint64(b[0:], c.WQEID)
		be.PutUint32(b[8:], c.SrcQPNOp)
		copy(b[12:18], c.SrcMAC[:])
		be.PutUint16(b[18:], c.VLAN)
		copy(b[20:24], c.Imm[:])
	case CQESendMSN:
		be.PutUint32(b[4:], c.MSN)
	case CQESendNPG:
		le.PutUint64(b[16:], c.WQEID)
	}
	be.PutUint32(b[24:], c.StatusLength)
	be.PutUint32(b[CQETail:], c.Tail())
}

// Tail is the last word in host order, with colour 0.
func (c *CQE) Tail() uint32 {
	v := uint32(c.Type&7)<<5 | c.QID<<8
	if c.Error {
		v |= CQEError
	}
	return v
}

// Get reads an entry from b and returns its colour.
func (c *CQE) Get(b []byte) (color uint8) {
	_ = b[CQELen-1]
	tail := be.Uint32(b[CQETail:])
	*c = CQE{
		Type:         uint8(tail>>5) & 7,
		Error:        tail&CQEError != 0,
		QID:          tail >> 8,
		StatusLength: be.Uint32(b[24:]),
	}
	switch c.Type {
	case CQEAdmin:
		c.CmdIndex, c.CmdOp = be.Uint16(b[0:]), b[2]
	case CQERecv:
		c.WQEID = le.Uint64(b[0:])
		c.SrcQPNOp = be.Uint32(b[8:])
		copy(c.SrcMAC[:], b[12:18])
		c.VLAN = be.Uint16(b[18:])
		copy(c.Imm[:], b[20:24])
	case CQESendMSN:
		c.MSN = be.Uint32(b[4:])
	case CQESendNPG:
		c.WQEID = le.Uint64(b[16:])
	}
	return uint8(tail & CQEColor)
}

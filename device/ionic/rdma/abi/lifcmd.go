// SPDX-License-Identifier: Apache-2.0

package abi

// Opcodes of the RDMA commands that travel on the LIF's admin queue
// (enum ionic_cmd_opcode).
const (
	CmdResetLIF     = 50
	CmdCreateEQ     = 51
	CmdCreateCQ     = 52
	CmdCreateAdminQ = 53
)

// LIFCommandLen is the size of a LIF admin queue command.
const LIFCommandLen = 64

// Status codes of a LIF admin queue completion (enum ionic_status_code) that
// the RDMA commands use.
const (
	CmdOK       = 0
	CmdEOpcode  = 2  // unknown opcode
	CmdEQID     = 5  // invalid queue id
	CmdEInval   = 14 // invalid request
	CmdENoSpace = 15
	CmdEExist   = 13
	CmdEFault   = 11 // bad address
)

// QueueCommand is RDMA_CREATE_EQ, RDMA_CREATE_CQ and RDMA_CREATE_ADMINQ
// (struct ionic_rdma_queue_cmd).
//
//	0   u8    opcode
//	2   le16  lif_index
//	4   le32  qid_ver: bits 0-23 queue id
//	8   le32  cid: interrupt index (EQ), EQ id (CQ), CQ id (admin queue)
//	12  le16  dbid: doorbell page
//	14  u8    depth_log2
//	15  u8    stride_log2
//	16  le64  dma_addr of the contiguous ring
type QueueCommand struct {
	Opcode     uint8
	LIF        uint16
	ID         uint32 // 24 bits
	CID        uint32
	DBID       uint16
	DepthLog2  uint8
	StrideLog2 uint8
	DMA        uint64
}

// Put writes the command to the first LIFCommandLen bytes of b.
func (c *QueueCommand) Put(b []byte) {
	b = b[:LIFCommandLen]
	clear(b)
	b[0] = c.Opcode
	le.PutUint16(b[2:], c.LIF)
	le.PutUint32(b[4:], c.ID)
	le.PutUint32(b[8:], c.CID)
	le.PutUint16(b[12:], c.DBID)
	b[14], b[15] = c.DepthLog2, c.StrideLog2
	le.PutUint64(b[16:], c.DMA)
}

// Get reads the command from b. The version in the top byte of qid_ver, which
// no driver sets, is dropped.
func (c *QueueCommand) Get(b []byte) {
	_ = b[LIFCommandLen-1]
	c.Opcode = b[0]
	c.LIF = le.Uint16(b[2:])
	c.ID = le.Uint32(b[4:]) & QIDMask
	c.CID = le.Uint32(b[8:])
	c.DBID = le.Uint16(b[12:])
	c.DepthLog2, c.StrideLog2 = b[14], b[15]
	c.DMA = le.Uint64(b[16:])
}

// SPDX-License-Identifier: Apache-2.0

package abi

// NoTable is the value of every tbl_index field: the driver leaves the choice
// of page table entries to the device.
const NoTable = 0xffffffff

// CreateCQ is the body of CREATE_CQ.
//
//	4   le32  eq_id            20  le32  tbl_index (NoTable)
//	8   u8    depth_log2       24  le32  map_count
//	9   u8    stride_log2      28  le64  dma_addr
//	10  u8    dir_size_log2    36  le16  dbid_flags: doorbell page
//	11  u8    page_size_log2
//	12  le32  cq_flags
//	16  le32  id_ver: CQ id
type CreateCQ struct {
	EQ           uint32
	DepthLog2    uint8
	StrideLog2   uint8
	PageSizeLog2 uint8
	Flags        uint32
	ID           uint32
	MapCount     uint32
	DMA          uint64
	DBID         uint16
}

// Put writes the body into the command b.
func (c *CreateCQ) Put(b []byte) {
	le.PutUint32(b[4:], c.EQ)
	b[8], b[9], b[10], b[11] = c.DepthLog2, c.StrideLog2, 0, c.PageSizeLog2
	le.PutUint32(b[12:], c.Flags)
	le.PutUint32(b[16:], c.ID)
	le.PutUint32(b[20:], NoTable)
	le.PutUint32(b[24:], c.MapCount)
	le.PutUint64(b[28:], c.DMA)
	le.PutUint16(b[36:], c.DBID)
}

// Get reads the body from the command b.
func (c *CreateCQ) Get(b []byte) {
	_ = b[AdminHeaderLen+CreateCQLen-1]
	c.EQ = le.Uint32(b[4:])
	c.DepthLog2, c.StrideLog2, c.PageSizeLog2 = b[8], b[9], b[11]
	c.Flags = le.Uint32(b[12:])
	c.ID = le.Uint32(b[16:])
	c.MapCount = le.Uint32(b[24:])
	c.DMA = le.Uint64(b[28:])
	c.DBID = le.Uint16(b[36:])
}

// MR flags of CREATE_MR, REG_MR and BIND_MW (enum ionic_mr_flags).
const (
	MRLocalWrite   = 1 << 0
	MRRemoteWrite  = 1 << 1
	MRRemoteRead   = 1 << 2
	MRRemoteAtomic = 1 << 3
	MRBind         = 1 << 4 // windows may be bound to it
	MRZeroBased    = 1 << 5
	MRUserKey      = 1 << 13 // key byte chosen by the consumer
	MRWindow       = 1 << 14
	MRInvalidate   = 1 << 15 // starts invalid, may be invalidated
	MRAccessMask   = 0x3f
)

// CreateMR is the body of CREATE_MR: memory region, fast-register region or
// memory window.
//
//	4   le64  va              36  le64  dma_addr
//	12  le64  length          44  le16  dbid_flags: MR flags
//	20  le32  pd_id           46  u8    pt_type
//	24  le32  id_ver: mr id   47  u8    dir_size_log2
//	28  le32  tbl_index       48  u8    page_size_log2
//	32  le32  map_count
type CreateMR struct {
	VA           uint64
	Length       uint64
	PD           uint32
	ID           uint32 // index << 8 | key
	MapCount     uint32
	DMA          uint64
	Flags        uint16
	PageSizeLog2 uint8
}

// Put writes the body into the command b.
func (c *CreateMR) Put(b []byte) {
	le.PutUint64(b[4:], c.VA)
	le.PutUint64(b[12:], c.Length)
	le.PutUint32(b[20:], c.PD)
	le.PutUint32(b[24:], c.ID)
	le.PutUint32(b[28:], NoTable)
	le.PutUint32(b[32:], c.MapCount)
	le.PutUint64(b[36:], c.DMA)
	le.PutUint16(b[44:], c.Flags)
	b[46], b[47], b[48] = 0, 0, c.PageSizeLog2
}

// Get reads the body from the command b.
func (c *CreateMR) Get(b []byte) {
	_ = b[AdminHeaderLen+CreateMRLen-1]
	c.VA, c.Length = le.Uint64(b[4:]), le.Uint64(b[12:])
	c.PD, c.ID = le.Uint32(b[20:]), le.Uint32(b[24:])
	c.MapCount, c.DMA = le.Uint32(b[32:]), le.Uint64(b[36:])
	c.Flags, c.PageSizeLog2 = le.Uint16(b[44:]), b[48]
}

// Checksum profiles of CREATE_AH and MODIFY_QP: what a header template is made
// of (enum ionic_tfp_csum_profiles).
const (
	ProfileIPv4     = 0
	ProfileVLANIPv4 = 1
	ProfileIPv6     = 2
	ProfileVLANIPv6 = 3
)

// CreateAH is the body of CREATE_AH.
//
//	4   le64  dma_addr of the header template   20  le32  id_ver: AH id
//	12  le32  length of the template            24  le16  dbid_flags
//	16  le32  pd_id                             26  u8    csum_profile
//	                                            27  u8    crypto
type CreateAH struct {
	DMA     uint64
	Length  uint32
	PD      uint32
	ID      uint32
	DBID    uint16
	Profile uint8
}

// Put writes the body into the command b.
func (c *CreateAH) Put(b []byte) {
	le.PutUint64(b[4:], c.DMA)
	le.PutUint32(b[12:], c.Length)
	le.PutUint32(b[16:], c.PD)
	le.PutUint32(b[20:], c.ID)
	le.PutUint16(b[24:], c.DBID)
	b[26], b[27] = c.Profile, 0
}

// Get reads the body from the command b.
func (c *CreateAH) Get(b []byte) {
	_ = b[AdminHeaderLen+CreateAHLen-1]
	c.DMA, c.Length = le.Uint64(b[4:]), le.Uint32(b[12:])
	c.PD, c.ID = le.Uint32(b[16:]), le.Uint32(b[20:])
	c.DBID, c.Profile = le.Uint16(b[24:]), b[26]
}

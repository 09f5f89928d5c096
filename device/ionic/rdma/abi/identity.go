// SPDX-License-Identifier: Apache-2.0

package abi

// Position of the RDMA block inside the 1912-byte LIF identity.
const (
	IdentityOffset = 392
	IdentityLen    = 256
)

// QueueType is one 12-byte queue type descriptor of the identity.
//
//	0   u8    doorbell slot of the type
//	4   le32  number of queues
//	8   le32  first id
type QueueType struct {
	Type  uint8
	Count uint32
	Base  uint32
}

// QueueTypeLen is the size of a queue type descriptor.
const QueueTypeLen = 12

// Put writes the descriptor to b.
func (q *QueueType) Put(b []byte) {
	_ = b[QueueTypeLen-1]
	b[0], b[1], b[2], b[3] = q.Type, 0, 0, 0
	le.PutUint32(b[4:], q.Count)
	le.PutUint32(b[8:], q.Base)
}

// Get reads the descriptor from b.
func (q *QueueType) Get(b []byte) {
	_ = b[QueueTypeLen-1]
	q.Type, q.Count, q.Base = b[0], le.Uint32(b[4:]), le.Uint32(b[8:])
}

// StatsType bits of the identity: which counters the device offers.
const (
	StatsGlobal = 1 << 0 // STATS_HDRS, STATS_VALS
	StatsQP     = 1 << 1 // QP_STATS_HDRS, QP_STATS_VALS
)

// Identity is the RDMA block of the LIF identity (union ionic_lif_identity,
// member rdma in ionic_if.h).
//
//	0   u8    version             16  u8    max_stride (log2)
//	1   u8    qp_opcodes          17  u8    cl_stride
//	2   u8    admin_opcodes       18  u8    pte_stride
//	3   u8    minor_version       19  u8    rrq_stride
//	4   le32  npts_per_lif        20  u8    rsq_stride
//	8   le32  nmrs_per_lif        21  u8    dcqcn_profiles
//	12  le32  nahs_per_lif        22  u8    udma_shift
//	24  le64  page_size_cap       92  le16  stats_type
//	32  aq  44 sq  56 rq  68 cq  80 eq     queue types, 12 bytes each
type Identity struct {
	Version       uint8
	QPOpcodes     uint8
	AdminOpcodes  uint8
	MinorVersion  uint8
	PageTables    uint32
	MRs           uint32
	AHs           uint32
	MaxStride     uint8
	CLStride      uint8
	PTEStride     uint8
	RRQStride     uint8
	RSQStride     uint8
	DCQCNProfiles uint8
	UDMAShift     uint8
	PageSizeCap   uint64
	AQ            QueueType
	SQ            QueueType
	RQ            QueueType
	CQ            QueueType
	EQ            QueueType
	StatsType     uint16
}

// Put writes the block to the first IdentityLen bytes of b; reserved bytes
// become zero.
func (i *Identity) Put(b []byte) {
	b = b[:IdentityLen]
	clear(b)
	b[0], b[1], b[2], b[3] = i.Version, i.QPOpcodes, i.AdminOpcodes, i.MinorVersion
	le.PutUint32(b[4:], i.PageTables)
	le.PutUint32(b[8:], i.MRs)
	le.PutUint32(b[12:], i.AHs)
	b[16], b[17], b[18], b[19] = i.MaxStride, i.CLStride, i.PTEStride, i.RRQStride
	b[20], b[21], b[22] = i.RSQStride, i.DCQCNProfiles, i.UDMAShift
	le.PutUint64(b[24:], i.PageSizeCap)
	i.AQ.Put(b[32:])
	i.SQ.Put(b[44:])
	i.RQ.Put(b[56:])
	i.CQ.Put(b[68:])
	i.EQ.Put(b[80:])
	le.PutUint16(b[92:], i.StatsType)
}

// Get reads the block from b.
func (i *Identity) Get(b []byte) {
	_ = b[IdentityLen-1]
	i.Version, i.QPOpcodes, i.AdminOpcodes, i.MinorVersion = b[0], b[1], b[2], b[3]
	i.PageTables, i.MRs, i.AHs = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	i.MaxStride, i.CLStride, i.PTEStride, i.RRQStride = b[16], b[17], b[18], b[19]
	i.RSQStride, i.DCQCNProfiles, i.UDMAShift = b[20], b[21], b[22]
	i.PageSizeCap = le.Uint64(b[24:])
	i.AQ.Get(b[32:])
	i.SQ.Get(b[44:])
	i.RQ.Get(b[56:])
	i.CQ.Get(b[68:])
	i.EQ.Get(b[80:])
	i.StatsType = le.Uint16(b[92:])
}

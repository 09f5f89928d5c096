// SPDX-License-Identifier: Apache-2.0

package abi

// QP flags of CREATE_QP, MODIFY_QP and QUERY_QP (enum ionic_qp_flags).
const (
	QPRemoteWrite      = 1 << 0
	QPRemoteRead       = 1 << 1
	QPRemoteAtomic     = 1 << 2
	QPSendPB           = 1 << 6
	QPRecvPB           = 1 << 7
	QPSendSpec         = 1 << 8
	QPRecvSpec         = 1 << 9
	QPRemotePrivileged = 1 << 10 // rkey 0 is valid for peers
	QPSQDraining       = 1 << 11
	QPSQDNotify        = 1 << 12
	QPSendCMB          = 1 << 13
	QPRecvCMB          = 1 << 14
	QPPrivileged       = 1 << 15 // lkey 0 is valid
)

// QP types of CREATE_QP.
const (
	TypeRC = 0
	TypeUC = 1
	TypeRD = 2
	TypeUD = 3 // also GSI, which is the QP with id 1
)

// GSI is the id of the general services QP.
const GSI = 1

// RingDesc describes the memory of a queue of a QP.
type RingDesc struct {
	CQ           uint32
	DepthLog2    uint8
	StrideLog2   uint8
	PageSizeLog2 uint8
	MapCount     uint32
	DMA          uint64
}

// CreateQP is the command CREATE_QP; it takes two strides.
//
//	4   le32  pd_id                    36  le32  rq_cq_id
//	8   be32  priv_flags: QP flags     40  u8    rq_depth_log2
//	12  le32  sq_cq_id                 41  u8    rq_stride_log2
//	16  u8    sq_depth_log2            42  u8    rq_dir_size_log2
//	17  u8    sq_stride_log2           43  u8    rq_page_size_log2
//	18  u8    sq_dir_size_log2         44  le32  rq_tbl_index_srq_id
//	19  u8    sq_page_size_log2        48  le32  rq_map_count
//	20  le32  sq_tbl_index_xrcd_id     52  le64  rq_dma_addr
//	24  le32  sq_map_count             60  le32  id_ver: QP id
//	28  le64  sq_dma_addr              64  le16  dbid_flags: doorbell page
//	                                   66  u8    type_state: QP type
type CreateQP struct {
	PD    uint32
	Flags uint32
	SQ    RingDesc
	RQ    RingDesc
	ID    uint32
	DBID  uint16
	Type  uint8
}

// Put writes the body into the command b of MaxAdminLen bytes.
func (c *CreateQP) Put(b []byte) {
	_ = b[MaxAdminLen-1]
	le.PutUint32(b[4:], c.PD)
	be.PutUint32(b[8:], c.Flags)
	putRing(b[12:], &c.SQ)
	putRing(b[36:], &c.RQ)
	le.PutUint32(b[60:], c.ID)
	le.PutUint16(b[64:], c.DBID)
	b[66], b[67] = c.Type, 0
}

// Get reads the body from the command b.
func (c *CreateQP) Get(b []byte) {
	_ = b[MaxAdminLen-1]
	c.PD, c.Flags = le.Uint32(b[4:]), be.Uint32(b[8:])
	getRing(b[12:], &c.SQ)
	getRing(b[36:], &c.RQ)
	c.ID, c.DBID, c.Type = le.Uint32(b[60:]), le.Uint16(b[64:]), b[66]
}

func putRing(b []byte, r *RingDesc) {
	le.PutUint32(b[0:], r.CQ)
	b[4], b[5], b[6], b[7] = r.DepthLog2, r.StrideLog2, 0, r.PageSizeLog2
	le.PutUint32(b[8:], NoTable)
	le.PutUint32(b[12:], r.MapCount)
	le.PutUint64(b[16:], r.DMA)
}

func getRing(b []byte, r *RingDesc) {
	r.CQ = le.Uint32(b[0:])
	r.DepthLog2, r.StrideLog2, r.PageSizeLog2 = b[4], b[5], b[7]
	r.MapCount, r.DMA = le.Uint32(b[12:]), le.Uint64(b[16:])
}

// ModifyQP is the body of MODIFY_QP. A field means something only when its bit
// of Mask is set: the driver leaves garbage in the others.
//
//	4   be32  attr_mask                32  u8    rsq_depth (log2)
//	8   u8    dcqcn_profile            33  u8    rrq_depth (log2)
//	9   u8    tfp_csum_profile         34  le16  pkey_id
//	10  be16  access_flags: QP flags   36  le32  bits 0-23 AH id, 24-31 template length
//	12  le32  rq_psn                   40  u8    en_pcp
//	16  le32  sq_psn                   41  u8    ip_dscp
//	20  le32  qkey_dest_qpn            43  u8    bits 0-3 next state, 4-7 current state
//	24  le32  rate_limit_kbps          44  le32  rrq_index
//	28  u8    pmtu (log2)              48  le32  rsq_index
//	29  u8    bits 0-3 retry_cnt,      52  le64  dma_addr of the header template
//	          bits 4-7 rnr_retry       60  le32  id_ver: QP id
//	30  u8    rnr_timer
//	31  u8    retry_timeout
type ModifyQP struct {
	Mask        uint32
	Profile     uint8
	Flags       uint16
	RQPSN       uint32
	SQPSN       uint32
	QKeyDestQPN uint32
	RateLimit   uint32
	PMTU        uint8
	RetryCnt    uint8
	RNRRetry    uint8
	RNRTimer    uint8
	Timeout     uint8
	RSQDepth    uint8
	RRQDepth    uint8
	PKey        uint16
	AH          uint32
	TemplateLen uint8
	PCP         uint8
	DSCP        uint8
	State       uint8
	CurState    uint8
	DMA         uint64
	ID          uint32
}

// Put writes the body into the command b.
func (c *ModifyQP) Put(b []byte) {
	_ = b[AdminHeaderLen+ModifyQPLen-1]
	be.PutUint32(b[4:], c.Mask)
	b[8], b[9] = 0, c.Profile
	be.PutUint16(b[10:], c.Flags)
	le.PutUint32(b[12:], c.RQPSN)
	le.PutUint32(b[16:], c.SQPSN)
	le.PutUint32(b[20:], c.QKeyDestQPN)
	le.PutUint32(b[24:], c.RateLimit)
	b[28], b[29] = c.PMTU, c.RetryCnt&15|c.RNRRetry<<4
	b[30], b[31], b[32], b[33] = c.RNRTimer, c.Timeout, c.RSQDepth, c.RRQDepth
	le.PutUint16(b[34:], c.PKey)
	le.PutUint32(b[36:], c.AH&QIDMask|uint32(c.TemplateLen)<<24)
	b[40], b[41], b[42], b[43] = c.PCP, c.DSCP, 0, c.State&15|c.CurState<<4
	le.PutUint32(b[44:], NoTable)
	le.PutUint32(b[48:], NoTable)
	le.PutUint64(b[52:], c.DMA)
	le.PutUint32(b[60:], c.ID)
}

// Get reads the body from the command b.
func (c *ModifyQP) Get(b []byte) {
	_ = b[AdminHeaderLen+ModifyQPLen-1]
	c.Mask, c.Profile, c.Flags = be.Uint32(b[4:]), b[9], be.Uint16(b[10:])
	c.RQPSN, c.SQPSN = le.Uint32(b[12:]), le.Uint32(b[16:])
	c.QKeyDestQPN, c.RateLimit = le.Uint32(b[20:]), le.Uint32(b[24:])
	c.PMTU, c.RetryCnt, c.RNRRetry = b[28], b[29]&15, b[29]>>4
	c.RNRTimer, c.Timeout, c.RSQDepth, c.RRQDepth = b[30], b[31], b[32], b[33]
	c.PKey = le.Uint16(b[34:])
	ah := le.Uint32(b[36:])
	c.AH, c.TemplateLen = ah&QIDMask, uint8(ah>>24)
	c.PCP, c.DSCP = b[40], b[41]
	c.State, c.CurState = b[43]&15, b[43]>>4
	c.DMA, c.ID = le.Uint64(b[52:]), le.Uint32(b[60:])
}

// QueryQP is the body of QUERY_QP.
//
//	4   le64  hdr_dma_addr, 0 unless the address vector is wanted
//	12  le64  sq_dma_addr    28  le32  ah_id
//	20  le64  rq_dma_addr    32  le32  id_ver: QP id    36  le16  dbid_flags
type QueryQP struct {
	HeaderDMA uint64
	SQDMA     uint64
	RQDMA     uint64
	AH        uint32
	ID        uint32
	DBID      uint16
}

// Put writes the body into the command b.
func (c *QueryQP) Put(b []byte) {
	_ = b[AdminHeaderLen+QueryQPLen-1]
	le.PutUint64(b[4:], c.HeaderDMA)
	le.PutUint64(b[12:], c.SQDMA)
	le.PutUint64(b[20:], c.RQDMA)
	le.PutUint32(b[28:], c.AH)
	le.PutUint32(b[32:], c.ID)
	le.PutUint16(b[36:], c.DBID)
}

// Get reads the body from the command b.
func (c *QueryQP) Get(b []byte) {
	_ = b[AdminHeaderLen+QueryQPLen-1]
	c.HeaderDMA, c.SQDMA, c.RQDMA = le.Uint64(b[4:]), le.Uint64(b[12:]), le.Uint64(b[20:])
	c.AH, c.ID, c.DBID = le.Uint32(b[28:]), le.Uint32(b[32:]), le.Uint16(b[36:])
}

// Sizes of what QUERY_QP writes to its two buffers.
const (
	QuerySQLen = 20
	QueryRQLen = 12
)

// QuerySQ is the result of QUERY_QP at sq_dma_addr. It really holds the PSN of
// the receive side.
//
//	0  u8    rnr_timer            8   be32  qkey_dest_qpn
//	1  u8    retry_timeout        12  be32  rate_limit_kbps
//	2  be16  access_perms_flags   16  be32  rq_psn
//	6  be16  pkey_id
type QuerySQ struct {
	RNRTimer    uint8
	Timeout     uint8
	Flags       uint16
	PKey        uint16
	QKeyDestQPN uint32
	RateLimit   uint32
	RQPSN       uint32
}

// Put writes the result to b.
func (q *QuerySQ) Put(b []byte) {
	_ = b[QuerySQLen-1]
	b[0], b[1] = q.RNRTimer, q.Timeout
	be.PutUint16(b[2:], q.Flags)
	be.PutUint16(b[4:], 0)
	be.PutUint16(b[6:], q.PKey)
	be.PutUint32(b[8:], q.QKeyDestQPN)
	be.PutUint32(b[12:], q.RateLimit)
	be.PutUint32(b[16:], q.RQPSN)
}

// Get reads the result from b.
func (q *QuerySQ) Get(b []byte) {
	_ = b[QuerySQLen-1]
	q.RNRTimer, q.Timeout, q.Flags = b[0], b[1], be.Uint16(b[2:])
	q.PKey = be.Uint16(b[6:])
	q.QKeyDestQPN, q.RateLimit, q.RQPSN = be.Uint32(b[8:]), be.Uint32(b[12:]), be.Uint32(b[16:])
}

// QueryRQ is the result of QUERY_QP at rq_dma_addr. It really holds the PSN of
// the send side.
//
//	0  u8  bits 4-7 state, 0-3 pmtu (log2)      4  be32  sq_psn
//	1  u8  bits 4-7 rnr_retry, 0-3 retry_cnt    8  be16  access_perms_flags
//	2  u8  rrq_depth
//	3  u8  rsq_depth
type QueryRQ struct {
	State    uint8
	PMTU     uint8
	RetryCnt uint8
	RNRRetry uint8
	RRQDepth uint8
	RSQDepth uint8
	SQPSN    uint32
	Flags    uint16
}

// Put writes the result to b.
func (q *QueryRQ) Put(b []byte) {
	_ = b[QueryRQLen-1]
	b[0] = q.State<<4 | q.PMTU&15
	b[1] = q.RetryCnt&15 | q.RNRRetry<<4
	b[2], b[3] = q.RRQDepth, q.RSQDepth
	be.PutUint32(b[4:], q.SQPSN)
	be.PutUint16(b[8:], q.Flags)
	be.PutUint16(b[10:], 0)
}

// Get reads the result from b.
func (q *QueryRQ) Get(b []byte) {
	_ = b[QueryRQLen-1]
	q.State, q.PMTU = b[0]>>4, b[0]&15
	q.RetryCnt, q.RNRRetry = b[1]&15, b[1]>>4
	q.RRQDepth, q.RSQDepth = b[2], b[3]
	q.SQPSN, q.Flags = be.Uint32(b[4:]), be.Uint16(b[8:])
}

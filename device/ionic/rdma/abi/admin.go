// SPDX-License-Identifier: Apache-2.0

package abi

// Opcodes of the RDMA admin queue (enum ionic_v1_admin_op).
const (
	AdminNoop         = 0
	AdminCreateCQ     = 1
	AdminCreateQP     = 2
	AdminCreateMR     = 3
	AdminStatsHeaders = 4
	AdminStatsValues  = 5
	AdminDestroyMR    = 6
	AdminReserved7    = 7
	AdminDestroyCQ    = 8
	AdminModifyQP     = 9
	AdminQueryQP      = 10
	AdminDestroyQP    = 11
	AdminDebug        = 12
	AdminCreateAH     = 13
	AdminQueryAH      = 14
	AdminModifyDCQCN  = 15
	AdminDestroyAH    = 16
	AdminQPStatsHdrs  = 17
	AdminQPStatsVals  = 18
	NumAdminOps       = 19
)

// AdminStatus is the outcome of an admin command (enum ionic_v1_admin_status).
// The driver turns every error into -EINVAL and prints the code.
type AdminStatus uint8

// Outcomes of an admin command.
const (
	AdminOK        AdminStatus = 0
	AdminBadCmd    AdminStatus = 1
	AdminBadIndex  AdminStatus = 2
	AdminBadState  AdminStatus = 3
	AdminBadType   AdminStatus = 4
	AdminBadAttr   AdminStatus = 5
	AdminMsgTooBig AdminStatus = 6
)

var adminStatusNames = [...]string{"OK", "BAD_CMD", "BAD_INDEX", "BAD_STATE", "BAD_TYPE", "BAD_ATTR", "MSG_TOO_BIG"}

func (s AdminStatus) String() string {
	if int(s) < len(adminStatusNames) {
		return adminStatusNames[s]
	}
	return "unknown admin status"
}

var adminOpNames = [NumAdminOps]string{
	"NOOP", "CREATE_CQ", "CREATE_QP", "CREATE_MR", "STATS_HDRS", "STATS_VALS", "DESTROY_MR",
	"reserved 7", "DESTROY_CQ", "MODIFY_QP", "QUERY_QP", "DESTROY_QP", "DEBUG", "CREATE_AH",
	"QUERY_AH", "MODIFY_DCQCN", "DESTROY_AH", "QP_STATS_HDRS", "QP_STATS_VALS",
}

// AdminOpName is the name of an opcode, for people.
func AdminOpName(op uint8) string {
	if op < NumAdminOps {
		return adminOpNames[op]
	}
	return "unknown opcode"
}

// Framing of admin commands: a 4-byte header and a body, laid over strides of
// the ring.
//
//	0  u8    op
//	2  le16  length of the body
//	4  body
const (
	AdminStride     = 64
	AdminStrideLog2 = 6
	AdminHeaderLen  = 4
)

// Lengths of the command bodies.
const (
	CreateCQLen   = 34
	CreateQPLen   = 64
	CreateMRLen   = 45
	StatsLen      = 17
	DestroyLen    = 4
	ModifyQPLen   = 60
	QueryQPLen    = 34
	CreateAHLen   = 24
	QueryAHLen    = 8
	MaxAdminBody  = CreateQPLen
	MaxAdminLen   = AdminHeaderLen + MaxAdminBody
	MaxAdminBytes = 2 * AdminStride
)

// AdminStrides is the number of ring entries a command with a body of n bytes
// takes.
func AdminStrides(n uint16) uint32 {
	return (uint32(n) + AdminHeaderLen + AdminStride - 1) / AdminStride
}

// PutAdminHeader writes the header of a command to b.
func PutAdminHeader(b []byte, op uint8, bodyLen uint16) {
	b[0], b[1] = op, 0
	le.PutUint16(b[2:], bodyLen)
}

// AdminHeader reads the header of a command.
func AdminHeader(b []byte) (op uint8, bodyLen uint16) {
	return b[0], le.Uint16(b[2:])
}

// Destroy is the body of DESTROY_CQ, DESTROY_QP, DESTROY_MR and DESTROY_AH:
// le32 id at 4.
type Destroy struct{ ID uint32 }

// Put writes the body into the command b.
func (c *Destroy) Put(b []byte) { le.PutUint32(b[4:], c.ID) }

// Get reads the body from the command b.
func (c *Destroy) Get(b []byte) { c.ID = le.Uint32(b[4:]) }

// Stats is the body of the statistics commands.
//
//	4   le64  dma_addr of the buffer
//	12  le32  length of the buffer
//	16  le32  id_ver: QP id of QP_STATS_VALS
//	20  u8    type_state
type Stats struct {
	DMA    uint64
	Length uint32
	ID     uint32
}

// Put writes the body into the command b.
func (c *Stats) Put(b []byte) {
	le.PutUint64(b[4:], c.DMA)
	le.PutUint32(b[12:], c.Length)
	le.PutUint32(b[16:], c.ID)
	b[20] = 0
}

// Get reads the body from the command b.
func (c *Stats) Get(b []byte) {
	_ = b[AdminHeaderLen+StatsLen-1]
	c.DMA = le.Uint64(b[4:])
	c.Length = le.Uint32(b[12:])
	c.ID = le.Uint32(b[16:])
}

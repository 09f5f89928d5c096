// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// QueueType is one of the five queue types of the LIF identity.
type QueueType struct {
	Type        uint8 // slot in a doorbell page
	Count, Base uint32
}

// Identity is the RDMA block of the LIF identity.
type Identity struct {
	Version, QPOpcodes, AdminOpcodes, MinorVersion uint8
	PageTable                                      uint32 // npts_per_lif
	MRs, AHs                                       uint32
	MaxStride, UDMAShift                           uint8 // log2
	PageSizes                                      uint64
	AQ, SQ, RQ, CQ, EQ                             QueueType
	Stats                                          uint16
}

const (
	capRDMA  = 1 << 1
	numUDMA  = 2
	minEQs   = 4
	maxEQs   = 32
	pageLog2 = 12
)

// parseIdentity reads and checks the block at byte 392 of the LIF identity by
// what the kernel driver and the provider need.
func parseIdentity(lif []byte) (Identity, error) {
	var id Identity
	if le.Uint64(lif)&capRDMA == 0 {
		return id, fmt.Errorf("verbs: the LIF has no RDMA capability")
	}
	b := lif[392:648]
	queue := func(off int) QueueType {
		q := b[off-392:]
		return QueueType{q[0], le.Uint32(q[4:]), le.Uint32(q[8:])}
	}
	id = Identity{
		Version: b[0], QPOpcodes: b[1], AdminOpcodes: b[2], MinorVersion: b[3],
		PageTable: le.Uint32(b[4:]), MRs: le.Uint32(b[8:]), AHs: le.Uint32(b[12:]),
		MaxStride: b[16], UDMAShift: b[22], PageSizes: le.Uint64(b[24:]),
		AQ: queue(424), SQ: queue(436), RQ: queue(448), CQ: queue(460), EQ: queue(472),
		Stats: le.Uint16(b[92:]),
	}
	powers := bits.OnesCount32(id.SQ.Count) == 1 && bits.OnesCount32(id.CQ.Count) == 1
	switch {
	case !powers:
		return id, fmt.Errorf("verbs: %d queue pairs and %d completion queues are not powers of two: ids would land on the wrong engine",
			id.SQ.Count, id.CQ.Count)
	case id.UDMAShift < 1 || int(id.UDMAShift) >= bits.Len32(min(id.SQ.Count, id.CQ.Count)/2):
		return id, fmt.Errorf("verbs: udma_shift %d does not fit", id.UDMAShift)
	case id.Version < 2 && id.QPOpcodes <= 10:
		return id, fmt.Errorf("verbs: the provider refuses %d opcodes of version %d", id.QPOpcodes, id.Version)
	case int(id.Version) >= len(opcodes) || id.Version == 0:
		return id, fmt.Errorf("verbs: version %d opcodes are not known to this driver", id.Version)
	case id.AQ.Count == 0:
		return id, fmt.Errorf("verbs: no admin queue")
	case id.SQ.Base != 0 || id.RQ.Base != 0 || id.EQ.Base != 0 || id.CQ.Base != 0:
		return id, fmt.Errorf("verbs: queue id bases are not zero")
	case id.MRs < 2 || id.MRs > 1<<24 || id.AHs == 0 || id.AHs > 1<<24:
		return id, fmt.Errorf("verbs: %d memory regions, %d address handles", id.MRs, id.AHs)
	case id.MaxStride < 7 || id.MaxStride > 16:
		return id, fmt.Errorf("verbs: max_stride %d", id.MaxStride)
	}
	return id, nil
}

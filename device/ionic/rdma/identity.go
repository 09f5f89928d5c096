// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/mr"
)

// Doorbell slots of the RDMA queue types; 0 to 3 are the Ethernet half's. The
// EQ slot is announced and never rung.
const (
	SlotAQ = 4
	SlotSQ = 5
	SlotRQ = 6
	SlotCQ = 7
	SlotEQ = 8
)

// Identity writes the RDMA block of the LIF identity, abi.IdentityLen bytes.
func (e *Engine) Identity(b []byte) {
	l := &e.config.Limits
	id := abi.Identity{
		Version:      uint8(e.config.Opcodes),
		QPOpcodes:    abi.NumOps,
		AdminOpcodes: abi.NumAdminOps,
		PageTables:   l.PageTables,
		MRs:          l.MRs,
		AHs:          l.AHs,
		MaxStride:    maxStrideLog2,
		CLStride:     6,
		PTEStride:    3,
		RRQStride:    5,
		RSQStride:    6,
		UDMAShift:    udmaShift,
		PageSizeCap:  mr.PageSizes,
		AQ:           abi.QueueType{Type: SlotAQ, Count: l.AQs},
		SQ:           abi.QueueType{Type: SlotSQ, Count: l.QPs},
		RQ:           abi.QueueType{Type: SlotRQ, Count: l.QPs},
		CQ:           abi.QueueType{Type: SlotCQ, Count: l.CQs},
		EQ:           abi.QueueType{Type: SlotEQ, Count: l.EQs},
		StatsType:    abi.StatsGlobal | abi.StatsQP,
	}
	id.Put(b)
}

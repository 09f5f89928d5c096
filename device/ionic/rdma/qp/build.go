// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

var requestOps = [...]packet.Op{
	OpSend: packet.Send, OpSendInv: packet.SendInv, OpSendImm: packet.SendImm,
	OpRead: packet.ReadRequest, OpWrite: packet.Write, OpWriteImm: packet.WriteImm,
	OpCompareSwap: packet.CompareSwap, OpFetchAdd: packet.FetchAdd,
}

// address fills the header fields of every packet to the connected peer.
func (q *QP) address(h *packet.Header) {
	h.SrcQPN, h.DstQPN = q.num, q.attr.DestQPN
	h.SrcGID, h.DstGID = q.attr.SrcGID, q.attr.Dest.GID
}

// build makes the packet of n bytes at byte off of m. It fails when the
// guest's memory cannot be read.
func (q *QP) build(m *message, off, n, count uint64) (*packet.Packet, Status) {
	r := &q.req
	carried := int(n)
	if m.Op.answered() {
		carried = 0
	}
	p := packet.Get(carried)
	if carried > 0 {
		if st := q.env.Gather(&m.SendWork, off, p.Payload); st != OK {
			p.Release()
			return nil, st
		}
	}
	h := &p.Header
	q.address(h)
	h.Op = requestOps[m.Op]
	h.PSN, h.Count = wire(r.next), uint32(count)
	if off == 0 {
		h.Flags |= packet.First
		h.Length = m.Length
	}
	if r.next+count == m.end {
		h.Flags |= packet.Last | packet.AckRequest
		if m.Solicited {
			h.Flags |= packet.Solicited
		}
	} else if q.asks(count) || q.attr.RateLimit > 0 {
		h.Flags |= packet.AckRequest
	}
	if q.typ == UC {
		h.Flags = h.Flags&^packet.AckRequest | packet.Unreliable
	}
	switch m.Op {
	case OpSendImm:
		h.Imm = m.Imm
	case OpSendInv:
		h.Imm = [4]byte{byte(m.InvKey >> 24), byte(m.InvKey >> 16), byte(m.InvKey >> 8), byte(m.InvKey)}
	case OpWriteImm:
		h.Imm = m.Imm
		h.VA, h.RKey = m.RemoteVA, m.RKey
	case OpWrite:
		h.VA, h.RKey = m.RemoteVA, m.RKey
	case OpRead:
		h.VA, h.RKey = m.RemoteVA+off, m.RKey
		h.Length = uint32(n)
		if off == 0 {
			h.Operand = uint64(m.Length)
		}
	case OpCompareSwap, OpFetchAdd:
		h.VA, h.RKey = m.RemoteVA, m.RKey
		h.Length = 8
		h.Operand, h.Compare = m.Operand, m.Compare
	}
	return p, OK
}

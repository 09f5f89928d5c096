// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"fmt"
)

// IsDatagram reports whether the header has the datagram part.
func (o Op) IsDatagram() bool { return o == Datagram || o == DatagramImm }

// IsRequest reports whether the packet is for the responder half of a QP.
func (o Op) IsRequest() bool { return o < Ack || o.IsDatagram() }

// Encode writes the header into memory of the packet and returns it. The
// bytes are valid until the packet is changed or released.
func (p *Packet) Encode() []byte {
	n := HeaderLen
	if p.Op.IsDatagram() {
		n = DatagramHeaderLen
	}
	b := p.wire[:n]
	be := binary.BigEndian
	b[0], b[1], b[2], b[3] = byte(p.Op), byte(p.Flags), byte(p.Syndrome), byte(n)
	be.PutUint32(b[4:], p.DstQPN)
	be.PutUint32(b[8:], p.SrcQPN)
	be.PutUint32(b[12:], p.PSN)
	be.PutUint32(b[16:], p.Count)
	be.PutUint32(b[20:], p.MSN)
	be.PutUint64(b[24:], p.VA)
	be.PutUint32(b[32:], p.RKey)
	be.PutUint32(b[36:], p.Length)
	copy(b[40:44], p.Imm[:])
	be.PutUint32(b[44:], p.QKey)
	be.PutUint64(b[48:], p.Operand)
	be.PutUint64(b[56:], p.Compare)
	copy(b[64:80], p.SrcGID[:])
	copy(b[80:96], p.DstGID[:])
	if n == DatagramHeaderLen {
		copy(b[96:102], p.SrcMAC[:])
		be.PutUint16(b[102:], p.VLAN)
		copy(b[104:144], p.GRH[:])
		b[144], b[145], b[146], b[147] = byte(p.Path), 0, 0, 0
	}
	return b
}

// Decode fills the header from b, the bytes a peer sent. The error names the
// field that is out of range; the packet is then unusable.
func (p *Packet) Decode(b []byte) error {
	if len(b) < HeaderLen {
		return fmt.Errorf("packet header from the peer: %d bytes, need %d", len(b), HeaderLen)
	}
	be := binary.BigEndian
	h := &p.Header
	h.Op, h.Flags, h.Syndrome = Op(b[0]), Flags(b[1]), Syndrome(b[2])
	want := HeaderLen
	if h.Op.IsDatagram() {
		want = DatagramHeaderLen
	}
	h.DstQPN, h.SrcQPN = be.Uint32(b[4:]), be.Uint32(b[8:])
	h.PSN, h.Count, h.MSN = be.Uint32(b[12:]), be.Uint32(b[16:]), be.Uint32(b[20:])
	switch {
	case h.Op >= numOps:
		return fmt.Errorf("packet header from the peer: unknown op %d", h.Op)
	case int(b[3]) != want || len(b) != want:
		return fmt.Errorf("packet header from the peer: op %d has %d bytes and says %d, need %d", h.Op, len(b), b[3], want)
	case h.Flags&^knownFlags != 0:
		return fmt.Errorf("packet header from the peer: unknown flags %#x", h.Flags)
	case h.DstQPN > QPNMask || h.SrcQPN > QPNMask:
		return fmt.Errorf("packet header from the peer: QP number beyond 24 bits (%#x to %#x)", h.SrcQPN, h.DstQPN)
	case h.PSN > PSNMask || h.MSN > PSNMask:
		return fmt.Errorf("packet header from the peer: PSN %#x or MSN %#x beyond 24 bits", h.PSN, h.MSN)
	case h.Count == 0 || h.Count > 1<<23:
		return fmt.Errorf("packet header from the peer: stands for %d PSNs", h.Count)
	case len(p.Payload) > MaxPayload:
		return fmt.Errorf("packet from the peer: %d bytes of payload, at most %d", len(p.Payload), MaxPayload)
	}
	h.VA, h.RKey, h.Length = be.Uint64(b[24:]), be.Uint32(b[32:]), be.Uint32(b[36:])
	copy(h.Imm[:], b[40:44])
	h.QKey = be.Uint32(b[44:])
	h.Operand, h.Compare = be.Uint64(b[48:]), be.Uint64(b[56:])
	copy(h.SrcGID[:], b[64:80])
	copy(h.DstGID[:], b[80:96])
	if want == DatagramHeaderLen {
		copy(h.SrcMAC[:], b[96:102])
		h.VLAN = be.Uint16(b[102:])
		copy(h.GRH[:], b[104:144])
		h.Path = Path(b[144])
		if h.Path&^knownPath != 0 || b[145]|b[146]|b[147] != 0 {
			return fmt.Errorf("packet header from the peer: unknown path bits %#x", b[144:148])
		}
	}
	return nil
}

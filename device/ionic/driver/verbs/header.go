// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"net"
	"net/netip"
)

// Path says how to reach a peer: the header of its packets. A source address
// that is IPv4 makes an IPv4 header.
type Path struct {
	SrcMAC, DstMAC net.HardwareAddr
	Src, Dst       netip.Addr // of one family
	TrafficClass   uint8
	HopLimit       uint8 // 0 means 64
	FlowLabel      uint32
	Tagged         bool
	VLAN           uint16 // tag: id and service level << 13
}

// Template offsets and profile numbers (csum_profile).
const (
	roceUDPPort  = 4791
	ahSourcePort = 28272
	flowPortBase = 0xc000
	grhSize      = 40
	profileIPv4  = 0
	profileVLAN  = 1
	profileIPv6  = 2
	ecnECT0      = 0x2
	staleLength  = 0x0020
)

// template builds the header as the kernel's packer does: without lengths that
// hold and without an IPv4 checksum. forQP marks the packets of a queue pair as
// ECN capable and spreads flows over source ports.
func (p *Path) template(forQP bool, port uint16) (header []byte, profile uint8, err error) {
	v4 := p.Src.Unmap().Is4()
	if p.Src.Unmap().Is4() != p.Dst.Unmap().Is4() || len(p.SrcMAC) != 6 || len(p.DstMAC) != 6 {
		return nil, 0, fmt.Errorf("verbs: path from %v %v to %v %v", p.SrcMAC, p.Src, p.DstMAC, p.Dst)
	}
	tclass := p.TrafficClass &^ 3
	if forQP {
		tclass |= ecnECT0
	}
	hops := p.HopLimit
	if hops == 0 {
		hops = 64
	}
	h := append(append([]byte(nil), p.DstMAC...), p.SrcMAC...)
	if p.Tagged {
		profile |= profileVLAN
		h = be.AppendUint16(be.AppendUint16(h, 0x8100), p.VLAN)
	}
	if v4 {
		h = append(be.AppendUint16(h, 0x0800), 0x45, tclass)
		h = be.AppendUint16(h, 0xffff)
		h = append(h, 0, 0, 0x40, 0, hops, 17, 0, 0)
		src, dst := p.Src.Unmap().As4(), p.Dst.Unmap().As4()
		h = append(append(h, src[:]...), dst[:]...)
	} else {
		profile |= profileIPv6
		h = be.AppendUint16(h, 0x86dd)
		h = be.AppendUint32(h, 6<<28|uint32(tclass)<<20|p.FlowLabel&0xfffff)
		h = append(be.AppendUint16(h, staleLength), 17, hops)
		src, dst := p.Src.As16(), p.Dst.As16()
		h = append(append(h, src[:]...), dst[:]...)
	}
	h = be.AppendUint16(be.AppendUint16(h, port), roceUDPPort)
	h = be.AppendUint16(be.AppendUint16(h, staleLength), 0)
	return h, profile, nil
}

// GRH is what a receiver reads from the 40 bytes before a datagram.
type GRH struct {
	Src, Dst     netip.Addr
	TrafficClass uint8
	HopLimit     uint8
	Length       int // bytes after the IP header
}

// ParseGRH reads the 40 bytes by the rules of both readers: the kernel goes by
// the completion's IPv4 flag, a process by the bytes alone. They must agree.
func ParseGRH(b []byte, ipv4Flag bool) (GRH, error) {
	if len(b) != grhSize {
		return GRH{}, fmt.Errorf("verbs: %d bytes of global header", len(b))
	}
	six, four := b[0]>>4 == 6, b[0]>>4 != 6 && b[20]>>4 == 4
	if four != ipv4Flag || !six && !four {
		return GRH{}, fmt.Errorf("verbs: completion says IPv4 %v, the bytes say IPv6 %v, IPv4 %v: % x", ipv4Flag, six, four, b)
	}
	if six {
		if b[6] != 17 {
			return GRH{}, fmt.Errorf("verbs: next header %d, want UDP", b[6])
		}
		return GRH{
			Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40])),
			TrafficClass: uint8(be.Uint16(b) >> 4), HopLimit: b[7], Length: int(be.Uint16(b[4:])),
		}, nil
	}
	h := b[20:]
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(be.Uint16(h[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum != 0xffff || h[0] != 0x45 || h[9] != 17 {
		return GRH{}, fmt.Errorf("verbs: IPv4 header % x: checksum folds to %#x", h, sum)
	}
	return GRH{
		Src: netip.AddrFrom4([4]byte(h[12:16])), Dst: netip.AddrFrom4([4]byte(h[16:20])),
		TrafficClass: h[1], HopLimit: h[8], Length: int(be.Uint16(h[2:])) - 20,
	}, nil
}

// AH is an address handle.
type AH struct {
	pd *PD
	ID uint32
}

// CreateAH makes an address handle for datagrams.
func (p *PD) CreateAH(path Path) (*AH, error) {
	d := p.c.d
	h, profile, err := path.template(false, ahSourcePort)
	if err != nil {
		return nil, err
	}
	buf, err := d.mem.Alloc(len(h))
	if err != nil {
		return nil, err
	}
	defer d.mem.Free(buf)
	copy(buf.Bytes(), h)
	d.mu.Lock()
	id, err := d.ahIDs.take()
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 24)
	le.PutUint64(b[0:], buf.IOVA)
	le.PutUint32(b[8:], uint32(len(h)))
	le.PutUint32(b[12:], p.ID)
	le.PutUint32(b[16:], id)
	b[22] = profile
	if err := d.command(admCreateAH, b); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ahIDs.put(id)
		return nil, fmt.Errorf("verbs: create address handle: %w", err)
	}
	return &AH{p, id}, nil
}

// Destroy destroys the handle.
func (a *AH) Destroy() error {
	d := a.pd.c.d
	err := d.command(admDestroyAH, le.AppendUint32(nil, a.ID))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahIDs.put(a.ID)
	return err
}

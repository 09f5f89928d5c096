// SPDX-License-Identifier: Apache-2.0

// Package header reads the header templates of CREATE_AH and MODIFY_QP: the
// head of an Ethernet frame without BTH, as the kernel's ud_header.c packs it.
//
//	              IPv4    IPv4+VLAN  IPv6    IPv6+VLAN
//	dst MAC       0-5     0-5        0-5     0-5
//	src MAC       6-11    6-11       6-11    6-11
//	TPID, TCI     -       12-15      -       12-15
//	EtherType     12-13   16-17      12-13   16-17
//	IP header     14-33   18-37      14-53   18-57
//	UDP header    34-41   38-45      54-61   58-65
//	length        42      46         62      66
//
// Lengths and the IPv4 checksum are left for the device to fill in. From a
// template the package also makes the 40 bytes that precede every datagram in
// the receiver's memory.
package header

import (
	"encoding/binary"
	"fmt"
)

const (
	etherLen = 14
	vlanLen  = 4
	ipv4Len  = 20
	ipv6Len  = 40
	udpLen   = 8

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100

	protoUDP = 17
	portRoCE = 4791

	// Transport headers and trailer that an IP packet carries beside the
	// payload: BTH, DETH, immediate and ICRC.
	bthLen  = 12
	dethLen = 8
	immLen  = 4
	icrcLen = 4
)

// MaxLen is the longest template, in bytes.
const MaxLen = etherLen + vlanLen + ipv6Len + udpLen

// GRHLen is the size of what precedes a datagram.
const GRHLen = 40

// Template is a parsed header template.
type Template struct {
	DstMAC, SrcMAC [6]byte
	DstGID, SrcGID [16]byte
	IPv4           bool
	Tagged         bool
	TCI            uint16 // of the VLAN tag
	Traffic        uint8  // IPv4 type of service, IPv6 traffic class
	Flow           uint32 // IPv6 flow label
	HopLimit       uint8  // IPv4 time to live
	SrcPort        uint16
	Raw            [MaxLen]byte
	Len            uint8 // of Raw
}

var be = binary.BigEndian

// ErrLength is the error of a template with a length no template has.
type ErrLength uint32

func (e ErrLength) Error() string {
	return fmt.Sprintf("header template of %d bytes, want 42, 46, 62 or 66", uint32(e))
}

// Parse reads a template. b is copied.
func Parse(b []byte) (*Template, error) {
	t := new(Template)
	if err := t.parse(b); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Template) parse(b []byte) error {
	if len(b) < etherLen+ipv4Len+udpLen || len(b) > MaxLen {
		return ErrLength(len(b))
	}
	copy(t.DstMAC[:], b[0:6])
	copy(t.SrcMAC[:], b[6:12])
	etherType, ip := be.Uint16(b[12:]), b[etherLen:]
	if etherType == etherVLAN {
		t.Tagged = true
		t.TCI = be.Uint16(b[14:])
		etherType, ip = be.Uint16(b[16:]), b[etherLen+vlanLen:]
	}
	var err error
	switch etherType {
	case etherIPv4:
		err = t.parseIPv4(ip)
	case etherIPv6:
		err = t.parseIPv6(ip)
	default:
		err = fmt.Errorf("header template with EtherType %#04x, want IPv4 or IPv6", etherType)
	}
	if err != nil {
		return err
	}
	t.Len = uint8(copy(t.Raw[:], b))
	return nil
}

func (t *Template) parseIPv4(b []byte) error {
	switch {
	case len(b) != ipv4Len+udpLen:
		return fmt.Errorf("IPv4 header template with %d bytes from the IP header on, want %d", len(b), ipv4Len+udpLen)
	case b[0] != 0x45:
		return fmt.Errorf("IPv4 header template starts with %#02x, want version 4 and no options", b[0])
	case b[9] != protoUDP:
		return fmt.Errorf("IPv4 header template with protocol %d, want UDP", b[9])
	}
	t.IPv4 = true
	t.Traffic, t.HopLimit = b[1], b[8]
	mapped(&t.SrcGID, b[12:16])
	mapped(&t.DstGID, b[16:20])
	return t.parseUDP(b[ipv4Len:])
}

func (t *Template) parseIPv6(b []byte) error {
	switch {
	case len(b) != ipv6Len+udpLen:
		return fmt.Errorf("IPv6 header template with %d bytes from the IP header on, want %d", len(b), ipv6Len+udpLen)
	case b[0]>>4 != 6:
		return fmt.Errorf("IPv6 header template of version %d", b[0]>>4)
	case b[6] != protoUDP:
		return fmt.Errorf("IPv6 header template with next header %d, want UDP", b[6])
	}
	word := be.Uint32(b[0:])
	t.Traffic, t.Flow, t.HopLimit = uint8(word>>20), word&0xfffff, b[7]
	copy(t.SrcGID[:], b[8:24])
	copy(t.DstGID[:], b[24:40])
	return t.parseUDP(b[ipv6Len:])
}

func (t *Template) parseUDP(b []byte) error {
	if p := be.Uint16(b[2:]); p != portRoCE {
		return fmt.Errorf("header template with UDP port %d, want %d", p, portRoCE)
	}
	t.SrcPort = be.Uint16(b[0:])
	return nil
}

// mapped makes an IPv4-mapped GID.
func mapped(gid *[16]byte, ip []byte) {
	gid[10], gid[11] = 0xff, 0xff
	copy(gid[12:], ip)
}

// GRH writes the 40 bytes that precede a datagram of n payload bytes, with or
// without immediate: the IPv6 header, or 20 zero bytes and the IPv4 header with
// its checksum. Which one must agree with the IPv4 bit of the completion.
func (t *Template) GRH(g *[GRHLen]byte, n int, imm bool) {
	clear(g[:])
	transport := bthLen + dethLen + (n+3)&^3 + icrcLen
	if imm {
		transport += immLen
	}
	if !t.IPv4 {
		be.PutUint32(g[0:], 6<<28|uint32(t.Traffic)<<20|t.Flow)
		be.PutUint16(g[4:], uint16(udpLen+transport))
		g[6], g[7] = protoUDP, t.HopLimit
		copy(g[8:24], t.SrcGID[:])
		copy(g[24:40], t.DstGID[:])
		return
	}
	ip := g[20:40]
	ip[0], ip[1] = 0x45, t.Traffic
	be.PutUint16(ip[2:], uint16(ipv4Len+udpLen+transport))
	be.PutUint16(ip[6:], 0x4000) // do not fragment
	ip[8], ip[9] = t.HopLimit, protoUDP
	copy(ip[12:16], t.SrcGID[12:])
	copy(ip[16:20], t.DstGID[12:])
	be.PutUint16(ip[10:], checksum(ip))
}

// checksum is the IPv4 header checksum of b, whose checksum field is zero.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(be.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	return ^uint16(sum)
}

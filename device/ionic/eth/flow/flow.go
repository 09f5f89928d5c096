// SPDX-License-Identifier: Apache-2.0

// Package flow finds the headers of an Ethernet frame and hashes its flow. It
// trusts nothing: a frame whose headers do not fit is simply not IP.
//
//	| dst 6 | src 6 | [0x8100/0x88a8 TCI]{0,2} | type | IPv4 or IPv6 ... | L4 |
//	                                                  ^L3                ^L4
package flow

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

var be = binary.BigEndian

// Ethernet types and IP protocols this package looks for.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
	TypeIPv6 = 0x86dd

	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
	ProtoSCTP   = 132

	// EthHeader is the length of an untagged Ethernet header.
	EthHeader = 14
)

// maxTags is how many VLAN tags are looked through.
const maxTags = 2

// Info is what the headers of one frame say. Offsets are from the start of the
// frame.
type Info struct {
	L3       int    // network header, after the tags
	L4       int    // transport header; 0 if there is none to look at
	Type     uint16 // Ethernet type after the tags
	TCI      uint16 // of the outer tag
	Tags     uint8
	IP       uint8 // 4, 6 or 0
	Proto    uint8 // upper-layer protocol
	Fragment bool  // any fragment, the first one, too
	Ports    bool  // L4 starts with two 16-bit ports
	addrs    int   // source address, followed by the destination
	addrLen  int
}

// Parse reads the headers of a frame of at least EthHeader bytes; a shorter one
// gives the zero Info.
func Parse(f []byte) (i Info) {
	if len(f) < EthHeader {
		return i
	}
	i.Type, i.L3 = be.Uint16(f[12:]), EthHeader
	for i.Tags < maxTags && (i.Type == TypeVLAN || i.Type == TypeQinQ) && len(f) >= i.L3+4 {
		if i.Tags == 0 {
			i.TCI = be.Uint16(f[i.L3:])
		}
		i.Type = be.Uint16(f[i.L3+2:])
		i.L3 += 4
		i.Tags++
	}
	switch i.Type {
	case TypeIPv4:
		i.ipv4(f)
	case TypeIPv6:
		i.ipv6(f)
	}
	return i
}

func (i *Info) ipv4(f []byte) {
	h := f[i.L3:]
	if len(h) < 20 || h[0]>>4 != 4 {
		return
	}
	ihl := int(h[0]&0xf) * 4
	if ihl < 20 || len(h) < ihl {
		return
	}
	i.IP, i.Proto = 4, h[9]
	i.addrs, i.addrLen = i.L3+12, 4
	i.Fragment = be.Uint16(h[6:])&0x3fff != 0 // more fragments, or an offset
	i.transport(f, i.L3+ihl)
}

// maxExtensions bounds the walk over IPv6 extension headers.
const maxExtensions = 8

func (i *Info) ipv6(f []byte) {
	h := f[i.L3:]
	if len(h) < 40 || h[0]>>4 != 6 {
		return
	}
	i.IP, i.Proto = 6, h[6]
	i.addrs, i.addrLen = i.L3+8, 16
	off := i.L3 + 40
	for range maxExtensions {
		switch i.Proto {
		case 0, 43, 60: // hop-by-hop, routing, destination options
			if len(f) < off+8 {
				return
			}
			i.Proto = f[off]
			off += (int(f[off+1]) + 1) * 8
		case 44: // fragment: the same next header in every fragment of a datagram
			if len(f) < off+8 {
				return
			}
			i.Proto, i.Fragment = f[off], true
			return
		default:
			i.transport(f, off)
			return
		}
	}
}

func (i *Info) transport(f []byte, off int) {
	if i.Fragment || len(f) <= off {
		return
	}
	i.L4 = off
	switch i.Proto {
	case ProtoTCP, ProtoUDP, ProtoSCTP:
		i.Ports = len(f) >= off+4
	}
}

// Source returns the source IP address bytes, nil if the frame is not IP.
func (i *Info) Source(f []byte) []byte { return f[i.addrs : i.addrs+i.addrLen] }

// Addresses returns the source and the destination IP address, one behind the
// other, nil if the frame is not IP.
func (i *Info) Addresses(f []byte) []byte { return f[i.addrs : i.addrs+2*i.addrLen] }

// PktType returns the packet type of a receive completion.
func (i *Info) PktType() abi.PktType {
	switch {
	case i.IP == 4 && i.Ports && i.Proto == ProtoTCP:
		return abi.PktIPv4TCP
	case i.IP == 4 && i.Ports && i.Proto == ProtoUDP:
		return abi.PktIPv4UDP
	case i.IP == 4:
		return abi.PktIPv4
	case i.IP == 6 && i.Ports && i.Proto == ProtoTCP:
		return abi.PktIPv6TCP
	case i.IP == 6 && i.Ports && i.Proto == ProtoUDP:
		return abi.PktIPv6UDP
	case i.IP == 6:
		return abi.PktIPv6
	}
	return abi.PktNonIP
}

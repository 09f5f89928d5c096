// SPDX-License-Identifier: Apache-2.0

// Package gid holds the address of an RDMA port: 16 bytes in network order, written like an IPv6 address.
//
//	 0                   1
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//	+-------------------------------+
//	| fe80::/64     | EUI-64 of MAC |  default GID of a port
//	+-------------------+---+-------+
//	| 0 ... 0           |f f| IPv4  |  RoCEv2 over IPv4 (v4-mapped)
//	+-------------------+---+-------+
//	| IPv6                          |  RoCEv2 over IPv6
//	+-------------------------------+
package gid

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// GID is 16 bytes in network order. It is comparable and serves as a map key.
type GID [16]byte

// Parse reads a GID written as an IPv6 address, in the full form of the kernel
// (0000:0000:0000:0000:0000:ffff:0a00:0001) or shortened, or as an IPv4 address, which stands for its v4-mapped GID.
// A GID that no node can own is an error; see Check.
func Parse(s string) (GID, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return GID{}, fmt.Errorf("GID %q: neither an IPv6 nor an IPv4 address", s)
	}
	if addr.Zone() != "" {
		return GID{}, fmt.Errorf("GID %q: a GID has no zone", s)
	}
	g := GID(addr.As16())
	if err := g.Check(); err != nil {
		return GID{}, fmt.Errorf("GID %q: %w", s, err)
	}
	return g, nil
}

// FromBytes returns the GID in b, which must have 16 bytes.
func FromBytes(b []byte) (GID, error) {
	if len(b) != len(GID{}) {
		return GID{}, fmt.Errorf("GID of %d bytes, want 16", len(b))
	}
	return GID(b), nil
}

// FromMAC returns the default GID of a port: fe80::/64 and the modified EUI-64 of its MAC address (the kernel's
// addrconf_addr_eui48).
func FromMAC(mac [6]byte) GID {
	return GID{
		0xfe, 0x80, 0, 0, 0, 0, 0, 0,
		mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5],
	}
}

// FromMACString is FromMAC for a MAC address in any form that net.ParseMAC takes with 6 bytes.
func FromMACString(s string) (GID, error) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return GID{}, fmt.Errorf("MAC address %q: not six bytes in hexadecimal", s)
	}
	return FromMAC([6]byte(mac)), nil
}

// Check returns an error that says why no single node can own g: it is unspecified, multicast, broadcast or loopback.
func (g GID) Check() error {
	addr := netip.AddrFrom16(g).Unmap()
	switch {
	case addr.IsUnspecified():
		return errors.New("the unspecified address belongs to no node")
	case addr.IsMulticast():
		return errors.New("a multicast address belongs to no single node")
	case addr.IsLoopback():
		return errors.New("a loopback address belongs to every node")
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("the broadcast address belongs to no single node")
	}
	return nil
}

// String returns the shortest form of g as an IPv6 address, ::ffff:10.0.0.1 for a v4-mapped one.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// IPv4 returns the dotted form of a v4-mapped GID, and "" for any other.
func (g GID) IPv4() string {
	if addr := netip.AddrFrom16(g); addr.Is4In6() {
		return addr.Unmap().String()
	}
	return ""
}

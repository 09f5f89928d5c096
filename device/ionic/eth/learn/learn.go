// SPDX-License-Identifier: Apache-2.0

// Package learn finds out which IP addresses a guest owns by looking at the
// frames it transmits. The RDMA driver never tells the device its GIDs; ARP,
// neighbour discovery and ordinary traffic do.
//
// What counts, only in frames whose Ethernet source is the guest's own address:
//
//	ARP request or reply   sender address, if the sender hardware address agrees
//	IPv6 NS from ::        target: duplicate address detection
//	IPv6 NA                target
//	IPv4, IPv6             source address
package learn

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

var be = binary.BigEndian

// Source says what kind of frame told an address.
type Source uint8

// Sources, the most reliable first.
const (
	ARP Source = iota
	DAD
	NeighborAdvertisement
	IPSource
)

// String returns a short name.
func (s Source) String() string {
	switch s {
	case ARP:
		return "arp"
	case DAD:
		return "dad"
	case NeighborAdvertisement:
		return "na"
	}
	return "ip"
}

// Seen is called when an address shows up that the cache does not hold. It runs
// on a transmit worker and must be quick: it hands over and returns.
type Seen func(mac [6]byte, ip netip.Addr, s Source)

// cacheSlots is the size of the direct-mapped cache. A guest owns a handful of
// addresses; more than this only costs repeated calls of Seen.
const cacheSlots = 256

// Observer looks at transmitted frames. The zero value is not usable; all
// methods are safe for concurrent use.
type Observer struct {
	seed maphash.Seed
	seen Seen
	// slots hold the hash of what was reported last in each slot; 0 is empty.
	slots [cacheSlots]atomic.Uint64
}

// New returns an observer that reports to seen.
func New(seen Seen) *Observer {
	return &Observer{seed: maphash.MakeSeed(), seen: seen}
}

// Forget empties the cache: every address is reported again when it shows up.
func (o *Observer) Forget() {
	for i := range o.slots {
		o.slots[i].Store(0)
	}
}

// key is what the cache is asked for.
type key struct {
	ip  [16]byte
	mac [6]byte
}

// Owner tells whether an Ethernet address belongs to the guest.
type Owner interface{ Has(mac [6]byte) bool }

// Frame looks at one transmitted frame, which i was parsed from.
func (o *Observer) Frame(f []byte, i *flow.Info, own Owner) {
	if len(f) < flow.EthHeader {
		return
	}
	mac := [6]byte(f[6:12])
	if !own.Has(mac) {
		return
	}
	ip, s, ok := address(f, i)
	if !ok {
		return
	}
	k := key{ip: ip.As16(), mac: mac}
	h := maphash.Comparable(o.seed, k) | 1
	slot := &o.slots[h>>1%cacheSlots]
	if slot.Load() == h {
		return
	}
	slot.Store(h)
	o.seen(mac, ip, s)
}

// address returns the address that a transmitted frame proves the sender to own.
func address(f []byte, i *flow.Info) (ip netip.Addr, s Source, ok bool) {
	switch {
	case i.Type == flow.TypeARP:
		ip, ok = arpSender(f[i.L3:], f[6:12])
		return ip, ARP, ok
	case i.IP == 6 && i.Proto == flow.ProtoICMPv6 && i.L4 != 0:
		if ip, s, ok = neighbor(f[i.L4:], i.Source(f)); ok {
			return ip, s, true
		}
	case i.IP == 0:
		return ip, s, false
	}
	ip, ok = netip.AddrFromSlice(i.Source(f))
	return ip, IPSource, ok && usable(ip)
}

// arpSender returns the sender address of an Ethernet/IPv4 ARP packet whose
// sender hardware address is mac.
//
//	0      2      4    5    6      8       14      18      24
//	| htype| ptype|hlen|plen| oper | sha 6 | spa 4 | tha 6 | tpa 4 |
func arpSender(p, mac []byte) (ip netip.Addr, ok bool) {
	if len(p) < 28 || be.Uint16(p) != 1 || be.Uint16(p[2:]) != flow.TypeIPv4 || p[4] != 6 || p[5] != 4 {
		return ip, false
	}
	if op := be.Uint16(p[6:]); op != 1 && op != 2 || string(p[8:14]) != string(mac) {
		return ip, false
	}
	ip = netip.AddrFrom4([4]byte(p[14:18]))
	return ip, usable(ip)
}

// ICMPv6 neighbour discovery types.
const (
	neighborSolicitation  = 135
	neighborAdvertisement = 136
)

// neighbor returns the target of a duplicate address detection probe or of an
// advertisement. src is the IPv6 source address.
//
//	0    1    2      4        8
//	|type|code| csum | flags  | target address 16 |
func neighbor(p, src []byte) (ip netip.Addr, s Source, ok bool) {
	if len(p) < 24 {
		return ip, s, false
	}
	ip = netip.AddrFrom16([16]byte(p[8:24]))
	switch {
	case p[0] == neighborAdvertisement:
		return ip, NeighborAdvertisement, usable(ip)
	case p[0] == neighborSolicitation && [16]byte(src) == [16]byte{}:
		return ip, DAD, usable(ip)
	}
	return ip, s, false
}

// usable tells an address a host can own from the ones only a packet can carry.
func usable(ip netip.Addr) bool {
	if ip.Is4() && ip.As4() == [4]byte{255, 255, 255, 255} {
		return false
	}
	return !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLoopback() && !ip.Is4In6()
}

// SPDX-License-Identifier: Apache-2.0

package flow

import "github.com/ernic-dev/ernic/device/ionic/abi"

// toeplitzInput is the longest hash input: two IPv6 addresses and two ports.
const toeplitzInput = 36

// Toeplitz is the receive-side scaling hash under one key, one table lookup per
// input byte.
type Toeplitz struct {
	table [toeplitzInput][256]uint32
}

// NewToeplitz expands the key.
func NewToeplitz(key [abi.RSSKeySize]byte) *Toeplitz {
	t := &Toeplitz{}
	for pos := range toeplitzInput {
		// The five key bytes that a 32-bit window starting in byte pos touches.
		var w uint64
		for k := range 5 {
			w = w<<8 | uint64(key[(pos+k)%abi.RSSKeySize])
		}
		for v := range 256 {
			var h uint32
			for bit := range 8 {
				if v&(0x80>>bit) != 0 {
					h ^= uint32(w >> (8 - bit))
				}
			}
			t.table[pos][v] = h
		}
	}
	return t
}

// Hash returns the hash of frame f under the enabled packet types: over
// addresses and ports for unfragmented TCP and UDP of an enabled type, else over
// the addresses if their IP version is enabled. ok is false when nothing is to be
// hashed.
func (t *Toeplitz) Hash(f []byte, i *Info, types abi.RSSTypes) (h uint32, ok bool) {
	var l3, l4 abi.RSSTypes
	switch i.IP {
	case 4:
		l3 = abi.RSSIPv4
		if i.Ports && i.Proto == ProtoTCP {
			l4 = abi.RSSIPv4TCP
		} else if i.Ports && i.Proto == ProtoUDP {
			l4 = abi.RSSIPv4UDP
		}
	case 6:
		l3 = abi.RSSIPv6
		if i.Ports && i.Proto == ProtoTCP {
			l4 = abi.RSSIPv6TCP
		} else if i.Ports && i.Proto == ProtoUDP {
			l4 = abi.RSSIPv6UDP
		}
	}
	if types&(l3|l4) == 0 {
		return 0, false
	}
	n := 2 * i.addrLen
	for k, c := range f[i.addrs : i.addrs+n] {
		h ^= t.table[k][c]
	}
	if types&l4 != 0 {
		for k, c := range f[i.L4 : i.L4+4] {
			h ^= t.table[n+k][c]
		}
	}
	return h, true
}

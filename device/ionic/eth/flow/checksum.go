// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"encoding/binary"
	"math/bits"
)

// Sum returns the folded one's-complement sum, not complemented, of b taken as
// little-endian 16-bit words, an odd last byte padded with zero. Stored
// little-endian it is the same two bytes as the big-endian sum in network order.
func Sum(b []byte) uint16 {
	var s, c uint64
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[0:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[24:]), c)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		b = b[8:]
	}
	var last [8]byte
	copy(last[:], b)
	s, c = bits.Add64(s, binary.LittleEndian.Uint64(last[:]), c)
	return fold(s, c)
}

func fold(s, c uint64) uint16 {
	s, c = bits.Add64(s, c, 0)
	s += c
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// Add returns the one's-complement sum of two sums. Bytes behind an even number of
// bytes may be summed apart from these.
func Add(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s>>16 + s&0xffff)
}

// FillChecksum does what CHECKSUM_PARTIAL asks for: it sums f from start to the
// end, the pseudo header's sum that stands in the checksum field included, and
// stores the complement at start+offset, 0 as 0xffff. It reports whether both
// lie in the frame.
func FillChecksum(f []byte, start, offset int) bool {
	if start < 0 || offset < 0 || start+offset+2 > len(f) {
		return false
	}
	s := ^Sum(f[start:])
	if s == 0 {
		s = 0xffff
	}
	binary.LittleEndian.PutUint16(f[start+offset:], s)
	return true
}

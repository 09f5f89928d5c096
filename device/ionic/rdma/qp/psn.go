// SPDX-License-Identifier: Apache-2.0

package qp

import "github.com/ernic-dev/ernic/device/ionic/rdma/packet"

// Inside the engine a PSN is a 64-bit number that never wraps: the 24 bits of
// the wire plus a lap count. epoch is the lap a connection starts in, so that
// the distance to an older PSN never goes below zero.
const epoch = 1 << 24

// wire is the PSN as it travels.
func wire(psn uint64) uint32 { return uint32(psn) & packet.PSNMask }

// extend finds the PSN closest to near that has the given 24 bits.
func extend(psn uint32, near uint64) uint64 {
	d := int32((psn-uint32(near))<<8) >> 8
	return near + uint64(int64(d))
}

// units is the number of PSNs that n bytes take at a path MTU of 1<<shift;
// also an empty packet takes one.
func units(n uint64, shift uint8) uint64 {
	if n == 0 {
		return 1
	}
	return (n + 1<<shift - 1) >> shift
}

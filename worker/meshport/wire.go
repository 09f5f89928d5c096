// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/netport"
)

const (
	headerLen = 8
	version   = 1

	flagChecksum  = 1 << 0
	segmentShift  = 1
	segmentMask   = 3
	flagNoLIF     = 1 << 3 // alone, and without a frame
	reservedFlags = ^uint8(flagChecksum | segmentMask<<segmentShift)
)

var be = binary.BigEndian

// encode stores the header of a frame.
func encode(b *[headerLen]byte, o *netport.Offload) {
	*b = [headerLen]byte{version, uint8(o.Segment) << segmentShift}
	if o.Checksum {
		b[1] |= flagChecksum
	}
	be.PutUint16(b[2:], o.CsumStart)
	be.PutUint16(b[4:], o.CsumOffset)
	be.PutUint16(b[6:], o.Size)
}

// decode reads the header of a frame from a peer. Whether it fits the frame is for
// the LIF to find out.
func decode(b []byte) (o netport.Offload, ok bool) {
	if len(b) != headerLen || b[0] != version || b[1]&reservedFlags != 0 {
		return o, false
	}
	o = netport.Offload{
		Checksum:  b[1]&flagChecksum != 0,
		CsumStart: be.Uint16(b[2:]), CsumOffset: be.Uint16(b[4:]),
		Segment: netport.Segmentation(b[1] >> segmentShift & segmentMask),
		Size:    be.Uint16(b[6:]),
	}
	return o, o.Segment <= netport.SegmentTCP6
}

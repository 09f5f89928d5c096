// SPDX-License-Identifier: Apache-2.0

package netport

// MaxOffload is the largest frame that is still to be cut: an Ethernet header
// with two tags and the largest IP packet.
const MaxOffload = 14 + 2*4 + 65535

// Segmentation says how a frame is to be cut.
type Segmentation uint8

// Kinds of segmentation. The values are part of the mesh's wire format: append
// only.
const (
	SegmentNone Segmentation = iota
	SegmentTCP4
	SegmentTCP6
)

// Offload is the work that a frame's sender has left to whoever needs the frame
// finished. The zero value says that the frame is as it must be on a wire.
type Offload struct {
	// Checksum says that the checksum at CsumStart+CsumOffset holds the folded
	// sum of the pseudo header only: the sum of everything from CsumStart to the
	// end of the frame is to be put there. Offsets are from the frame's start.
	Checksum              bool
	CsumStart, CsumOffset uint16

	// Segment says that the frame is one TCP packet to be cut into several with
	// at most Size bytes of payload each. Its lengths are those of the whole, and
	// its checksum is left open, too.
	Segment Segmentation
	Size    uint16
}

// None reports whether no work is left.
func (o *Offload) None() bool { return !o.Checksum && o.Segment == SegmentNone }

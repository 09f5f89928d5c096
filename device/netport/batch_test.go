// SPDX-License-Identifier: Apache-2.0

package netport

import "testing"

type owner struct{ released int }

func (o *owner) Release() { o.released++ }

func TestBatch_GivesLentFramesBackOnce(t *testing.T) {
	b, o := NewBatch(3, 100), &owner{}
	off := Offload{Segment: SegmentTCP4, Size: 1448}
	b.SetLen(0, 60)
	b.Lend(1, make([]byte, 5000), off, o)
	b.Set(2, b.Buffer(2)[10:70], Offload{Checksum: true})
	if len(b.Frame(0)) != 60 || len(b.Frame(1)) != 5000 || len(b.Frame(2)) != 60 {
		t.Errorf("frames of %d, %d and %d bytes", len(b.Frame(0)), len(b.Frame(1)), len(b.Frame(2)))
	}
	if !b.Offload(0).None() || *b.Offload(1) != off || b.Offload(2).None() {
		t.Errorf("offloads %+v, %+v and %+v", *b.Offload(0), *b.Offload(1), *b.Offload(2))
	}
	b.Done()
	b.Done()
	if o.released != 1 {
		t.Errorf("the owner was told %d times", o.released)
	}
	b.SetLen(1, 7) // the place is the batch's own again
	if len(b.Frame(1)) != 7 || !b.Offload(1).None() {
		t.Errorf("a frame of %d bytes with %+v", len(b.Frame(1)), *b.Offload(1))
	}
}

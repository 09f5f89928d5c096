// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "syscall"

// region returns the region of a decoded access if it allows it.
func (s *Session) region(a *regionAccess, need RegionFlags) error {
	g := &s.info.Regions[a.region]
	if g.Size == 0 || g.Flags&need == 0 || a.offset+uint64(a.count) > g.Size {
		return syscall.EINVAL
	}
	return nil
}

func (s *Session) regionRead(p []byte) ([]byte, error) {
	a, err := decodeRegionAccess(p, false)
	if err != nil {
		return nil, err
	}
	if err := s.region(&a, Readable); err != nil {
		return nil, err
	}
	r := s.payload(regionAccessLen + int(a.count))
	copy(r, p[:regionAccessLen])
	if a.count > 0 {
		if err := s.dev.RegionRead(int(a.region), a.offset, r[regionAccessLen:]); err != nil {
			return nil, err
		}
		s.m.bytesRead.Add(uint64(a.count))
	}
	return r, nil
}

func (s *Session) regionWrite(p []byte) ([]byte, error) {
	a, err := decodeRegionAccess(p, true)
	if err != nil {
		return nil, err
	}
	if err := s.region(&a, Writable); err != nil {
		return nil, err
	}
	if a.count > 0 {
		if err := s.dev.RegionWrite(int(a.region), a.offset, a.data); err != nil {
			return nil, err
		}
		s.m.bytesWritten.Add(uint64(a.count))
	}
	r := s.payload(regionAccessLen)
	copy(r, p)
	return r, nil
}

// regionWriteMulti applies all entries in order, or none if one is malformed.
// If the device refuses one, those before it stay applied.
func (s *Session) regionWriteMulti(p []byte) ([]byte, error) {
	entries, err := decodeMulti(p)
	if err != nil {
		return nil, err
	}
	for e := entries; len(e) > 0; e = e[multiEntryLen:] {
		a, err := decodeMultiEntry(e)
		if err != nil {
			return nil, err
		}
		if err := s.region(&a, Writable); err != nil {
			return nil, err
		}
	}
	for e := entries; len(e) > 0; e = e[multiEntryLen:] {
		a, err := decodeMultiEntry(e)
		if err != nil {
			return nil, err
		}
		if err := s.dev.RegionWrite(int(a.region), a.offset, a.data); err != nil {
			return nil, err
		}
		s.m.bytesWritten.Add(uint64(a.count))
	}
	r := s.payload(multiHeadLen)
	copy(r, p)
	return r, nil
}

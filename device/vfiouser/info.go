// SPDX-License-Identifier: Apache-2.0

package vfiouser

import "syscall"

const (
	deviceReset = 1 << 0
	devicePCI   = 1 << 1

	sparseCapID  = 1
	sparseCapVer = 1
	sparseHead   = 16 // id, version, next, areas, reserved
	sparseArea   = 16
)

func (s *Session) getInfo(p []byte) ([]byte, error) {
	if _, err := decodeArgs(p, infoLen); err != nil {
		return nil, err
	}
	flags := uint32(devicePCI)
	if s.info.Resettable {
		flags |= deviceReset
	}
	r := s.payload(infoLen)
	le.PutUint32(r, infoLen)
	le.PutUint32(r[4:], flags)
	le.PutUint32(r[8:], NumRegions)
	le.PutUint32(r[12:], NumIRQs)
	return r, nil
}

// getRegionInfo answers in two steps when a region has capabilities: to a
// short argsz with the size needed, to a sufficient one with everything.
func (s *Session) getRegionInfo(p []byte) (reply []byte, fd int, err error) {
	argsz, err := decodeArgs(p, regionInfoLen)
	if err != nil {
		return nil, -1, err
	}
	index := le.Uint32(p[8:])
	if index >= NumRegions {
		return nil, -1, syscall.EINVAL
	}
	g := &s.info.Regions[index]
	need, flags, offset := regionInfoLen, RegionFlags(0), uint64(0)
	if g.Size > 0 {
		flags = g.Flags
	}
	var areas []Area
	if g.Size > 0 && g.MMap != nil {
		flags |= regionMMap
		offset = g.MMap.Offset
		areas = g.areas()
		need += sparseHead + sparseArea*len(areas)
	}
	n, fd := need, -1
	if need > regionInfoLen {
		if uint64(argsz) < uint64(need) {
			n = regionInfoLen
		} else {
			flags |= regionCaps
			if fd, err = rawFD(g.MMap); err != nil {
				return nil, -1, err
			}
		}
	}
	r := s.payload(n)
	le.PutUint32(r, uint32(need))
	le.PutUint32(r[4:], uint32(flags))
	le.PutUint32(r[8:], index)
	le.PutUint64(r[16:], g.Size)
	le.PutUint64(r[24:], offset)
	if n > regionInfoLen {
		le.PutUint32(r[12:], regionInfoLen)
		c := r[regionInfoLen:]
		le.PutUint16(c, sparseCapID)
		le.PutUint16(c[2:], sparseCapVer)
		le.PutUint32(c[8:], uint32(len(areas)))
		for i, a := range areas {
			le.PutUint64(c[sparseHead+sparseArea*i:], a.Offset)
			le.PutUint64(c[sparseHead+sparseArea*i+8:], a.Size)
		}
	}
	return r, fd, nil
}

// rawFD returns the descriptor of the file without changing its blocking mode.
func rawFD(m *MMap) (fd int, err error) {
	raw, err := m.File.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(u uintptr) { fd = int(u) })
	return fd, err
}

// getRegionIOFDs says that no region has ioeventfds.
func (s *Session) getRegionIOFDs(p []byte) ([]byte, error) {
	index, err := decodeRegionIOFDs(p)
	if err != nil {
		return nil, err
	}
	if g := &s.info.Regions[index]; g.Size == 0 || g.Flags&(Readable|Writable) == 0 {
		return nil, syscall.EINVAL
	}
	r := s.payload(regionIOFDsLen)
	le.PutUint32(r, regionIOFDsLen)
	le.PutUint32(r[8:], index)
	return r, nil
}

func (s *Session) getIRQInfo(p []byte) ([]byte, error) {
	if _, err := decodeArgs(p, irqInfoLen); err != nil {
		return nil, err
	}
	index := le.Uint32(p[8:])
	if index >= NumIRQs {
		return nil, syscall.EINVAL
	}
	r := s.payload(irqInfoLen)
	le.PutUint32(r, irqInfoLen)
	le.PutUint32(r[4:], uint32(irqEventFD|s.info.IRQs[index].Flags))
	le.PutUint32(r[8:], index)
	le.PutUint32(r[12:], s.irqMax[index])
	return r, nil
}

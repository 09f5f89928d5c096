// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"math"
	"math/bits"
	"syscall"
)

// The decoders in this file are pure: payload in, fields or errno out. They
// check everything that can be checked without knowing the device.

type dmaMap struct {
	flags              uint32
	offset, iova, size uint64
}

const (
	dmaMapRead      = 1 << 0
	dmaMapWrite     = 1 << 1
	dmaMapMustMMap  = 1 << 2 // libvfio-user: fail rather than use messages
	dmaMapFileIO    = 1 << 3 // libvfio-user: use pread and pwrite; a mapping serves as well
	dmaMapFlagsMask = 0xf
)

func decodeDMAMap(p []byte, fds int) (m dmaMap, err error) {
	if len(p) < dmaMapLen || le.Uint32(p) < dmaMapLen {
		return m, syscall.EINVAL
	}
	m = dmaMap{
		flags:  le.Uint32(p[4:]),
		offset: le.Uint64(p[8:]),
		iova:   le.Uint64(p[16:]),
		size:   le.Uint64(p[24:]),
	}
	const fileOnly = dmaMapMustMMap | dmaMapFileIO
	switch {
	case fds > 1,
		m.flags&^dmaMapFlagsMask != 0,
		m.flags&fileOnly != 0 && fds == 0,
		m.flags&fileOnly == fileOnly,
		m.size == 0,
		m.size-1 > math.MaxUint64-m.iova:
		return m, syscall.EINVAL
	}
	return m, nil
}

type dmaUnmap struct {
	iova, size uint64
	all        bool
}

const (
	dmaUnmapDirtyBitmap = 1 << 0
	dmaUnmapAll         = 1 << 1
)

func decodeDMAUnmap(p []byte) (u dmaUnmap, err error) {
	if len(p) < dmaUnmapLen {
		return u, syscall.EINVAL
	}
	argsz, flags := le.Uint32(p), le.Uint32(p[4:])
	u = dmaUnmap{iova: le.Uint64(p[8:]), size: le.Uint64(p[16:]), all: flags == dmaUnmapAll}
	switch {
	case argsz < dmaUnmapLen || argsz > maxTransfer,
		flags != 0 && flags != dmaUnmapAll, // a dirty bitmap needs dirty logging, which is never on
		u.all && (u.iova != 0 || u.size != 0),
		!u.all && u.size == 0,
		!u.all && u.size-1 > math.MaxUint64-u.iova:
		return u, syscall.EINVAL
	}
	return u, nil
}

// decodeArgs checks a payload that starts with argsz and returns argsz.
func decodeArgs(p []byte, need uint32) (argsz uint32, err error) {
	if len(p) < int(need) || le.Uint32(p) < need {
		return 0, syscall.EINVAL
	}
	return le.Uint32(p), nil
}

// decodeRegionIOFDs returns the region asked for.
func decodeRegionIOFDs(p []byte) (region uint32, err error) {
	argsz, err := decodeArgs(p, regionIOFDsLen)
	if err != nil {
		return 0, err
	}
	flags, index, count := le.Uint32(p[4:]), le.Uint32(p[8:]), le.Uint32(p[12:])
	if argsz > maxTransfer || flags != 0 || count != 0 || index >= NumRegions {
		return 0, syscall.EINVAL
	}
	return index, nil
}

const (
	irqDataNone      = 1 << 0
	irqDataBool      = 1 << 1
	irqDataEventFD   = 1 << 2
	irqActionMask    = 1 << 3
	irqActionUnmask  = 1 << 4
	irqActionTrigger = 1 << 5

	irqDataBits   = irqDataNone | irqDataBool | irqDataEventFD
	irqActionBits = irqActionMask | irqActionUnmask | irqActionTrigger
)

type setIRQs struct {
	data, action        uint32 // one bit each
	index, start, count uint32
	bools               []byte // count bytes with irqDataBool
}

// decodeSetIRQs checks a SET_IRQS payload against the number of interrupts of
// each index.
func decodeSetIRQs(p []byte, fds int, counts *[NumIRQs]uint32) (q setIRQs, err error) {
	if _, err := decodeArgs(p, setIRQsLen); err != nil {
		return q, err
	}
	flags := le.Uint32(p[4:])
	q = setIRQs{
		data: flags & irqDataBits, action: flags & irqActionBits,
		index: le.Uint32(p[8:]), start: le.Uint32(p[12:]), count: le.Uint32(p[16:]),
	}
	switch {
	case flags&^(irqDataBits|irqActionBits) != 0,
		bits.OnesCount32(q.data) != 1,
		bits.OnesCount32(q.action) != 1,
		q.index >= NumIRQs:
		return q, syscall.EINVAL
	}
	if fds != 0 && q.data != irqDataEventFD {
		return q, syscall.EINVAL
	}
	have := counts[q.index]
	if q.count == 0 {
		// "Disable all" is the only request without a range. It is a no-op,
		// not an error, for an index without interrupts.
		if q.start != 0 || q.data != irqDataNone || q.action != irqActionTrigger {
			return q, syscall.EINVAL
		}
		return q, nil
	}
	single := q.index == uint32(IRQErr) || q.index == uint32(IRQReq)
	switch {
	case q.start >= have || q.count > have-q.start,
		single && (q.action != irqActionTrigger || q.count > 1),
		q.data == irqDataBool && uint64(len(p)-setIRQsLen) != uint64(q.count),
		q.data == irqDataEventFD && fds != 0 && uint64(fds) != uint64(q.count),
		// An eventfd for masking is only useful for INTx under KVM.
		q.data == irqDataEventFD && q.action != irqActionTrigger:
		return q, syscall.EINVAL
	}
	if q.data == irqDataBool {
		q.bools = p[setIRQsLen:]
	}
	return q, nil
}

type regionAccess struct {
	offset        uint64
	region, count uint32
	data          []byte // REGION_WRITE
}

func decodeRegionAccess(p []byte, write bool) (a regionAccess, err error) {
	if len(p) < regionAccessLen {
		return a, syscall.EINVAL
	}
	a = regionAccess{offset: le.Uint64(p), region: le.Uint32(p[8:]), count: le.Uint32(p[12:])}
	if a.count > maxTransfer || a.region >= NumRegions || a.offset > math.MaxUint64-uint64(a.count) {
		return a, syscall.EINVAL
	}
	if write {
		a.data = p[regionAccessLen:]
		if len(a.data) != int(a.count) {
			return a, syscall.EINVAL
		}
	}
	return a, nil
}

// decodeMulti returns the entries of a REGION_WRITE_MULTI, checked for length.
func decodeMulti(p []byte) (entries []byte, err error) {
	if len(p) < multiHeadLen {
		return nil, syscall.EINVAL
	}
	n, entries := le.Uint64(p), p[multiHeadLen:]
	if n != uint64(len(entries)/multiEntryLen) || len(entries)%multiEntryLen != 0 {
		return nil, syscall.EINVAL
	}
	return entries, nil
}

// decodeMultiEntry decodes the first entry of e.
func decodeMultiEntry(e []byte) (a regionAccess, err error) {
	a = regionAccess{offset: le.Uint64(e), region: le.Uint32(e[8:]), count: le.Uint32(e[12:])}
	if a.count < 1 || a.count > 8 || a.region >= NumRegions || a.offset > math.MaxUint64-uint64(a.count) {
		return a, syscall.EINVAL
	}
	a.data = e[16 : 16+a.count]
	return a, nil
}

const (
	featureGet   = 1 << 16
	featureSet   = 1 << 17
	featureProbe = 1 << 18
	featureIndex = 0xffff
)

// decodeFeature always returns an error: ENOTTY for a well-formed question,
// because no feature exists, else EINVAL.
func decodeFeature(p []byte) error {
	if _, err := decodeArgs(p, featureLen); err != nil {
		return err
	}
	flags := le.Uint32(p[4:])
	op := flags & (featureGet | featureSet | featureProbe)
	if flags&^(featureGet|featureSet|featureProbe|featureIndex) != 0 || op == 0 || op == featureGet|featureSet {
		return syscall.EINVAL
	}
	return syscall.ENOTTY
}

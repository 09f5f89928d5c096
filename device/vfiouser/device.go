// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"math/bits"
	"os"
)

// Regions of a PCI device (VFIO_PCI_*_REGION_INDEX).
const (
	RegionBAR0   = 0
	RegionBAR5   = 5
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8

	NumRegions = 9
)

// IRQIndex names one kind of interrupt of a PCI device.
type IRQIndex int

// Interrupt indexes (VFIO_PCI_*_IRQ_INDEX).
const (
	IRQINTx IRQIndex = 0
	IRQMSI  IRQIndex = 1
	IRQMSIX IRQIndex = 2
	IRQErr  IRQIndex = 3 // signalling it stops the guest
	IRQReq  IRQIndex = 4 // request to release the device

	NumIRQs = 5
)

// Device is one emulated PCI function. All methods are called from the
// session's goroutine, in the order of the client's messages, and must return
// at once. Errors become the errno they wrap (syscall.Errno), else EIO.
type Device interface {
	// Info describes the device. It is read once for each client.
	Info() Info
	// RegionRead fills p from offset off of a region. p is zeroed scratch
	// memory of 1 to 1 MiB bytes, wholly inside the region, and not valid
	// after the call.
	RegionRead(region int, off uint64, p []byte) error
	// RegionWrite takes p, scratch memory like that of RegionRead.
	RegionWrite(region int, off uint64, p []byte) error
}

// Attacher is implemented by a Device that reads guest memory or interrupts.
type Attacher interface {
	// Attach is called when a client has connected and before any other
	// request of it. An error refuses the client.
	Attach(s *Session) error
	// Detach is called when the client is gone. When it returns, the device
	// uses neither guest memory nor the session. Calls pair with Attach.
	Detach(reason error)
}

// ResetKind says why a device is reset. A function level reset is a write to
// configuration space and not seen here.
type ResetKind int

// Reset kinds.
const (
	ResetCommand    ResetKind = iota // the client asked for it
	ResetLostClient                  // the client is gone; called after Detach
)

// String returns the kind in words.
func (k ResetKind) String() string {
	switch k {
	case ResetCommand:
		return "reset command"
	case ResetLostClient:
		return "lost client"
	}
	return fmt.Sprintf("reset kind %d", int(k))
}

// Resetter is implemented by a Device that can be reset. The client's memory
// windows and interrupts survive a reset.
type Resetter interface {
	Reset(kind ResetKind) error
}

// DMAListener is implemented by a Device that keeps views of guest memory.
type DMAListener interface {
	// DMAMapped is called after a window was added.
	DMAMapped(iova, size uint64)
	// DMAUnmapping is called before a window is removed. When it returns, the
	// device holds no long-lived pin on it and takes no new one.
	DMAUnmapping(iova, size uint64)
}

// IRQMasker is implemented by a Device that wants to know when the client
// masks or unmasks interrupts. Masking needs no action: the client holds back
// what a masked interrupt signals.
type IRQMasker interface {
	SetMask(index IRQIndex, start, count int, masked bool)
}

// Info describes a device to the client.
type Info struct {
	Regions    [NumRegions]RegionInfo
	IRQs       [NumIRQs]IRQInfo
	Resettable bool // the Device implements Resetter and a reset command may be sent
}

// RegionFlags tells what can be done with a region.
type RegionFlags uint32

// Region flags, with the values of the wire.
const (
	Readable RegionFlags = 1 << 0
	Writable RegionFlags = 1 << 1

	regionMMap RegionFlags = 1 << 2
	regionCaps RegionFlags = 1 << 3
)

// RegionInfo describes one region. Size 0 means there is none.
type RegionInfo struct {
	Size  uint64 // bytes; a power of two, except for configuration space (256 or 4096)
	Flags RegionFlags
	// MMap lets the client map the region instead of sending messages. A
	// single such region makes QEMU wait for an answer to every write to any
	// region of the device.
	MMap *MMap
}

// MMap is the memory behind a region that the client may map. Its contents
// are hostile input, also outside the areas. Seal the file against shrinking.
type MMap struct {
	File   *os.File
	Offset uint64 // of the region in File, page aligned
	Areas  []Area // parts the client may map; none means the whole region
}

// Area is a page-aligned part of a region.
type Area struct{ Offset, Size uint64 }

// IRQFlags adds properties to an interrupt index.
type IRQFlags uint32

// Interrupt flags, with the values of the wire. EVENTFD is implied, NORESIZE
// is never set.
const (
	Maskable   IRQFlags = 1 << 1
	AutoMasked IRQFlags = 1 << 2

	irqEventFD IRQFlags = 1 << 0
)

// IRQInfo describes one interrupt index. Count 0 means there is none.
type IRQInfo struct {
	Count int
	Flags IRQFlags
}

const mmapPage = 4096

// check finds what would make a client abort or misbehave, so that a wrong
// device is reported here and not by a dying hypervisor.
func (in *Info) check(dev Device) error {
	if _, ok := dev.(Resetter); in.Resettable && !ok {
		return fmt.Errorf("vfio-user device: info says resettable, but it has no Reset method")
	}
	for i := range in.Regions {
		if err := in.Regions[i].check(i); err != nil {
			return fmt.Errorf("vfio-user device: region %d: %w", i, err)
		}
	}
	limits := [NumIRQs]int{IRQINTx: 1, IRQMSI: 32, IRQMSIX: 2048, IRQErr: 1, IRQReq: 1}
	for i, q := range in.IRQs {
		if q.Count < 0 || q.Count > limits[i] {
			return fmt.Errorf("vfio-user device: interrupt index %d: count %d is not in 0..%d", i, q.Count, limits[i])
		}
		if q.Flags&^(Maskable|AutoMasked) != 0 {
			return fmt.Errorf("vfio-user device: interrupt index %d: unknown flags %#x", i, uint32(q.Flags))
		}
	}
	return nil
}

func (r *RegionInfo) check(index int) error {
	switch {
	case r.Flags&^(Readable|Writable) != 0:
		return fmt.Errorf("unknown flags %#x", uint32(r.Flags))
	case r.Size == 0:
		if r.MMap != nil {
			return fmt.Errorf("mmap of an absent region")
		}
		return nil
	case index == RegionConfig && r.Size != 256 && r.Size != 4096:
		return fmt.Errorf("configuration space of %d bytes, want 256 or 4096", r.Size)
	case bits.OnesCount64(r.Size) != 1:
		return fmt.Errorf("size %#x is not a power of two", r.Size)
	case r.MMap == nil:
		return nil
	}
	m := r.MMap
	if m.File == nil || m.Offset%mmapPage != 0 || m.Offset > 1<<62 || r.Size%mmapPage != 0 {
		return fmt.Errorf("mmap without a file, or offset %#x or size %#x not page aligned", m.Offset, r.Size)
	}
	if len(m.Areas) > maxAreas {
		return fmt.Errorf("%d mmap areas, the limit is %d", len(m.Areas), maxAreas)
	}
	for _, a := range m.Areas {
		if a.Offset%mmapPage != 0 || a.Size%mmapPage != 0 || a.Size == 0 || a.Size > r.Size || a.Offset > r.Size-a.Size {
			return fmt.Errorf("mmap area at %#x of %#x bytes is not page aligned inside the region", a.Offset, a.Size)
		}
	}
	return nil
}

// maxAreas keeps a region info reply small.
const maxAreas = 64

// areas returns the areas to announce: a descriptor always comes with at
// least one.
func (r *RegionInfo) areas() []Area {
	if len(r.MMap.Areas) > 0 {
		return r.MMap.Areas
	}
	return []Area{{0, r.Size}}
}

// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/ernic-dev/ernic/device/vfiouser"
)

var (
	_ vfiouser.Device   = (*Function)(nil)
	_ vfiouser.Attacher = (*Function)(nil)
	_ vfiouser.Resetter = (*Function)(nil)
)

// wires are the MSI-X vectors of the client that is attached, nil while none is.
type wires = atomic.Pointer[[]*vfiouser.Vector]

// Info implements [vfiouser.Device]. The upper half of a 64-bit BAR has no
// region. There is one error interrupt, which is never raised, because QEMU
// warns of a device without one; and there is no INTx and no MSI.
func (f *Function) Info() vfiouser.Info {
	const rw = vfiouser.Readable | vfiouser.Writable
	in := vfiouser.Info{Resettable: true}
	for i := range f.config.BARs {
		if size := f.config.BARs[i].Size; size != 0 {
			in.Regions[vfiouser.RegionBAR0+i] = vfiouser.RegionInfo{Size: size, Flags: rw}
		}
	}
	in.Regions[vfiouser.RegionConfig] = vfiouser.RegionInfo{Size: ConfigSize, Flags: rw}
	in.IRQs[vfiouser.IRQMSIX].Count = f.config.MSIX.Vectors
	in.IRQs[vfiouser.IRQErr].Count = 1
	return in
}

// RegionRead implements [vfiouser.Device].
func (f *Function) RegionRead(region int, off uint64, p []byte) error {
	switch {
	case region == vfiouser.RegionConfig:
		return refused(f.ReadConfig(off, p))
	case region >= vfiouser.RegionBAR0 && region <= vfiouser.RegionBAR5:
		return refused(f.ReadBAR(region-vfiouser.RegionBAR0, off, p))
	}
	return noRegion("read", region)
}

// RegionWrite implements [vfiouser.Device].
func (f *Function) RegionWrite(region int, off uint64, p []byte) error {
	switch {
	case region == vfiouser.RegionConfig:
		return refused(f.WriteConfig(off, p))
	case region >= vfiouser.RegionBAR0 && region <= vfiouser.RegionBAR5:
		return refused(f.WriteBAR(region-vfiouser.RegionBAR0, off, p))
	}
	return noRegion("write", region)
}

// Attach implements [vfiouser.Attacher].
func (f *Function) Attach(s *vfiouser.Session) error {
	v := make([]*vfiouser.Vector, f.config.MSIX.Vectors)
	for i := range v {
		v[i] = s.IRQ(vfiouser.IRQMSIX, i)
	}
	f.wires.Store(&v)
	f.config.Hooks.Attach(s.Mem(), f.signal)
	return nil
}

// Detach implements [vfiouser.Attacher].
func (f *Function) Detach(error) {
	f.config.Hooks.Detach()
	f.wires.Store(nil)
}

// Reset implements [vfiouser.Resetter]: whatever its kind, a reset puts the
// registers back to their power-on values and stops the device.
func (f *Function) Reset(vfiouser.ResetKind) error {
	f.reset()
	return nil
}

// signal raises one MSI-X vector.
func (f *Function) signal(vector int) {
	v := f.wires.Load()
	if v == nil || vector < 0 || vector >= len(*v) {
		return
	}
	if !f.busMaster.Load() {
		f.dropped.Add(1)
		return
	}
	_ = (*v)[vector].Signal() // counted by the server
}

// refused marks an access as a mistake of the client.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, syscall.EINVAL)
}

func noRegion(op string, region int) error {
	return fmt.Errorf("pci: client's %s of region %d, which the function does not have: %w", op, region, syscall.EINVAL)
}

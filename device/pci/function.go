// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"sync/atomic"
)

// Function is one PCI function. Accesses, resets, attach and detach come from
// one goroutine at a time, the one that serves the client; BusMaster,
// DroppedSignals and the signal function given to the hooks may be used from any.
type Function struct {
	config Config
	carves [NumBARs][]carve
	space  space

	busMaster atomic.Bool
	dropped   atomic.Uint64 // signals while bus mastering was off
	wires     wires
}

// New checks the configuration and returns a function in its power-on state.
func New(c Config) (*Function, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	f := &Function{config: c}
	f.space.build(&c)
	for i := range f.carves {
		f.carves[i] = c.MSIX.carves(i)
	}
	return f, nil
}

// BusMaster reports whether the guest lets the function do DMA and raise
// interrupts (COMMAND bit 2).
func (f *Function) BusMaster() bool { return f.busMaster.Load() }

// DroppedSignals counts the interrupts that were raised while bus mastering was
// off; an MSI-X message is a write of the function's own, so they went nowhere.
func (f *Function) DroppedSignals() uint64 { return f.dropped.Load() }

// ReadConfig fills p from configuration space at off.
func (f *Function) ReadConfig(off uint64, p []byte) error {
	if !inside(off, len(p), ConfigSize) {
		return outOfRange("read", "configuration space", off, len(p), ConfigSize)
	}
	f.space.read(int(off), p)
	return nil
}

// WriteConfig writes p to configuration space at off, and acts on the registers
// that have an effect: bus mastering, the power state and function-level reset.
func (f *Function) WriteConfig(off uint64, p []byte) error {
	if !inside(off, len(p), ConfigSize) {
		return outOfRange("write", "configuration space", off, len(p), ConfigSize)
	}
	at := int(off)
	power := f.space.get16(capPM+pmcsr) & pmcsrPowerState
	f.space.store(at, p)
	if f.config.PM {
		f.holdPowerState(power)
	}
	if v, ok := written(at, p, capExpress+expDevCtl+1); ok && f.config.Express && !f.config.NoFLR && v&(devCtlFLR>>8) != 0 {
		f.reset()
		return nil
	}
	f.setBusMaster(f.space.get16(regCommand)&cmdBusMaster != 0)
	return nil
}

// holdPowerState undoes a move to D1 or D2, which the function does not have:
// such a write completes without effect.
func (f *Function) holdPowerState(before uint16) {
	v := f.space.get16(capPM + pmcsr)
	if now := v & pmcsrPowerState; now == 1 || now == 2 {
		f.space.put16(capPM+pmcsr, v&^pmcsrPowerState|before)
	}
}

func (f *Function) setBusMaster(on bool) {
	if f.busMaster.Swap(on) != on {
		f.config.Hooks.BusMaster(on)
	}
}

// reset puts the registers back and stops the device; DMA and interrupts have
// ended when it returns.
func (f *Function) reset() {
	f.space.powerOn()
	f.setBusMaster(false)
	f.config.Hooks.Reset()
}

// ReadBAR fills p from a BAR at off.
func (f *Function) ReadBAR(bar int, off uint64, p []byte) error {
	b := &f.config.BARs[bar]
	if !inside(off, len(p), b.Size) {
		return outOfRange("read", fmt.Sprintf("BAR%d", bar), off, len(p), b.Size)
	}
	clear(p)
	if b.Handler == nil {
		return nil
	}
	for len(p) > 0 {
		n, hidden := f.run(bar, off, len(p))
		if !hidden {
			b.Handler.ReadBAR(off, p[:n])
		}
		off, p = off+uint64(n), p[n:]
	}
	return nil
}

// WriteBAR writes p to a BAR at off.
func (f *Function) WriteBAR(bar int, off uint64, p []byte) error {
	b := &f.config.BARs[bar]
	if !inside(off, len(p), b.Size) {
		return outOfRange("write", fmt.Sprintf("BAR%d", bar), off, len(p), b.Size)
	}
	if b.Handler == nil {
		return nil
	}
	for len(p) > 0 {
		n, hidden := f.run(bar, off, len(p))
		if !hidden {
			b.Handler.WriteBAR(off, p[:n])
		}
		off, p = off+uint64(n), p[n:]
	}
	return nil
}

// run returns how many of the n bytes at off are alike: inside one MSI-X range,
// or outside of all.
func (f *Function) run(bar int, off uint64, n int) (length int, hidden bool) {
	end := off + uint64(n)
	for _, c := range f.carves[bar] {
		switch {
		case off >= c.end:
		case off >= c.start:
			return int(min(end, c.end) - off), true
		case end > c.start:
			return int(c.start - off), false
		}
	}
	return n, false
}

// inside reports whether n bytes at off are within size, without wrapping.
func inside(off uint64, n int, size uint64) bool {
	return off <= size && uint64(n) <= size-off
}

func outOfRange(op, what string, off uint64, n int, size uint64) error {
	return fmt.Errorf("pci: client's %s of %d bytes at %#x is beyond the %#x bytes of the %s", op, n, off, size, what)
}

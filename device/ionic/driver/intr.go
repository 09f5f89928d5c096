// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// Interrupt control registers, byte offsets in a block.
const (
	intrCoalInit   = 0
	intrMask       = 4
	intrCredits    = 8
	intrMaskAssert = 12
)

// Flags of a credits write.
const (
	CreditUnmask        = 0x10000
	CreditResetCoalesce = 0x20000
)

// Intr is one interrupt vector in use.
type Intr struct {
	Index int // vector and interrupt control block

	d       *Device
	vector  *vfioclient.Vector
	handler func()
	done    chan struct{}
	// The vector masks itself as it fires, so it fires at most once for each
	// time it is opened.
	opened atomic.Uint64
	fired  atomic.Uint64
}

// AllocIntr takes the first free vector and returns its credits, as
// ionic_intr_alloc does. The handler runs in a goroutine of the vector, one
// call at a time; it must open the vector again.
func (d *Device) AllocIntr(handler func()) (*Intr, error) {
	d.intrLock.Lock()
	defer d.intrLock.Unlock()
	for i, used := range d.intrUsed {
		if used {
			continue
		}
		in := &Intr{Index: i, d: d, handler: handler, done: make(chan struct{})}
		in.CleanCredits()
		d.intrUsed[i] = true
		return in, nil
	}
	return nil, fmt.Errorf("driver: all %d interrupt vectors are in use", len(d.intrUsed))
}

// Request makes the vector deliver, as request_irq does.
func (in *Intr) Request() error {
	v, err := in.d.client.UseVector(in.Index)
	if err != nil {
		return fmt.Errorf("driver: request vector %d: %w", in.Index, err)
	}
	in.vector = v
	in.d.handlers.Go(in.serve)
	return nil
}

func (in *Intr) serve() {
	defer close(in.done)
	for {
		n, err := in.vector.Wait(time.Time{})
		if err != nil {
			return
		}
		if fired, opened := in.fired.Add(n), in.opened.Load(); fired > opened {
			in.d.Fail(fmt.Errorf("driver: vector %d fired %d times but was opened %d times: the kernel would have called a handler that is not ready",
				in.Index, fired, opened))
			return
		}
		in.handler()
	}
}

// Free stops the vector; no handler runs after it.
func (in *Intr) Free() {
	if in.vector != nil {
		if err := in.d.client.ReleaseVector(in.Index); err != nil {
			in.d.Fail(fmt.Errorf("driver: free vector %d: %w", in.Index, err))
		} else {
			<-in.done
		}
	}
	in.d.intrLock.Lock()
	defer in.d.intrLock.Unlock()
	in.d.intrUsed[in.Index] = false
}

func (in *Intr) reg(off uint64) uint64 { return regIntr + uint64(in.Index)*intrStride + off }

// SetCoalesce writes the coalescing interval in device units.
func (in *Intr) SetCoalesce(v uint32) { in.d.io.write32(in.reg(intrCoalInit), v) }

// Mask closes the vector.
func (in *Intr) Mask() { in.d.io.write32(in.reg(intrMask), 1) }

// Unmask opens the vector.
func (in *Intr) Unmask() {
	in.opened.Add(1)
	in.d.io.write32(in.reg(intrMask), 0)
}

// SetMaskAssert makes the vector mask itself as it fires.
func (in *Intr) SetMaskAssert() { in.d.io.write32(in.reg(intrMaskAssert), 1) }

// CleanCredits returns all credits.
func (in *Intr) CleanCredits() {
	v := in.d.io.read32(in.reg(intrCredits)) & 0xffff
	in.d.io.write32(in.reg(intrCredits), v|CreditResetCoalesce)
}

// ReturnCredits returns n credits with flags; n is below 32768.
func (in *Intr) ReturnCredits(n int, flags uint32) {
	if flags&CreditUnmask != 0 {
		in.opened.Add(1)
	}
	in.d.io.write32(in.reg(intrCredits), uint32(n)|flags)
}

// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/vfiouser"
)

// presence is the NIC as the vfio-user server sees it; it notes on the way
// whether a guest is attached.
type presence struct {
	*ionic.NIC
	attached *atomic.Bool
	memory   *atomic.Pointer[guestmem.Space] // of the guest, nil without one
	drain    *drain
}

// Attach implements vfiouser.Attacher.
func (p presence) Attach(s *vfiouser.Session) error {
	if err := p.drain.enter(); err != nil {
		return err
	}
	if err := p.NIC.Attach(s); err != nil {
		p.drain.leave()
		return err
	}
	p.memory.Store(s.Mem())
	p.attached.Store(true)
	return nil
}

// Detach implements vfiouser.Attacher.
func (p presence) Detach(reason error) {
	p.attached.Store(false)
	p.memory.Store(nil)
	p.NIC.Detach(reason)
	p.drain.leave()
}

// drain ends a worker that was asked to end as soon as no guest uses it.
type drain struct {
	mu    sync.Mutex // guards all below
	wish  bool
	guest bool
	end   func() // ends the worker; nil before it runs
}

var errDraining = errors.New("this worker ends and takes no guest any more")

// enter lets a guest in.
func (d *drain) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wish {
		return errDraining
	}
	d.guest = true
	return nil
}

// leave says that the guest is gone.
func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guest = false
	d.check()
}

// begin asks the worker to end.
func (d *drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wish = true
	d.check()
}

// running names what ends the worker.
func (d *drain) running(end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end = end
	d.check()
}

func (d *drain) check() {
	if d.wish && !d.guest && d.end != nil {
		d.end()
	}
}

func (d *drain) wished() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wish
}

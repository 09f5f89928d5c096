// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/vfiouser"
)

// presence is the NIC as the vfio-user server sees it; it notes on the way
// whether a guest is attached.
type presence struct {
	*ionic.NIC
	attached *atomic.Bool
}

// Attach implements vfiouser.Attacher.
func (p presence) Attach(s *vfiouser.Session) error {
	if err := p.NIC.Attach(s); err != nil {
		return err
	}
	p.attached.Store(true)
	return nil
}

// Detach implements vfiouser.Attacher.
func (p presence) Detach(reason error) {
	p.attached.Store(false)
	p.NIC.Detach(reason)
}

// SPDX-License-Identifier: Apache-2.0

package ionic

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// ethTypes is how many queue types, from 0, belong to the Ethernet half.
const ethTypes = uint64(abi.QTypeTx) + 1

// doorbells is BAR2. Its methods run on the goroutine that serves the guest.
type doorbells struct {
	nic *NIC

	// A doorbell may come as two 4-byte writes: the low half is kept until the
	// high half of the same slot comes.
	low     uint32
	lowSlot uint64 // offset of the slot plus 1; 0: nothing kept

	strange atomic.Uint64
}

// ReadBAR implements [pci.Handler]: doorbells are write-only.
func (d *doorbells) ReadBAR(uint64, []byte) {}

// WriteBAR implements [pci.Handler].
func (d *doorbells) WriteBAR(off uint64, p []byte) {
	switch {
	case len(p) == 8 && off%8 == 0:
		d.lowSlot = 0
		d.ring(off, le.Uint64(p))
	case len(p) == 4 && off%8 == 0:
		d.low, d.lowSlot = le.Uint32(p), off+1
	case len(p) == 4 && off%8 == 4 && d.lowSlot == off-4+1:
		d.lowSlot = 0
		d.ring(off-4, uint64(le.Uint32(p))<<32|uint64(d.low))
	default:
		d.strange.Add(1)
	}
}

func (d *doorbells) ring(off, val uint64) {
	pid, qtype := off/abi.PageSize, off%abi.PageSize/8
	switch {
	case qtype >= ethTypes:
		if d.nic.rdma != nil && qtype <= 0xff {
			d.nic.rdma.Doorbell(uint32(pid), uint8(qtype), val)
			return
		}
	case pid == 0: // the kernel's page, where all Ethernet queues are
		d.nic.lif.Doorbell(abi.QType(qtype), abi.Doorbell(val))
		return
	}
	d.strange.Add(1)
}

// StrangeDoorbells counts writes to BAR2 that are no doorbell of any queue type
// this NIC has.
func (n *NIC) StrangeDoorbells() uint64 { return n.dbs.strange.Load() }

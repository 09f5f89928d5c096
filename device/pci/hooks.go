// SPDX-License-Identifier: Apache-2.0

package pci

import "github.com/ernic-dev/ernic/device/guestmem"

// Hooks is the device behind a function. The calls of one function come one at
// a time, from the goroutine that serves the client.
type Hooks interface {
	// Attach tells of a new client: mem reaches the memory of its guest, and
	// signal raises an MSI-X vector. signal may be used from any goroutine, does
	// not block or allocate, and does nothing for a vector that the table does
	// not have, that the guest has not enabled, or while bus mastering is off.
	Attach(mem *guestmem.Space, signal func(vector int))
	// Detach tells that the client is gone. All DMA has stopped when it returns.
	Detach()
	// Reset is a device reset, a function-level reset or the loss of a client.
	// All DMA has stopped when it returns.
	Reset()
	// BusMaster tells that COMMAND bit 2 changed. DMA is allowed only while it
	// is on; when it goes off, all DMA has stopped when the call returns.
	BusMaster(on bool)
}

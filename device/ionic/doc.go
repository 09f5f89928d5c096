// SPDX-License-Identifier: Apache-2.0

// Package ionic is the NIC: a PCI function with the register and doorbell
// protocol of the AMD Pensando ionic, driven by the unmodified Linux ionic and
// ionic_rdma drivers.
//
//	pci.Function
//	  BAR0  registers: device info, device command, interrupt control
//	  BAR2  doorbells: page = process id, offset/8 = queue type
//	    |
//	    +-- eth.LIF    commands, admin and notify queue, Ethernet queues, port
//	    +-- RDMA       behind an interface; nil switches the capability off
//	    +-- intr.Bank  interrupt control blocks, shared by both halves
//
// Register and doorbell handlers run one at a time on the goroutine that serves
// the guest. A device command executes inside its doorbell write; everything
// else that takes time happens on goroutines of the halves.
package ionic

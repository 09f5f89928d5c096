// SPDX-License-Identifier: Apache-2.0

package pci

// Offsets in the type-0 header (PCI Local Bus 3.0, 6.1).
const (
	regVendor        = 0x00
	regDevice        = 0x02
	regCommand       = 0x04
	regStatus        = 0x06
	regRevision      = 0x08
	regClass         = 0x09
	regCacheLine     = 0x0c
	regBAR0          = 0x10
	regSubVendor     = 0x2c
	regSubDevice     = 0x2e
	regCapPointer    = 0x34
	regInterruptLine = 0x3c
)

// COMMAND and STATUS bits.
const (
	cmdBusMaster = 1 << 2
	// cmdWritable holds I/O, memory and bus-master enable, parity and SERR
	// reporting, and INTx disable; clients read back what they wrote.
	cmdWritable = 1<<0 | 1<<1 | cmdBusMaster | 1<<6 | 1<<8 | 1<<10

	statusCapList = 1 << 4
	// statusErrors are the error bits, which software clears by writing one.
	statusErrors = 1<<8 | 1<<11 | 1<<12 | 1<<13 | 1<<14 | 1<<15
)

// BAR register bits.
const (
	barMem64    = 0x4
	barPrefetch = 0x8
)

// Capability ids and the places this package puts them at.
const (
	capIDPM      = 0x01
	capIDExpress = 0x10
	capIDMSIX    = 0x11

	capPM      = 0x40
	capMSIX    = 0x50
	capExpress = 0x60
)

// Power management capability (PCI PM 1.2).
const (
	pmcVersion3      = 3
	pmcsr            = 4 // register offset in the capability
	pmcsrPowerState  = 0x3
	pmcsrNoSoftReset = 1 << 3
)

// MSI-X capability (PCI Local Bus 3.0, 6.8.2).
const (
	msixControl      = 2
	msixTable        = 4
	msixPBA          = 8
	msixEnable       = 1 << 15
	msixFunctionMask = 1 << 14

	msixEntrySize  = 16
	msixMaxVectors = 2048
)

// PCI Express capability, version 2, endpoint (PCIe Base 4.0, 7.5.3).
const (
	expFlags   = 2
	expDevCap  = 4
	expDevCtl  = 8
	expDevSta  = 10
	expLnkCap  = 12
	expLnkCtl  = 16
	expLnkSta  = 18
	expDevCap2 = 36
	expDevCtl2 = 40
	expLnkCap2 = 44
	expLnkCtl2 = 48

	expVersion2      = 2 // device/port type in bits 7:4 is 0, endpoint
	devCapPayload256 = 1
	devCapExtTag     = 1 << 5
	devCapRoleErrors = 1 << 15
	devCapFLR        = 1 << 28

	devCtlFLR = 1 << 15
	// devCtlWritable: error reporting, relaxed ordering, payload size, extended
	// tag, no-snoop and read request size. Phantom functions and auxiliary power
	// are not supported, and the FLR bit always reads as zero.
	devCtlWritable = 0x000f | 1<<4 | 0x00e0 | 1<<8 | 1<<11 | 0x7000
	// devCtlDefault: relaxed ordering and no-snoop on, 512-byte read requests.
	devCtlDefault = 1<<4 | 1<<11 | 2<<12
	devStaErrors  = 0x000f

	// The link is a plausible x16 link at 16 GT/s, so that a guest does not
	// report an unknown one.
	linkSpeed16GT   = 4
	linkWidth16     = 16 << 4
	lnkCapASPMOpt   = 1 << 22
	lnkCtlWritable  = 0x0003 | 1<<3 | 1<<6 | 1<<7
	lnkStaSlotClock = 1 << 12
	// devCap2Timeouts: all completion timeout ranges, and it may be disabled.
	devCap2Timeouts   = 0x1f
	devCtl2Writable   = 0x1f
	lnkCap2SpeedsTo16 = 0x1e
	lnkCtl2Writable   = 0x000f
)

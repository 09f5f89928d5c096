// SPDX-License-Identifier: Apache-2.0

// Package pci is one emulated PCI Express function with a type-0 header: its
// configuration space, its capabilities, its memory BARs and its MSI-X vectors.
// It is what a vfio-user server serves; the device behind the BARs is given as
// [Handler]s and told about the life of the function through [Hooks].
//
// # Configuration space
//
// The space is 4096 bytes. Offsets are in bytes, fields are little-endian:
//
//	0x00 vendor       0x02 device      0x04 COMMAND (rw)   0x06 STATUS
//	0x08 revision     0x09 class, 3 B  0x0c cache line(rw) 0x0e header type 0
//	0x10 BAR0 .. 0x24 BAR5, address bits above the BAR size are writable
//	0x2c subvendor    0x2e subdevice   0x30 ROM, always 0  0x34 first capability
//	0x3c line (rw)    0x3d pin, 0: no INTx
//	0x40 power management, 8 bytes       (if Config.PM)
//	0x50 MSI-X, 12 bytes                 (always)
//	0x60 PCI Express endpoint, 60 bytes  (if Config.Express)
//	0x100..0xfff zero: no extended capability
//
// Every bit has a write rule: read-only, read-write or write-one-to-clear. A
// write may have any size and alignment; it is applied byte by byte, so bits
// that are not writable keep their value and no access is ever refused inside
// the space. (A client such as cloud-hypervisor cannot take an error here.) A
// write of all ones to a BAR therefore reads back the size mask, which is how
// clients that do not ask for region sizes find them.
//
// # BARs
//
// Reads of a BAR without a handler answer zero and writes to it are dropped.
// The MSI-X table and the pending-bit array belong to the client, which never
// forwards table accesses and forwards reads of the array: both ranges read as
// zero, and the handler of that BAR never sees them. No region can be mapped by
// the client: one mappable region would turn posted writes off for the whole
// function in QEMU.
//
// # Resets
//
// A function-level reset is a write of DEVCTL bit 15; a device reset is a
// vfio-user command. Both put every register back to its power-on value, tell
// the device that bus mastering went off if it was on, and reset the device.
package pci

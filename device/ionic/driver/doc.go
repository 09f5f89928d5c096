// SPDX-License-Identifier: Apache-2.0

// Package driver is the guest's side of an ionic network controller: the base
// and Ethernet half of Linux's ionic.ko, in Go, on a vfio-user client. It brings
// up the function, its LIF, admin and notify queues and Ethernet queue pairs the
// way the kernel driver does, in the kernel driver's order, and it reads what
// the device writes by the kernel driver's rules.
//
// It is a judge as much as a driver: whatever would hang, crash or wedge the
// kernel driver (a completion index that is out of order, an interrupt on a
// vector that was not opened, an event that is not newer than the last, a write
// to memory that the driver has freed) ends the driver with an error that names
// it, see [Device.Err]. The layouts are this package's own reading of ionic_if.h
// and share no code with the device.
//
// # Memory
//
// The driver owns the guest's memory ([Memory]). Freed memory is filled with a
// pattern that is checked when it is used again, to find late writes.
//
// # Interrupts
//
// Each vector has a goroutine that waits on its eventfd and calls the handler,
// as an interrupt handler would be. A handler that finished returns credits and
// opens the vector again.
//
// # RDMA
//
// Package verbs, beside this one, is the RDMA half.
package driver

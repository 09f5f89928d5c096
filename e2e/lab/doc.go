// SPDX-License-Identifier: Apache-2.0

// Package lab runs real guests against real programs and leaves nothing behind.
//
//	l, err := lab.New(ctx, lab.Options{Name: "ping", Taps: 2})
//	defer l.Close()
//	w, err := l.Start(lab.Program{Name: "worker1", Path: bin, Args: []string{"--socket", l.Socket("worker1"), ...}})
//	err = l.WaitSocket(ctx, "worker1")
//	guests, err := l.Boot(ctx, guest.Config{Name: "g1", Devices: ...}, guest.Config{Name: "g2", ...})
//	r, err := guests[0].Run(ctx, guest.Shell("ping -c 1 10.0.0.2"))
//
// What a lab makes goes away even when nobody can clean up:
//
//   - Programs and QEMU are children with a parent-death signal (package child).
//   - The network name space has no name. The bridge and the TAPs in it end with
//     the last process inside.
//   - QEMU's mounts are in a mount name space of its own.
//   - The run directory carries a lock. The next lab removes directories whose
//     owner is gone.
//
// Interrupts close every open lab of the process before they end it.
package lab

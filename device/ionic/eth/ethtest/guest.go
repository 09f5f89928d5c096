// SPDX-License-Identifier: Apache-2.0

// Package ethtest is a guest for tests of the Ethernet half: its memory, its
// interrupt controller and a driver that follows the Linux ionic driver step by
// step, without a hypervisor or a socket in between.
package ethtest

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// Base is the bus address of the guest's memory, above 4 GiB as it is in a
// guest with some memory.
const Base = 0x1_2340_0000

// Patience is how long a guest waits for what must come. It is long because tests
// share busy machines; nothing waits for it to pass.
const Patience = 30 * time.Second

// Guest is the memory and the interrupt controller of a guest.
type Guest struct {
	Mem *guestmem.Space
	TB  testing.TB // where failures go; a fuzz target changes it for each input
	ram []byte
	top uint64 // first unused byte

	fired [abi.MaxVectors]atomic.Int64
	wake  [abi.MaxVectors]chan struct{}
}

// NewGuest returns a guest with size bytes of memory, zeroed.
func NewGuest(tb testing.TB, size int) *Guest {
	tb.Helper()
	g := &Guest{Mem: guestmem.New(guestmem.Options{}), TB: tb}
	fd, err := unix.MemfdCreate("ethtest", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		tb.Fatal(err)
	}
	if g.ram, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		tb.Fatal(err)
	}
	if err := g.Mem.MapFile(Base, uint64(size), fd, 0, guestmem.Read|guestmem.Write); err != nil {
		tb.Fatal(err)
	}
	for i := range g.wake {
		g.wake[i] = make(chan struct{}, 1)
	}
	tb.Cleanup(func() {
		g.Mem.Close()
		_ = unix.Munmap(g.ram)
	})
	return g
}

// Alloc returns the bus address of n zeroed bytes, page aligned.
func (g *Guest) Alloc(n int) uint64 {
	at := g.top
	g.top += (uint64(n) + abi.PageSize - 1) &^ (abi.PageSize - 1)
	if g.top > uint64(len(g.ram)) {
		g.TB.Fatalf("the guest is out of memory: %d bytes wanted", n)
	}
	return Base + at
}

// Bytes returns n bytes of guest memory.
func (g *Guest) Bytes(addr uint64, n int) []byte {
	return g.ram[addr-Base:][:n:n]
}

// RAM returns all of the guest's memory.
func (g *Guest) RAM() []byte { return g.ram }

// Load returns the word at addr as another processor stored it.
func (g *Guest) Load(addr uint64) uint64 {
	v, err := g.Mem.LoadUint64(addr)
	if err != nil {
		g.TB.Fatal(err)
	}
	return v
}

// Signal is the interrupt controller's input.
func (g *Guest) Signal(vec int) {
	g.fired[vec].Add(1)
	select {
	case g.wake[vec] <- struct{}{}:
	default:
	}
}

// Fired returns how often vector vec was raised.
func (g *Guest) Fired(vec int) int64 { return g.fired[vec].Load() }

// Await waits until done, looking again after each interrupt of vector vec,
// which it first acknowledges.
func (g *Guest) Await(vec int, what string, acknowledge func(), done func() bool) {
	g.TB.Helper()
	limit := time.After(Patience)
	for !done() {
		select {
		case <-g.wake[vec]:
			acknowledge()
		case <-limit:
			g.TB.Fatalf("no %s within %v", what, Patience)
		}
	}
}

// Rewind gives all memory back, zeroed. The device must have been reset.
func (g *Guest) Rewind() {
	clear(g.ram[:g.top])
	g.top = 0
}

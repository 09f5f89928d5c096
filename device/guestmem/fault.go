// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// guardedCopy copies src to dst. guest names which of the two is guest memory.
// It reports false if the guest side faulted; some bytes may be copied then.
func guardedCopy(dst, src, guest []byte) (ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			debug.SetPanicOnFault(old)
			repanicUnless(r, guest)
			ok = false
		}
	}()
	copy(dst, src)
	debug.SetPanicOnFault(old)
	return true
}

// repanicUnless re-raises r if it is anything but a fault inside guest.
func repanicUnless(r any, guest []byte) {
	if !isFaultIn(r, guest) {
		panic(r)
	}
}

// isFaultIn reports whether the panic value r is a memory fault at an address
// inside guest.
func isFaultIn(r any, guest []byte) bool {
	if _, ok := r.(runtime.Error); !ok || len(guest) == 0 {
		return false
	}
	f, ok := r.(interface{ Addr() uintptr })
	if !ok {
		return false
	}
	// A fault address may be rounded down to its page.
	lo := uintptr(unsafe.Pointer(&guest[0]))
	hi := lo + uintptr(len(guest))
	lo &^= pageSize - 1
	return f.Addr() >= lo && f.Addr() < hi
}

// joined returns a and b as one slice if b starts in memory where a ends.
func joined(a, b []byte) ([]byte, bool) {
	p := unsafe.Pointer(&a[0])
	if unsafe.Add(p, len(a)) != unsafe.Pointer(&b[0]) {
		return nil, false
	}
	return unsafe.Slice((*byte)(p), len(a)+len(b)), true
}

type atomicOp uint8

const (
	load32 atomicOp = iota
	load64
	store32
	store64
	cas64
	add64
)

// guardedAtomic performs op on the aligned guest word at p and returns the
// value read, or for store the value written.
func guardedAtomic(op atomicOp, p unsafe.Pointer, a, b uint64) (v uint64, ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			debug.SetPanicOnFault(old)
			repanicUnless(r, unsafe.Slice((*byte)(p), 8))
			v, ok = 0, false
		}
	}()
	switch op {
	case load32:
		v = uint64(atomic.LoadUint32((*uint32)(p)))
	case load64:
		v = atomic.LoadUint64((*uint64)(p))
	case store32:
		v = a
		atomic.StoreUint32((*uint32)(p), uint32(a))
	case store64:
		v = a
		atomic.StoreUint64((*uint64)(p), a)
	case cas64:
		for {
			if v = atomic.LoadUint64((*uint64)(p)); v != a {
				break
			}
			if atomic.CompareAndSwapUint64((*uint64)(p), a, b) {
				break
			}
		}
	case add64:
		v = atomic.AddUint64((*uint64)(p), a) - a
	}
	debug.SetPanicOnFault(old)
	return v, true
}

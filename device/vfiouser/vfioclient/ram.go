// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Window is a range of bus addresses that shows a part of the guest's memory.
// All fields are bytes and multiples of the page size.
type Window struct {
	IOVA   uint64
	Size   uint64
	Offset uint64 // in the memory file
}

// RAM is the memory of the guest: one sealed memfd that the server maps too.
// Its methods may be used from any goroutine; an address outside all windows,
// or a range over the end of one, is a mistake of the caller and panics, as it
// would fault in a guest.
type RAM struct {
	fd      int
	mem     []byte
	windows []Window
}

const pageSize = 4096

// newRAM makes a memfd as memory-backend-memfd,share=on does.
func newRAM(windows []Window) (*RAM, error) {
	var size uint64
	for _, w := range windows {
		if w.Size == 0 || (w.IOVA|w.Size|w.Offset)%pageSize != 0 {
			return nil, fmt.Errorf("vfioclient: memory window %#x of %#x bytes is empty or not page aligned", w.IOVA, w.Size)
		}
		size = max(size, w.Offset+w.Size)
	}
	if size == 0 {
		return nil, fmt.Errorf("vfioclient: no memory windows")
	}
	fd, err := unix.MemfdCreate("vfioclient-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("vfioclient: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("vfioclient: size the guest's memory: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("vfioclient: seal the guest's memory: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("vfioclient: map the guest's memory: %w", err)
	}
	return &RAM{fd: fd, mem: mem, windows: windows}, nil
}

func (r *RAM) close() {
	unix.Close(r.fd)
	if err := unix.Munmap(r.mem); err != nil {
		panic(err)
	}
}

// Windows returns the bus address ranges.
func (r *RAM) Windows() []Window { return r.windows }

// lookup returns the n bytes at iova, or nil.
func (r *RAM) lookup(iova, n uint64) []byte {
	for _, w := range r.windows {
		if iova >= w.IOVA && iova-w.IOVA <= w.Size && n <= w.Size-(iova-w.IOVA) {
			at := w.Offset + iova - w.IOVA
			return r.mem[at : at+n : at+n]
		}
	}
	return nil
}

// Bytes returns the n bytes of guest memory at bus address iova.
func (r *RAM) Bytes(iova, n uint64) []byte {
	b := r.lookup(iova, n)
	if b == nil {
		panic(fmt.Sprintf("vfioclient: %d bytes at %#x are not in the guest's memory", n, iova))
	}
	return b
}

func (r *RAM) word(iova, n uint64) unsafe.Pointer {
	if iova%n != 0 {
		panic(fmt.Sprintf("vfioclient: atomic access of %d bytes at %#x is not aligned", n, iova))
	}
	return unsafe.Pointer(&r.Bytes(iova, n)[0])
}

// LoadUint32 reads a little-endian word with acquire order.
func (r *RAM) LoadUint32(iova uint64) uint32 { return atomic.LoadUint32((*uint32)(r.word(iova, 4))) }

// LoadUint64 reads a little-endian double word with acquire order.
func (r *RAM) LoadUint64(iova uint64) uint64 { return atomic.LoadUint64((*uint64)(r.word(iova, 8))) }

// StoreUint64 writes a little-endian double word with release order.
func (r *RAM) StoreUint64(iova, v uint64) { atomic.StoreUint64((*uint64)(r.word(iova, 8)), v) }

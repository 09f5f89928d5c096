// SPDX-License-Identifier: Apache-2.0

// Package testram is guest memory for tests: a file on tmpfs mapped into a
// guestmem.Space, with an allocator and accessors that fail the test.
package testram

import (
	"encoding/binary"
	"os"
	"sync"
	"testing"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// Base is the guest address of the first byte. Nothing is mapped below it.
const Base = 0x1_0000_0000

// Page is the guest page size.
const Page = 4096

// RAM is the memory of a guest. It is safe for concurrent use.
type RAM struct {
	T     testing.TB
	Space *guestmem.Space
	Size  uint64

	mu   sync.Mutex // guards next and free
	next uint64
	free map[uint64][]uint64 // by size
}

// New returns zeroed memory of size bytes.
func New(t testing.TB, size uint64) *RAM {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "testram")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	s := guestmem.New(guestmem.Options{})
	// Two windows of one file: accesses cross their border, as they do where
	// memory slots of a hypervisor meet.
	half := size / 2 &^ (Page - 1)
	if err := s.MapFile(Base, half, int(f.Fd()), 0, guestmem.Read|guestmem.Write); err != nil {
		t.Fatal(err)
	}
	if err := s.MapFile(Base+half, size-half, int(f.Fd()), half, guestmem.Read|guestmem.Write); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &RAM{T: t, Space: s, Size: size, next: Base, free: make(map[uint64][]uint64)}
}

// Alloc returns the address of n zero bytes, page aligned, with an unused page
// behind them.
func (r *RAM) Alloc(n uint64) uint64 {
	n = (n+Page-1)&^(Page-1) + Page
	r.mu.Lock()
	if l := r.free[n]; len(l) > 0 {
		at := l[len(l)-1]
		r.free[n] = l[:len(l)-1]
		r.mu.Unlock()
		r.Write(at, make([]byte, n))
		return at
	}
	at := r.next
	r.next += n
	r.mu.Unlock()
	if r.next > Base+r.Size {
		panic("testram: out of guest memory")
	}
	return at
}

// Free gives memory of Alloc(n) back.
func (r *RAM) Free(at, n uint64) {
	n = (n+Page-1)&^(Page-1) + Page
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free[n] = append(r.free[n], at)
}

// Write copies b to at.
func (r *RAM) Write(at uint64, b []byte) {
	if err := r.Space.WriteAt(b, at); err != nil {
		panic(err)
	}
}

// Read returns n bytes from at.
func (r *RAM) Read(at uint64, n int) []byte {
	b := make([]byte, n)
	r.ReadInto(b, at)
	return b
}

// ReadInto copies len(b) bytes from at.
func (r *RAM) ReadInto(b []byte, at uint64) {
	if err := r.Space.ReadAt(b, at); err != nil {
		panic(err)
	}
}

// Load32 reads an aligned little-endian word with acquire order.
func (r *RAM) Load32(at uint64) uint32 {
	v, err := r.Space.LoadUint32(at)
	if err != nil {
		panic(err)
	}
	return v
}

// Store64 writes an aligned little-endian word.
func (r *RAM) Store64(at, v uint64) {
	if err := r.Space.StoreUint64(at, v); err != nil {
		panic(err)
	}
}

// Load64 reads an aligned little-endian word.
func (r *RAM) Load64(at uint64) uint64 {
	v, err := r.Space.LoadUint64(at)
	if err != nil {
		panic(err)
	}
	return v
}

// Table writes a page table and returns its address.
func (r *RAM) Table(pages ...uint64) uint64 {
	b := make([]byte, 8*len(pages))
	for i, p := range pages {
		binary.LittleEndian.PutUint64(b[8*i:], p)
	}
	at := r.Alloc(uint64(len(b)))
	r.Write(at, b)
	return at
}

// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Vector is the guest's end of one interrupt vector: a non-blocking eventfd.
type Vector struct {
	f *os.File
}

func newVector() (*Vector, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("vfioclient: eventfd: %w", err)
	}
	return &Vector{os.NewFile(uintptr(fd), "vfioclient-vector")}, nil
}

// Wait waits until the vector has fired and returns how often it did since the
// last Wait. A deadline that is over makes it return 0 and
// [os.ErrDeadlineExceeded]; a zero deadline waits for ever.
func (v *Vector) Wait(deadline time.Time) (uint64, error) {
	if err := v.f.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := v.f.Read(b[:]); err != nil {
		return 0, err
	}
	return le.Uint64(b[:]), nil
}

// Fired returns how often the vector fired since the last Wait or Fired,
// without waiting.
func (v *Vector) Fired() uint64 {
	var b [8]byte
	var n int
	err := v.control(func(fd int) { n, _ = unix.Read(fd, b[:]) })
	if err != nil || n != len(b) {
		return 0
	}
	return le.Uint64(b[:])
}

// control calls f with the descriptor and leaves its blocking mode alone.
func (v *Vector) control(f func(fd int)) error {
	c, err := v.f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(func(fd uintptr) { f(int(fd)) })
}

func (v *Vector) close() { v.f.Close() }

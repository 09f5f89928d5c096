// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vector is one interrupt of a session. It stays valid, and silent, after the
// session has ended.
type Vector struct {
	ev atomic.Pointer[eventFD]
	m  *counters
}

// eventFD is an eventfd received from the client.
type eventFD struct {
	fd       int
	nonblock bool         // the open file has O_NONBLOCK
	users    atomic.Int64 // signals under way
	_        [64 - 24]byte
}

// one is what a signal adds to the eventfd's counter.
var one uint64 = 1

// Signal raises the interrupt. It never blocks, never allocates, and may be
// called from any goroutine. It returns ENOENT if the client has not assigned
// an eventfd, which is normal while the guest's driver is not ready.
func (v *Vector) Signal() error {
	if v == nil {
		return syscall.EINVAL
	}
	for {
		e := v.ev.Load()
		if e == nil {
			v.m.irqsDropped.Add(1)
			return syscall.ENOENT
		}
		if !v.enter(e) {
			continue
		}
		errno := e.write()
		e.users.Add(-1)
		switch errno {
		case 0:
			v.m.irqsSignalled.Add(1)
			return nil
		case unix.EAGAIN: // the counter is at its maximum: as pending as can be
			v.m.irqsSaturated.Add(1)
			return nil
		}
		v.m.irqErrors.Add(1)
		return errno
	}
}

// enter keeps e from being closed until users is counted down. It fails if e
// is no longer the vector's. The closer swaps ev and then waits for users; we
// count and then look at ev again. One of the two sees the other, so the
// descriptor number cannot be closed, and perhaps reused, while we write to it.
func (v *Vector) enter(e *eventFD) bool {
	e.users.Add(1)
	if v.ev.Load() == e {
		return true
	}
	e.users.Add(-1)
	return false
}

// Assigned reports whether the client has given the interrupt an eventfd.
func (v *Vector) Assigned() bool { return v != nil && v.ev.Load() != nil }

func (e *eventFD) write() syscall.Errno {
	p := uintptr(unsafe.Pointer(&one))
	if e.nonblock {
		for {
			if _, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(e.fd), p, 8); errno != unix.EINTR {
				return errno
			}
		}
	}
	// The open file is the client's, so its flags are not ours to change. Look
	// before writing; a client that fills the counter between the two blocks
	// this goroutine until close drains the counter.
	if !ready(e.fd, unix.POLLOUT) {
		return unix.EAGAIN
	}
	_, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(e.fd), p, 8)
	return errno
}

// assign makes e, or nothing if nil, the eventfd of v and closes the old one.
func (v *Vector) assign(e *eventFD) {
	if old := v.ev.Swap(e); old != nil {
		old.close()
	}
}

// close waits for signals under way and closes the descriptor.
func (e *eventFD) close() {
	for try := 0; e.users.Load() != 0; try++ {
		if try > 1000 && !e.nonblock && ready(e.fd, unix.POLLIN) {
			var b [8]byte
			_, _ = unix.Read(e.fd, b[:]) // frees a writer stuck on a full counter
		}
		runtime.Gosched()
	}
	unix.Close(e.fd)
}

// ready polls fd without waiting. A raw system call keeps p on the stack.
func ready(fd int, events int16) bool {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n == 1 && p.Revents&events != 0
}

// newEventFD checks that fd is an eventfd and takes it over. On failure the
// descriptor stays the caller's.
func newEventFD(fd int) (*eventFD, error) {
	if !isEventFD(fd) {
		return nil, syscall.EINVAL
	}
	fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, syscall.EINVAL
	}
	return &eventFD{fd: fd, nonblock: fl&unix.O_NONBLOCK != 0}, nil
}

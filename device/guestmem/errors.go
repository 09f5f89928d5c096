// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"syscall"
)

// Reason says why an operation on guest memory failed. It is itself an error,
// so errors.Is(err, guestmem.NotMapped) works on what this package returns.
type Reason uint8

// Reasons. The errno in each comment is what Error unwraps to.
const (
	NotMapped     Reason = iota + 1 // some byte lies in no window (EFAULT)
	NotPermitted                    // a window lacks the asked right (EPERM)
	MessageOnly                     // a window has no file, only DMA messages reach it (EREMOTEIO)
	Fault                           // the backing file has no page there, for example truncated (EFAULT)
	Wraps                           // address plus length passes 2^64 (EINVAL)
	Misaligned                      // address or size not aligned as the operation needs (EINVAL)
	OutOfView                       // offset or length outside the View (EINVAL)
	Empty                           // a window of size 0 (EINVAL)
	Overlaps                        // the new window overlaps another one (EEXIST)
	Splits                          // the range to unmap cuts through a window (EINVAL)
	InUse                           // pins did not drain in time (EBUSY)
	TooLarge                        // the window is larger than the limit (ENOSPC)
	TooMany                         // more windows than the limit (EINVAL)
	NoRoom                          // limit of mapped files or bytes reached (ENOSPC)
	BadFile                         // the descriptor is no mappable regular file (EINVAL)
	BadFilesystem                   // the file lives on a file system that is not allowed (EINVAL)
	BeyondFile                      // offset plus size passes the end of the file (EINVAL)
	MapFailed                       // mmap failed (its errno)
	Closed                          // the Space is closed (ENODEV)
)

var reasons = [...]struct {
	text  string
	errno syscall.Errno
}{
	NotMapped:     {"address not mapped by the client", syscall.EFAULT},
	NotPermitted:  {"access right not granted by the client", syscall.EPERM},
	MessageOnly:   {"window has no file, only DMA messages reach it", syscall.EREMOTEIO},
	Fault:         {"memory fault, the client's file has no page there", syscall.EFAULT},
	Wraps:         {"range passes the end of the 64-bit address space", syscall.EINVAL},
	Misaligned:    {"address or size not aligned", syscall.EINVAL},
	OutOfView:     {"range outside the view", syscall.EINVAL},
	Empty:         {"size is zero", syscall.EINVAL},
	Overlaps:      {"range overlaps another window", syscall.EEXIST},
	Splits:        {"range cuts through a window", syscall.EINVAL},
	InUse:         {"window still in use by the device", syscall.EBUSY},
	TooLarge:      {"window larger than the limit", syscall.ENOSPC},
	TooMany:       {"too many windows", syscall.EINVAL},
	NoRoom:        {"limit of mapped files reached", syscall.ENOSPC},
	BadFile:       {"descriptor is not a mappable regular file", syscall.EINVAL},
	BadFilesystem: {"file system not allowed for guest memory", syscall.EINVAL},
	BeyondFile:    {"range passes the end of the client's file", syscall.EINVAL},
	MapFailed:     {"mmap failed", syscall.EINVAL},
	Closed:        {"guest memory is closed", syscall.ENODEV},
}

// Error returns the reason in words.
func (r Reason) Error() string {
	if int(r) < len(reasons) && reasons[r].text != "" {
		return reasons[r].text
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Errno returns the Linux error number that stands for r.
func (r Reason) Errno() syscall.Errno {
	if int(r) < len(reasons) && reasons[r].errno != 0 {
		return reasons[r].errno
	}
	return syscall.EIO
}

// Error is the error of every operation of this package.
type Error struct {
	Op     string // "read", "write", "map", "unmap", ...
	IOVA   uint64 // first guest address of the operation, or where it faulted
	Len    uint64 // bytes
	Reason Reason
	Err    error // cause from the operating system, or nil
}

// Error names the operation, the guest range and the reason.
func (e *Error) Error() string {
	s := fmt.Sprintf("guest memory: %s of %d bytes at iova %#x: %v", e.Op, e.Len, e.IOVA, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is work for the Reason and errors.As for syscall.Errno.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Reason, e.Err}
	}
	return []error{e.Reason, e.Reason.Errno()}
}

func fail(op string, iova, n uint64, r Reason) error {
	return &Error{Op: op, IOVA: iova, Len: n, Reason: r}
}

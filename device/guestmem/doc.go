// SPDX-License-Identifier: Apache-2.0

// Package guestmem is the one door to guest memory.
//
// A Space translates I/O virtual addresses (IOVA, the addresses a guest puts
// into descriptors) to host memory. It is filled by the vfio-user server from
// DMA_MAP messages and read by every goroutine of the device:
//
//	IOVA space          Space                         host mappings
//	+-----------+   +-----------+   +--------+   +----------------------+
//	| window    |-->| two-level |-->| window |-->| file (st_dev, st_ino)|
//	+-----------+   | sorted    |   | pins   |   | mapped once, whole   |
//	| (hole)    |   | table     |   +--------+   +----------------------+
//	+-----------+   | immutable |   | window |-->  (message window: none)
//	| window    |-->|           |-->| pins   |
//	+-----------+   +-----------+   +--------+
//
// The table is immutable and published through an atomic pointer, so a lookup
// takes no lock. A reader finds its window, takes a pin on it, re-checks that
// the window is still alive and uses the memory. Unmap publishes a table
// without the window, marks the window dead and waits for its pins: when it
// returns, nobody holds a slice of that memory any more. A pin of one window
// never waits for anything, so pins nest safely.
//
// A window refers to a range of a whole-file mapping. Hypervisors unmap and
// remap the same file hundreds of times while firmware runs; the mapping is
// kept for a grace period after its last window went away, so that such a
// storm costs no page faults.
//
// # Trust
//
// The guest and the process that gave us the file are hostile. Range
// arithmetic is 64-bit and checked here. The access rights of a window are
// enforced in software, because the file is mapped with all rights its
// descriptor allows. The file can be truncated under the mapping; every
// accessor turns the resulting SIGBUS into an *Error. Only memfd, tmpfs and
// hugetlbfs files are accepted unless Options.AnyFilesystem says otherwise: a
// page fault on a file system served by user space can block for ever, and a
// thread stuck in a page fault holds up the garbage collector and with it the
// process. userfaultfd on a memfd cannot be told apart, so a hypervisor can
// always stall the process that serves it; run one process per trust domain.
//
// # Memory order
//
// Load is an acquire and Store a release in the sense of the device's own
// goroutines and of guest CPUs: "WriteAt(body); StoreUint32(valid)" is seen in
// that order by the guest. Values are in host order; hosts are little-endian.
package guestmem

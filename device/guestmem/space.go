// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// pageSize is the granule of windows (vfio-user capability pgsizes, default).
const pageSize = 4096

// Access is a set of rights on guest memory.
type Access uint8

// Rights, with the values of the DMA_MAP flags.
const (
	Read  Access = 1
	Write Access = 2
)

// Options configures a Space. Zero fields take the default named.
type Options struct {
	MaxWindows    int           // windows at a time; default 65535
	MaxWindow     uint64        // bytes of one window; default 8 TiB
	MaxFiles      int           // files mapped at a time; default 1024
	MaxFileBytes  uint64        // bytes of all mapped files; default 8 TiB
	Grace         time.Duration // how long an unused file stays mapped; default 1.5 s, negative: not at all
	DrainTimeout  time.Duration // how long Unmap waits for pins; default 4 s
	AnyFilesystem bool          // accept files outside tmpfs, memfd and hugetlbfs
}

func (o *Options) setDefaults() {
	if o.MaxWindows <= 0 {
		o.MaxWindows = 65535
	}
	if o.MaxWindow == 0 {
		o.MaxWindow = 8 << 40
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 1024
	}
	if o.MaxFileBytes == 0 {
		o.MaxFileBytes = 8 << 40
	}
	if o.Grace == 0 {
		o.Grace = 1500 * time.Millisecond
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 4 * time.Second
	}
}

// Space maps IOVAs to host memory. All methods are safe for concurrent use.
type Space struct {
	opts  Options
	table atomic.Pointer[table] // never nil
	stats counters

	mu       sync.Mutex // guards all below and serialises changes of table
	files    map[fileKey]*file
	mapped   uint64 // bytes of all mappings, also of those no longer in files
	mappings int
	closed   bool
}

// New returns an empty Space.
func New(o Options) *Space {
	o.setDefaults()
	s := &Space{opts: o, files: make(map[fileKey]*file)}
	s.table.Store(&table{})
	return s
}

// Window describes one mapped range.
type Window struct {
	IOVA, Size uint64
	Access     Access // rights granted
	Message    bool   // reachable by DMA messages only
}

// MapFile adds the window [iova, iova+size) backed by the file fd from offset.
// iova, size and offset are multiples of 4096. fd stays the caller's; nothing
// of it is kept. Mapping exactly the same window of the same file again
// succeeds and changes nothing. The granted rights are acc without Write if
// the descriptor or a seal forbids writing. Errors are *Error; see Reason for
// the errno of each (vfio-user DMA_MAP).
func (s *Space) MapFile(iova, size uint64, fd int, offset uint64, acc Access) error {
	if err := s.checkWindow(iova, size); err != nil {
		return err
	}
	if offset%pageSize != 0 {
		return fail("map", iova, size, Misaligned)
	}
	if offset > math.MaxUint64-size {
		return fail("map", iova, size, BeyondFile)
	}
	fi, r, err := s.inspect(fd)
	if r != 0 {
		return &Error{Op: "map", IOVA: iova, Len: size, Reason: r, Err: err}
	}
	if offset+size > fi.size {
		return fail("map", iova, size, BeyondFile)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table.Load()
	same, err := s.admit(t, iova, size)
	if err != nil {
		if same != nil && same.file != nil && same.offset == offset && same.asked == acc &&
			same.file.key.dev == fi.key.dev && same.file.key.ino == fi.key.ino {
			return nil
		}
		return err
	}
	f, r, err := s.mapping(fd, fi, offset+size)
	if r != 0 {
		return &Error{Op: "map", IOVA: iova, Len: size, Reason: r, Err: err}
	}
	w := &window{
		first: iova, last: iova + size - 1,
		base: unsafe.Add(f.base, offset), file: f, offset: offset,
		acc: acc, asked: acc,
	}
	if !f.key.writable {
		w.acc &^= Write
	}
	w.initPins()
	s.hold(f)
	s.table.Store(t.insert(w))
	s.stats.maps.Add(1)
	return nil
}

// MapMessage adds the window [iova, iova+size) that has no file: only DMA
// messages to the client reach it. iova and size are multiples of 4096.
func (s *Space) MapMessage(iova, size uint64, acc Access) error {
	if err := s.checkWindow(iova, size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table.Load()
	same, err := s.admit(t, iova, size)
	if err != nil {
		if same != nil && same.file == nil && same.asked == acc {
			return nil
		}
		return err
	}
	w := &window{first: iova, last: iova + size - 1, acc: acc, asked: acc}
	w.initPins()
	s.table.Store(t.insert(w))
	s.stats.maps.Add(1)
	return nil
}

func (s *Space) checkWindow(iova, size uint64) error {
	switch {
	case size == 0:
		return fail("map", iova, size, Empty)
	case size-1 > math.MaxUint64-iova:
		return fail("map", iova, size, Wraps)
	case size > s.opts.MaxWindow:
		return fail("map", iova, size, TooLarge)
	case iova%pageSize != 0 || size%pageSize != 0:
		return fail("map", iova, size, Misaligned)
	}
	return nil
}

// admit checks that a new window has room. If a window with the same bounds
// exists it is returned beside the error. Caller holds s.mu.
func (s *Space) admit(t *table, iova, size uint64) (same *window, err error) {
	if s.closed {
		return nil, fail("map", iova, size, Closed)
	}
	last := iova + size - 1
	t.overlapping(iova, last, func(w *window) bool {
		if w.first == iova && w.last == last {
			same = w
		}
		err = fail("map", iova, size, Overlaps)
		return false
	})
	if err == nil && t.n >= s.opts.MaxWindows {
		err = fail("map", iova, size, TooMany)
	}
	return same, err
}

// Unmap removes every window that lies wholly inside [iova, iova+size), which
// may end exactly at 2^64. Finding none is no error; a window that crosses a
// bound makes it fail with Splits and change nothing (the matching rules of
// the kernel's VFIO type 1 v2 IOMMU). It returns when nobody holds a pin on a
// removed window; if that takes longer than Options.DrainTimeout it returns
// InUse, with the windows removed but their memory kept mapped until the last
// pin is gone.
func (s *Space) Unmap(iova, size uint64) error {
	last, err := lastOf("unmap", iova, size)
	if err != nil {
		return err
	}
	s.mu.Lock()
	nt, gone, crossing := s.table.Load().remove(iova, last)
	if crossing {
		s.mu.Unlock()
		return fail("unmap", iova, size, Splits)
	}
	s.table.Store(nt)
	s.mu.Unlock()
	if !s.retire(gone) {
		return fail("unmap", iova, size, InUse)
	}
	return nil
}

// UnmapAll removes all windows, waits for their pins like Unmap, and unmaps
// the files without a grace period.
func (s *Space) UnmapAll() {
	s.mu.Lock()
	_, gone, _ := s.table.Load().remove(0, math.MaxUint64)
	s.table.Store(&table{})
	s.mu.Unlock()
	s.retire(gone)
	s.mu.Lock()
	s.dropIdle()
	s.mu.Unlock()
}

// Close empties the Space for good: later maps fail with Closed.
func (s *Space) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.UnmapAll()
}

// retire waits for the pins of windows that left the table and lets go of
// their files. It reports whether all pins were gone in time.
func (s *Space) retire(gone []*window) bool {
	if len(gone) == 0 {
		return true
	}
	wake := make(chan struct{}, 1)
	for _, w := range gone {
		w.wake = wake
		w.dead.Store(true)
	}
	s.stats.unmaps.Add(uint64(len(gone)))
	busy := drain(gone, wake, s.opts.DrainTimeout)
	s.letGo(gone, busy)
	if len(busy) == 0 {
		return true
	}
	s.stats.drainTimeouts.Add(1)
	go func() {
		drain(busy, wake, 0)
		s.letGo(busy, nil)
	}()
	return false
}

// letGo releases the files of the windows in gone that are not in busy.
func (s *Space) letGo(gone, busy []*window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range gone {
		if len(busy) > 0 && busy[0] == w { // busy is a subsequence of gone
			busy = busy[1:]
			continue
		}
		if w.file != nil {
			s.release(w.file)
		}
	}
}

// Inside returns the windows that Unmap(iova, size) would remove, or the error
// it would return.
func (s *Space) Inside(iova, size uint64) ([]Window, error) {
	last, err := lastOf("unmap", iova, size)
	if err != nil {
		return nil, err
	}
	var ws []Window
	crossing := false
	s.table.Load().overlapping(iova, last, func(w *window) bool {
		if w.first < iova || w.last > last {
			crossing = true
			return false
		}
		ws = append(ws, w.describe())
		return true
	})
	if crossing {
		return nil, fail("unmap", iova, size, Splits)
	}
	return ws, nil
}

// Windows returns all windows in order of address.
func (s *Space) Windows() []Window {
	t := s.table.Load()
	ws := make([]Window, 0, t.n)
	t.overlapping(0, math.MaxUint64, func(w *window) bool {
		ws = append(ws, w.describe())
		return true
	})
	return ws
}

func (w *window) describe() Window {
	return Window{IOVA: w.first, Size: w.size(), Access: w.acc, Message: w.base == nil}
}

// lastOf returns the last address of a range that is not empty and does not
// pass 2^64.
func lastOf(op string, iova, n uint64) (uint64, error) {
	if n == 0 {
		return 0, fail(op, iova, n, Empty)
	}
	if n-1 > math.MaxUint64-iova {
		return 0, fail(op, iova, n, Wraps)
	}
	return iova + n - 1, nil
}

// SPDX-License-Identifier: Apache-2.0

package guestmem

// enter finds the window of iova and pins it. It returns nil if none is there.
func (s *Space) enter(iova uint64) (*window, *pinShard) {
	for {
		w := s.table.Load().find(iova)
		if w == nil {
			return nil, nil
		}
		if p := w.pin(iova); p != nil {
			return w, p
		}
		// The window died between lookup and pin. A newer table, without it,
		// was published before it died; look there.
	}
}

// allowed checks that w can serve acc through a pointer.
func (w *window) allowed(op string, iova, n uint64, acc Access) error {
	if acc&^w.acc != 0 {
		return fail(op, iova, n, NotPermitted)
	}
	if w.base == nil {
		return fail(op, iova, n, MessageOnly)
	}
	return nil
}

// ReadAt copies len(p) bytes of guest memory at iova into p. The range may
// span windows. Either all windows are readable or nothing is copied.
func (s *Space) ReadAt(p []byte, iova uint64) error {
	return s.transfer("read", p, iova, Read)
}

// WriteAt copies p to guest memory at iova. The range may span windows, and
// all of it is checked before the first byte is written.
func (s *Space) WriteAt(p []byte, iova uint64) error {
	return s.transfer("write", p, iova, Write)
}

func (s *Space) transfer(op string, p []byte, iova uint64, acc Access) error {
	if len(p) == 0 {
		return nil
	}
	n := uint64(len(p))
	last, err := lastOf(op, iova, n)
	if err != nil {
		return s.count(err)
	}
	w, pin := s.enter(iova)
	if w == nil {
		return s.count(fail(op, iova, n, NotMapped))
	}
	if last > w.last {
		w.unpin(pin)
		return s.transferMany(op, p, iova, acc)
	}
	if err := w.allowed(op, iova, n, acc); err != nil {
		w.unpin(pin)
		return s.count(err)
	}
	g := w.slice(iova, n)
	var ok bool
	if acc == Read {
		ok = guardedCopy(p, g, g)
	} else {
		ok = guardedCopy(g, p, g)
	}
	w.unpin(pin)
	if !ok {
		return s.count(fail(op, iova, n, Fault))
	}
	return nil
}

func (s *Space) transferMany(op string, p []byte, iova uint64, acc Access) error {
	v, err := s.pin(op, iova, uint64(len(p)), acc)
	if err != nil {
		return err
	}
	defer v.Release()
	if acc == Read {
		return v.copy(op, p, 0, false)
	}
	return v.copy(op, p, 0, true)
}

// Check reports whether all of [iova, iova+n) can be reached by pointer with
// the rights acc. n may be 0, which is always allowed. The answer may be
// outdated when it arrives; use Pin to hold it.
func (s *Space) Check(iova, n uint64, acc Access) error {
	return s.check(iova, n, acc, false)
}

// CheckMessage is Check for access by DMA messages: windows without a file
// are good, too.
func (s *Space) CheckMessage(iova, n uint64, acc Access) error {
	return s.check(iova, n, acc, true)
}

func (s *Space) check(iova, n uint64, acc Access, message bool) error {
	if n == 0 {
		return nil
	}
	last, err := lastOf("check", iova, n)
	if err != nil {
		return s.count(err)
	}
	t := s.table.Load()
	for at := iova; ; {
		w := t.find(at)
		if w == nil {
			return s.count(fail("check", at, last-at+1, NotMapped))
		}
		if err := w.allowed("check", at, last-at+1, acc); err != nil && (!message || acc&^w.acc != 0) {
			return s.count(err)
		}
		if w.last >= last {
			return nil
		}
		at = w.last + 1
	}
}

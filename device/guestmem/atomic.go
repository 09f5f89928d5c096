// SPDX-License-Identifier: Apache-2.0

package guestmem

// atomicAt performs op on the size-byte word at iova.
func (s *Space) atomicAt(name string, op atomicOp, iova, size uint64, acc Access, a, b uint64) (uint64, error) {
	// Windows are page aligned in IOVA and file, so an aligned IOVA means an
	// aligned host address inside one window.
	if iova%size != 0 {
		return 0, s.count(fail(name, iova, size, Misaligned))
	}
	w, pin := s.enter(iova)
	if w == nil {
		return 0, s.count(fail(name, iova, size, NotMapped))
	}
	if err := w.allowed(name, iova, size, acc); err != nil {
		w.unpin(pin)
		return 0, s.count(err)
	}
	v, ok := guardedAtomic(op, w.at(iova), a, b)
	w.unpin(pin)
	if !ok {
		return 0, s.count(fail(name, iova, size, Fault))
	}
	return v, nil
}

// LoadUint32 reads the 4-byte aligned word at iova with acquire order.
func (s *Space) LoadUint32(iova uint64) (uint32, error) {
	v, err := s.atomicAt("load", load32, iova, 4, Read, 0, 0)
	return uint32(v), err
}

// LoadUint64 reads the 8-byte aligned word at iova with acquire order.
func (s *Space) LoadUint64(iova uint64) (uint64, error) {
	return s.atomicAt("load", load64, iova, 8, Read, 0, 0)
}

// StoreUint32 writes v to the 4-byte aligned word at iova with release order.
func (s *Space) StoreUint32(iova uint64, v uint32) error {
	_, err := s.atomicAt("store", store32, iova, 4, Write, uint64(v), 0)
	return err
}

// StoreUint64 writes v to the 8-byte aligned word at iova with release order.
func (s *Space) StoreUint64(iova, v uint64) error {
	_, err := s.atomicAt("store", store64, iova, 8, Write, v, 0)
	return err
}

// CompareAndSwapUint64 writes new to the 8-byte aligned word at iova if it
// holds old, atomically also against the guest's CPUs. It returns the value
// before; the swap happened if that equals old. Needs Read and Write.
func (s *Space) CompareAndSwapUint64(iova, old, new uint64) (prev uint64, err error) {
	return s.atomicAt("compare-and-swap", cas64, iova, 8, Read|Write, old, new)
}

// AddUint64 adds delta, modulo 2^64, to the 8-byte aligned word at iova,
// atomically also against the guest's CPUs, and returns the value before.
// Needs Read and Write.
func (s *Space) AddUint64(iova, delta uint64) (prev uint64, err error) {
	return s.atomicAt("fetch-and-add", add64, iova, 8, Read|Write, delta, 0)
}

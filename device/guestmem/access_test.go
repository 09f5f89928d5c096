// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadAndWriteReachTheFile(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 1<<20)
	mustMap(t, s, 0x100000, 0x80000, fd, 0x40000, rw)
	if err := s.WriteAt([]byte("payload"), 0x100ffd); err != nil {
		t.Fatal(err)
	}
	if got := pread(t, fd, 0x40ffd, 7); string(got) != "payload" {
		t.Fatalf("file has %q", got)
	}
	b := make([]byte, 7)
	if err := s.ReadAt(b, 0x100ffd); err != nil || string(b) != "payload" {
		t.Fatalf("%q, %v", b, err)
	}
}

// spanning returns a space with windows of two files that are neighbours in
// IOVA but neither in file order nor in host memory, then a gap.
func spanning(t testing.TB) (s *Space, a, b int) {
	s = newSpace(t, Options{})
	a, b = memfd(t, 0x4000), memfd(t, 0x4000)
	mustMap(t, s, 0x10000, 0x1000, a, 0x2000, rw)
	mustMap(t, s, 0x11000, 0x1000, a, 0x0000, rw)
	mustMap(t, s, 0x12000, 0x2000, b, 0x1000, rw)
	mustMap(t, s, 0x14000, 0x1000, b, 0x3000, rw) // contiguous with the one before
	return s, a, b
}

func TestTransfersSpanWindows(t *testing.T) {
	s, a, b := spanning(t)
	in := make([]byte, 0x4000)
	for i := range in {
		in[i] = byte(i>>8) ^ byte(i*7)
	}
	if err := s.WriteAt(in, 0x10800); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, len(in))
	if err := s.ReadAt(out, 0x10800); err != nil || !bytes.Equal(in, out) {
		t.Fatalf("read back differs, %v", err)
	}
	if !bytes.Equal(pread(t, a, 0x2800, 0x800), in[:0x800]) ||
		!bytes.Equal(pread(t, a, 0, 0x1000), in[0x800:0x1800]) ||
		!bytes.Equal(pread(t, b, 0x1000, 0x2800), in[0x1800:]) {
		t.Fatal("bytes landed in the wrong place")
	}
	v, err := s.Pin(0x10800, 0x4000, Read)
	if err != nil {
		t.Fatal(err)
	}
	if v.Segments() != 3 || v.Len() != 0x4000 {
		t.Fatalf("%d segments of %d bytes, want 3: contiguous windows join", v.Segments(), v.Len())
	}
	var joined []byte
	for i := range v.Segments() {
		joined = append(joined, v.Segment(i)...)
	}
	if !bytes.Equal(joined, in) {
		t.Fatal("segments differ from what was written")
	}
	part := make([]byte, 0x1000)
	if err := v.CopyOut(part, 0x400); err != nil || !bytes.Equal(part, in[0x400:0x1400]) {
		t.Fatalf("CopyOut across a segment boundary: %v", err)
	}
	if err := v.CopyIn([]byte{1, 2, 3, 4}, 0x7fe); err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.CopyOut(part, 0x3001), OutOfView)
	wantReason(t, v.CopyOut(part, -1), OutOfView)
	wantReason(t, v.CopyIn(part[:1], 0x4000), OutOfView)
	if err := v.CopyOut(nil, 0x4000); err != nil {
		t.Fatalf("empty copy at the end: %v", err)
	}
	v.Release()
	v.Release()
	if got := pread(t, a, 0x2ffe, 2); got[0] != 1 || got[1] != 2 {
		t.Fatalf("CopyIn across a boundary wrote %v", got)
	}
}

func TestFailedWriteChangesNoByte(t *testing.T) {
	s, a, b := spanning(t)
	fd := memfd(t, 0x1000)
	mustMap(t, s, 0x15000, 0x1000, fd, 0, Read)
	for name, c := range map[string]struct {
		iova uint64
		n    int
		want Reason
	}{
		"runs into a read-only window": {0x10000, 0x5001, NotPermitted},
		"runs into a hole":             {0x10000, 0x6001, NotPermitted},
		"passes 2^64":                  {math.MaxUint64, 2, Wraps},
		"in a hole":                    {0x9000, 8, NotMapped},
		"starts in a hole":             {0xfff8, 16, NotMapped},
	} {
		t.Run(name, func(t *testing.T) {
			p := bytes.Repeat([]byte{0xff}, c.n)
			wantReason(t, s.WriteAt(p, c.iova), c.want)
			zero := make([]byte, 0x4000)
			if !bytes.Equal(pread(t, a, 0, 0x4000), zero) || !bytes.Equal(pread(t, b, 0, 0x4000), zero) {
				t.Fatal("a refused write changed memory")
			}
		})
	}
}

func TestRightsAreEnforced(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 0x4000)
	mustMap(t, s, 0x0000, 0x1000, fd, 0x0000, Read)
	mustMap(t, s, 0x1000, 0x1000, fd, 0x1000, Write)
	mustMap(t, s, 0x2000, 0x1000, fd, 0x2000, 0)
	if err := s.MapMessage(0x3000, 0x1000, Read); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	ops := map[string]func(iova uint64) error{
		"read":  func(a uint64) error { return s.ReadAt(b, a) },
		"write": func(a uint64) error { return s.WriteAt(b, a) },
		"load":  func(a uint64) error { _, err := s.LoadUint64(a); return err },
		"store": func(a uint64) error { return s.StoreUint64(a, 1) },
		"cas":   func(a uint64) error { _, err := s.CompareAndSwapUint64(a, 0, 1); return err },
		"add":   func(a uint64) error { _, err := s.AddUint64(a, 1); return err },
		"pin r": func(a uint64) error { v, err := s.Pin(a, 8, Read); v.Release(); return err },
		"pin w": func(a uint64) error { v, err := s.Pin(a, 8, Write); v.Release(); return err },
		"check": func(a uint64) error { return s.Check(a, 8, Read) },
	}
	want := map[string][4]Reason{ // by window; 0 is success
		"read":  {0, NotPermitted, NotPermitted, MessageOnly},
		"write": {NotPermitted, 0, NotPermitted, NotPermitted},
		"load":  {0, NotPermitted, NotPermitted, MessageOnly},
		"store": {NotPermitted, 0, NotPermitted, NotPermitted},
		"cas":   {NotPermitted, NotPermitted, NotPermitted, NotPermitted},
		"add":   {NotPermitted, NotPermitted, NotPermitted, NotPermitted},
		"pin r": {0, NotPermitted, NotPermitted, MessageOnly},
		"pin w": {NotPermitted, 0, NotPermitted, NotPermitted},
		"check": {0, NotPermitted, NotPermitted, MessageOnly},
	}
	for name, op := range ops {
		for i, r := range want[name] {
			err := op(uint64(i) * 0x1000)
			if r == 0 && err != nil {
				t.Errorf("%s of window %d: %v", name, i, err)
			} else if r != 0 && !errors.Is(err, r) {
				t.Errorf("%s of window %d: %v, want %v", name, i, err, r)
			}
		}
	}
	if err := s.CheckMessage(0x3000, 0x1000, Read); err != nil {
		t.Error(err)
	}
	wantReason(t, s.CheckMessage(0x3000, 0x1001, Read), NotMapped)
	wantReason(t, s.CheckMessage(0x3000, 0x1000, Write), NotPermitted)
}

func TestEmptyTransfersAlwaysSucceed(t *testing.T) {
	s := newSpace(t, Options{})
	if err := errors.Join(s.ReadAt(nil, 5), s.WriteAt(nil, math.MaxUint64), s.Check(1, 0, rw)); err != nil {
		t.Fatal(err)
	}
	v, err := s.Pin(77, 0, rw)
	if err != nil || v.Len() != 0 || v.Segments() != 0 {
		t.Fatal(v, err)
	}
	v.Release()
}

func TestAtomics(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 0x2000)
	mustMap(t, s, 0x1000, 0x1000, fd, 0x1000, rw)
	if err := s.StoreUint64(0x1ff8, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	if got := pread(t, fd, 0x1ff8, 8); got[0] != 0x88 || got[7] != 0x11 {
		t.Fatalf("bytes %x, want little-endian", got)
	}
	if v, err := s.LoadUint32(0x1ffc); v != 0x11223344 || err != nil {
		t.Fatalf("%#x, %v", v, err)
	}
	if err := s.StoreUint32(0x1ff8, 0xaabbccdd); err != nil {
		t.Fatal(err)
	}
	prev, err := s.CompareAndSwapUint64(0x1ff8, 1, 2)
	if prev != 0x11223344aabbccdd || err != nil {
		t.Fatalf("%#x, %v", prev, err)
	}
	if v, _ := s.LoadUint64(0x1ff8); v != prev {
		t.Fatal("a failed compare-and-swap wrote")
	}
	if prev, err = s.CompareAndSwapUint64(0x1ff8, prev, 7); prev != 0x11223344aabbccdd || err != nil {
		t.Fatalf("%#x, %v", prev, err)
	}
	if prev, err = s.AddUint64(0x1ff8, math.MaxUint64); prev != 7 || err != nil {
		t.Fatalf("%#x, %v", prev, err)
	}
	if v, _ := s.LoadUint64(0x1ff8); v != 6 {
		t.Fatalf("7 + (2^64-1) gave %d", v)
	}
	for iova := uint64(0x1000); iova < 0x1008; iova++ {
		_, err64 := s.LoadUint64(iova)
		_, err32 := s.LoadUint32(iova)
		if (err64 == nil) != (iova%8 == 0) || (err32 == nil) != (iova%4 == 0) {
			t.Fatalf("load at %#x: 64 bit %v, 32 bit %v", iova, err64, err32)
		}
	}
	_, err = s.AddUint64(0x1004, 1)
	wantReason(t, err, Misaligned)
	_, err = s.CompareAndSwapUint64(0x2000, 1, 1)
	wantReason(t, err, NotMapped)
}

func TestTruncatedFileFaultsAsAnError(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 0x10000)
	mustMap(t, s, 0, 0x10000, fd, 0, rw)
	v, err := s.Pin(0x8000, 0x1000, rw)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 0x4000); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 0x2000)
	_, loadErr := s.LoadUint64(0x5000)
	_, addErr := s.AddUint64(0x5000, 1)
	_, casErr := s.CompareAndSwapUint64(0x5000, 0, 1)
	for name, err := range map[string]error{
		"read":       s.ReadAt(b, 0x5000),
		"read over":  s.ReadAt(b, 0x3000),
		"write":      s.WriteAt(b, 0x5000),
		"one byte":   s.WriteAt(b[:1], 0xffff),
		"load":       loadErr,
		"store32":    s.StoreUint32(0x5000, 1),
		"store64":    s.StoreUint64(0x5000, 1),
		"add":        addErr,
		"cas":        casErr,
		"view read":  v.CopyOut(b[:1], 0),
		"view write": v.CopyIn(b[:16], 0xff0),
		"guard": v.Guard(func() error {
			crc32.ChecksumIEEE(v.Segment(0))
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, err, Fault) })
	}
	v.Release()
	if err := s.ReadAt(b, 0x2000); err != nil {
		t.Fatalf("below the new end: %v", err)
	}
	if n := s.Stats().Faults; n != 12 {
		t.Fatalf("%d faults counted, want 12", n)
	}
}

func TestGuardPassesOtherPanics(t *testing.T) {
	s := newSpace(t, Options{})
	mustMap(t, s, 0, 0x1000, memfd(t, 0x1000), 0, rw)
	v, err := s.Pin(0, 0x1000, Read)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	elsewhere, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(elsewhere)
	errMine := errors.New("mine")
	if err := v.Guard(func() error { return errMine }); err != errMine {
		t.Fatalf("got %v", err)
	}
	for name, f := range map[string]func(){
		"a panic":               func() { panic("boom") },
		"an index out of range": func() { _ = v.Segment(v.Segments() + len(v.Segment(0))) },
		"a fault elsewhere":     func() { elsewhere[0] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("Guard swallowed it")
				}
			}()
			_ = v.Guard(func() error { f(); return nil })
		})
	}
}

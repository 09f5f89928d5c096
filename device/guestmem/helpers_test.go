// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const rw = Read | Write

// memfd returns a sealable memory file of size bytes, closed with the test.
func memfd(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

func newSpace(t testing.TB, o Options) *Space {
	t.Helper()
	s := New(o)
	t.Cleanup(func() {
		s.Close()
		if st := s.Stats(); st.Windows != 0 || st.Files != 0 || st.FileBytes != 0 {
			t.Errorf("closed Space still has %+v", st)
		}
	})
	return s
}

func mustMap(t testing.TB, s *Space, iova, size uint64, fd int, off uint64, acc Access) {
	t.Helper()
	if err := s.MapFile(iova, size, fd, off, acc); err != nil {
		t.Fatal(err)
	}
}

func wantReason(t testing.TB, err error, r Reason) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != r || !errors.Is(err, r) {
		t.Fatalf("error is %v, want reason %q", err, r)
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == 0 {
		t.Fatalf("%v carries no errno", err)
	}
}

func pread(t testing.TB, fd int, off int64, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if m, err := unix.Pread(fd, b, off); err != nil || m != n {
		t.Fatalf("pread: %d, %v", m, err)
	}
	return b
}

func pwriteAll(t testing.TB, fd int, b []byte) {
	t.Helper()
	if m, err := unix.Pwrite(fd, b, 0); err != nil || m != len(b) {
		t.Fatalf("pwrite: %d, %v", m, err)
	}
}

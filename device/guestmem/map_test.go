// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestMapChecksTheRange(t *testing.T) {
	s := newSpace(t, Options{MaxWindow: 1 << 30})
	fd := memfd(t, 1<<20)
	for _, c := range []struct {
		name            string
		iova, size, off uint64
		want            Reason
	}{
		{"size 0", 0, 0, 0, Empty},
		{"iova plus size passes 2^64", math.MaxUint64 - 4095, 8192, 0, Wraps},
		{"window above the limit", 0, 1<<30 + 4096, 0, TooLarge},
		{"unaligned iova", 1, 4096, 0, Misaligned},
		{"unaligned size", 0, 4095, 0, Misaligned},
		{"unaligned offset", 0, 4096, 8, Misaligned},
		{"offset plus size passes 2^64", 0, 4096, math.MaxUint64 - 4095, BeyondFile},
		{"offset plus size passes the file", 0, 4096, 1 << 20, BeyondFile},
		{"size passes the file", 0, 1<<20 + 4096, 0, BeyondFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantReason(t, s.MapFile(c.iova, c.size, fd, c.off, rw), c.want)
			if n := len(s.Windows()); n != 0 {
				t.Fatalf("%d windows after a refused map", n)
			}
		})
	}
	mustMap(t, s, math.MaxUint64-4095, 4096, fd, 0, rw) // the last page is fine
}

func TestMapRefusesWhatIsNoMappableFile(t *testing.T) {
	s := newSpace(t, Options{})
	var pipe, pair [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string, flags int) int {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	dir, self := t.TempDir(), filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(self, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	ram := memfd(t, 8192)
	ramPath := filepath.Join("/proc/self/fd", itoa(ram))
	for _, c := range []struct {
		name string
		fd   int
		want Reason
	}{
		{"pipe", pipe[0], BadFile},
		{"socket", pair[0], BadFile},
		{"eventfd", event, BadFile},
		{"epoll", epoll, BadFile},
		{"directory", open(dir, unix.O_RDONLY|unix.O_DIRECTORY), BadFile},
		{"O_PATH", open(ramPath, unix.O_PATH), BadFile},
		{"/dev/zero", open("/dev/zero", unix.O_RDWR), BadFile},
		{"/proc/self/mem", open("/proc/self/mem", unix.O_RDWR), BadFilesystem},
		{"file on a disk", open(self, unix.O_RDWR), BadFilesystem},
		{"write-only memfd", open(ramPath, unix.O_WRONLY), MapFailed},
		{"closed", 1 << 20, BadFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantReason(t, s.MapFile(0, 4096, c.fd, 0, rw), c.want)
			unix.Close(c.fd)
		})
	}
	unix.Close(pipe[1])
	unix.Close(pair[1])
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func TestOtherFilesystemsNeedTheOption(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(name, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		t.Fatal(err)
	}
	err = newSpace(t, Options{}).MapFile(0, 4096, fd, 0, rw)
	if onTmpfs := fs.Type == unix.TMPFS_MAGIC; onTmpfs != (err == nil) {
		t.Fatalf("file system %#x without the option: %v", fs.Type, err)
	}
	mustMap(t, newSpace(t, Options{AnyFilesystem: true}), 0, 4096, fd, 0, rw)
}

func TestReadOnlyDescriptorAndSealGiveReadOnlyWindows(t *testing.T) {
	fd := memfd(t, 8192)
	if _, err := unix.Pwrite(fd, []byte("hello"), 0); err != nil {
		t.Fatal(err)
	}
	ro, err := unix.Open("/proc/self/fd/"+itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ro)
	sealed := memfd(t, 8192)
	if _, err := unix.FcntlInt(uintptr(sealed), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, Options{})
	mustMap(t, s, 0, 8192, fd, 0, rw) // a writable mapping of the same file must not leak rights
	mustMap(t, s, 0x10000, 8192, ro, 0, rw)
	mustMap(t, s, 0x20000, 8192, sealed, 0, rw)
	mustMap(t, s, 0x30000, 8192, sealed, 0, rw) // second time from the cache
	b := make([]byte, 5)
	if err := s.ReadAt(b, 0x10000); err != nil || string(b) != "hello" {
		t.Fatalf("read through the read-only window: %q, %v", b, err)
	}
	wantReason(t, s.WriteAt(b, 0x10000), NotPermitted)
	wantReason(t, s.WriteAt(b, 0x20000), NotPermitted)
	wantReason(t, s.StoreUint32(0x30000, 1), NotPermitted)
	if err := s.WriteAt([]byte("HELLO"), 0); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Files != 3 {
		t.Fatalf("%d files mapped, want 3", st.Files)
	}
}

func TestOverlapRules(t *testing.T) {
	s := newSpace(t, Options{})
	fd, other := memfd(t, 1<<20), memfd(t, 1<<20)
	mustMap(t, s, 0x10000, 0x4000, fd, 0x1000, rw)
	mustMap(t, s, 0x10000, 0x4000, fd, 0x1000, rw) // identical: success, still one
	if n := len(s.Windows()); n != 1 {
		t.Fatalf("%d windows, want 1", n)
	}
	for name, err := range map[string]error{
		"identical with other file":   s.MapFile(0x10000, 0x4000, other, 0x1000, rw),
		"identical with other offset": s.MapFile(0x10000, 0x4000, fd, 0, rw),
		"identical with other rights": s.MapFile(0x10000, 0x4000, fd, 0x1000, Read),
		"identical without a file":    s.MapMessage(0x10000, 0x4000, rw),
		"same start":                  s.MapFile(0x10000, 0x1000, fd, 0x1000, rw),
		"inside":                      s.MapFile(0x11000, 0x1000, fd, 0, rw),
		"straddling the start":        s.MapFile(0xf000, 0x2000, fd, 0, rw),
		"straddling the end":          s.MapFile(0x13000, 0x2000, fd, 0, rw),
		"around":                      s.MapMessage(0, 0x100000, rw),
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, err, Overlaps) })
	}
	if err := s.MapMessage(0x20000, 0x1000, Read); err != nil {
		t.Fatal(err)
	}
	if err := s.MapMessage(0x20000, 0x1000, Read); err != nil {
		t.Fatalf("identical message window: %v", err)
	}
	wantReason(t, s.MapMessage(0x20000, 0x1000, rw), Overlaps)
	mustMap(t, s, 0xf000, 0x1000, fd, 0, rw) // neighbours are fine
	mustMap(t, s, 0x14000, 0x1000, fd, 0, rw)
}

func TestUnmapMatchesLikeTheKernel(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 1<<20)
	build := func() {
		s.UnmapAll()
		mustMap(t, s, 0x10000, 0x2000, fd, 0, rw)
		mustMap(t, s, 0x12000, 0x2000, fd, 0, rw)
		mustMap(t, s, 0x20000, 0x1000, fd, 0, rw)
		mustMap(t, s, math.MaxUint64-0xfff, 0x1000, fd, 0, rw)
	}
	for _, c := range []struct {
		name       string
		iova, size uint64
		want       Reason // 0: success
		left       int
	}{
		{"exact", 0x10000, 0x2000, 0, 3},
		{"superset of two", 0, 0x18000, 0, 2},
		{"nothing there", 0x40000000, 0x40000000, 0, 4},
		{"between", 0x14000, 0xc000, 0, 4},
		{"cuts the first", 0x10000, 0x1000, Splits, 4},
		{"cuts the last", 0x10000, 0x3000, Splits, 4},
		{"ends exactly at 2^64", 0xfef00000, 0xffffffff01100000, 0, 3},
		{"whole upper half", 1 << 63, 1 << 63, 0, 3},
		{"size 0", 0x10000, 0, Empty, 4},
		{"passes 2^64", 0xfef00000, 0xffffffff01100001, Wraps, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			build()
			ws, ierr := s.Inside(c.iova, c.size)
			before := len(s.Windows())
			err := s.Unmap(c.iova, c.size)
			if c.want == 0 && err != nil {
				t.Fatal(err)
			}
			if c.want != 0 {
				wantReason(t, err, c.want)
				wantReason(t, ierr, c.want)
			}
			if n := len(s.Windows()); n != c.left || before-n != len(ws) {
				t.Fatalf("%d windows left, want %d; Inside announced %d", n, c.left, len(ws))
			}
		})
	}
}

func TestLimits(t *testing.T) {
	fd := memfd(t, 1<<20)
	t.Run("windows", func(t *testing.T) {
		s := newSpace(t, Options{MaxWindows: 16})
		for i := range uint64(16) {
			mustMap(t, s, i<<20, 4096, fd, 0, rw)
		}
		wantReason(t, s.MapFile(1<<30, 4096, fd, 0, rw), TooMany)
		wantReason(t, s.MapMessage(1<<30, 4096, rw), TooMany)
		if err := s.Unmap(0, 4096); err != nil {
			t.Fatal(err)
		}
		mustMap(t, s, 1<<30, 4096, fd, 0, rw)
	})
	t.Run("files", func(t *testing.T) {
		s := newSpace(t, Options{MaxFiles: 2})
		mustMap(t, s, 0, 4096, memfd(t, 4096), 0, rw)
		mustMap(t, s, 4096, 4096, memfd(t, 4096), 0, rw)
		wantReason(t, s.MapFile(8192, 4096, memfd(t, 4096), 0, rw), NoRoom)
		if err := s.Unmap(0, 4096); err != nil {
			t.Fatal(err)
		}
		mustMap(t, s, 8192, 4096, memfd(t, 4096), 0, rw) // the idle one makes room
	})
	t.Run("bytes", func(t *testing.T) {
		s := newSpace(t, Options{MaxFileBytes: 1 << 20})
		wantReason(t, s.MapFile(0, 4096, memfd(t, 2<<20), 0, rw), NoRoom)
		mustMap(t, s, 0, 4096, fd, 0, rw)
	})
	t.Run("closed", func(t *testing.T) {
		s := newSpace(t, Options{})
		s.Close()
		wantReason(t, s.MapFile(0, 4096, fd, 0, rw), Closed)
	})
}

func TestFileIsMappedOnceAndKeptForAGracePeriod(t *testing.T) {
	fd := memfd(t, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Grace: time.Second})
		for i := range 100 { // a firmware storm
			mustMap(t, s, 0, 1<<20, fd, 0, rw)
			if err := s.Unmap(0, 1<<20); err != nil {
				t.Fatal(i, err)
			}
			time.Sleep(900 * time.Millisecond)
		}
		if st := s.Stats(); st.FilesMapped != 1 || st.Files != 1 {
			t.Fatalf("after the storm: %+v", st)
		}
		time.Sleep(101 * time.Millisecond)
		synctest.Wait()
		if st := s.Stats(); st.Files != 0 || st.FileBytes != 0 {
			t.Fatalf("after the grace period: %+v", st)
		}
		mustMap(t, s, 0, 1<<20, fd, 0, rw)
		s.UnmapAll() // the end of a connection has no grace
		if st := s.Stats(); st.Files != 0 || st.FilesMapped != 2 {
			t.Fatalf("after UnmapAll: %+v", st)
		}
	})
}

func TestGrownFileIsMappedAgain(t *testing.T) {
	s := newSpace(t, Options{})
	fd := memfd(t, 4096)
	mustMap(t, s, 0, 4096, fd, 0, rw)
	wantReason(t, s.MapFile(0x10000, 4096, fd, 4096, rw), BeyondFile)
	if err := unix.Ftruncate(fd, 8192); err != nil {
		t.Fatal(err)
	}
	mustMap(t, s, 0x10000, 4096, fd, 4096, rw)
	if err := s.WriteAt([]byte{1}, 0); err != nil { // the old mapping lives on
		t.Fatal(err)
	}
	if err := s.WriteAt([]byte{2}, 0x10000); err != nil {
		t.Fatal(err)
	}
	if a, b := pread(t, fd, 0, 1)[0], pread(t, fd, 4096, 1)[0]; a != 1 || b != 2 {
		t.Fatalf("file has %d, %d", a, b)
	}
	if err := s.Unmap(0, 4096); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Files != 1 {
		t.Fatalf("outgrown mapping is kept: %+v", st)
	}
}

// TestHugePagesMapAtAnyOffset uses the offsets of a hypervisor, which are no
// multiples of the huge page. Whether a page can be had depends on the host.
func TestHugePagesMapAtAnyOffset(t *testing.T) {
	fd, err := unix.MemfdCreate("huge-ram", unix.MFD_CLOEXEC|unix.MFD_HUGETLB)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4<<20); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, Options{})
	mustMap(t, s, 0, 0xc3000, fd, 0, rw)
	mustMap(t, s, 0xc3000, 0x3d000, fd, 0xc3000, rw)
	for _, iova := range []uint64{0, 0xc3000, 0xffff8} {
		err := s.StoreUint64(iova, iova)
		if err != nil {
			wantReason(t, err, Fault)
			continue
		}
		if v, err := s.LoadUint64(iova); v != iova || err != nil {
			t.Fatalf("%#x, %v", v, err)
		}
	}
	if st := s.Stats(); st.Files != 1 || st.FileBytes != 4<<20 {
		t.Fatalf("%+v", st)
	}
}

func TestOneDescriptorMayBeClosedAtOnce(t *testing.T) {
	s := newSpace(t, Options{})
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	mustMap(t, s, 0, 4096, fd, 0, rw)
	unix.Close(fd)
	if err := s.StoreUint64(8, 42); err != nil {
		t.Fatal(err)
	}
	if v, err := s.LoadUint64(8); v != 42 || err != nil {
		t.Fatal(v, err)
	}
}

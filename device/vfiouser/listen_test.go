// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestS5_ListenSetsModeAndGroup(t *testing.T) {
	leakCheck(t)
	gid := os.Getgid()
	for name, q := range map[string]struct {
		o    ListenOptions
		mode os.FileMode
	}{
		"default":         {ListenOptions{}, 0o660},
		"mode":            {ListenOptions{Mode: 0o600}, 0o600},
		"group by number": {ListenOptions{Mode: 0o666, Group: strconv.Itoa(gid)}, 0o666},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := Listen(path, q.o)
			if err != nil {
				t.Fatal(err)
			}
			fi, err := os.Stat(path)
			if err != nil || fi.Mode().Perm() != q.mode || fi.Mode()&os.ModeSocket == 0 {
				t.Fatalf("%v, %v", fi.Mode(), err)
			}
			if got := int(fi.Sys().(*syscall.Stat_t).Gid); got != gid {
				t.Fatalf("group %d", got)
			}
			if _, err := os.Stat(path + ".lock"); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the lock file is left behind: %v", err)
			}
			l.Close()
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the socket is left behind: %v", err)
			}
		})
	}
}

func TestListenRefusals(t *testing.T) {
	leakCheck(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link+".lock"); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]struct {
		path string
		o    ListenOptions
		want string
	}{
		"empty path":         {"", ListenOptions{}, "path"},
		"abstract":           {"@abstract", ListenOptions{}, "path"},
		"abstract with NUL":  {"\x00abstract", ListenOptions{}, "path"},
		"path too long":      {filepath.Join(dir, strings.Repeat("x", 108)), ListenOptions{}, "107"},
		"no such directory":  {filepath.Join(dir, "no", "s"), ListenOptions{}, "no such file"},
		"file in the way":    {file, ListenOptions{}, "in the way"},
		"dir in the way":     {dir, ListenOptions{}, "in the way"},
		"unknown group":      {filepath.Join(dir, "g"), ListenOptions{Group: "no-such-group"}, "no-such-group"},
		"lock is a symlink":  {link, ListenOptions{}, "symbolic"},
		"names the own path": {filepath.Join(dir, "no", "t"), ListenOptions{}, filepath.Join(dir, "no", "t")},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Listen(q.path, q.o)
			if err == nil {
				l.Close()
				t.Fatal("succeeded")
			}
			if !strings.Contains(err.Error(), q.want) {
				t.Fatalf("%v does not say %q", err, q.want)
			}
		})
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Fatalf("the file in the way is %q, %v", b, err)
	}
}

// stale leaves a socket file that nobody listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestS5_ListenReplacesAStaleSocketAndRefusesALiveOne(t *testing.T) {
	leakCheck(t)
	path := filepath.Join(t.TempDir(), "s")
	stale(t, path)
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	_, err = Listen(path, ListenOptions{})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "another server is listening") {
		t.Fatalf("live socket: %v", err)
	}
	c, err := net.Dial("unix", path) // the live one still works
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	if l, err = Listen(path, ListenOptions{}); err != nil {
		t.Fatalf("after close: %v", err)
	}
	l.Close()
}

func TestOneOfManyServersWins(t *testing.T) {
	leakCheck(t)
	for range 20 {
		path := filepath.Join(t.TempDir(), "s")
		stale(t, path)
		var wins atomic.Int32
		var wg sync.WaitGroup
		ls := make([]*net.UnixListener, 8)
		for i := range ls {
			wg.Go(func() {
				l, err := Listen(path, ListenOptions{})
				switch {
				case err == nil:
					ls[i] = l
					wins.Add(1)
				case !errors.Is(err, syscall.EADDRINUSE):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, l := range ls {
			if l != nil {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Errorf("the winner cannot be reached: %v", err)
				} else {
					c.Close()
				}
				l.Close()
			}
		}
		if wins.Load() != 1 {
			t.Fatalf("%d servers listen on one path", wins.Load())
		}
	}
}

func TestLockOfARemovedFileDoesNotCount(t *testing.T) {
	leakCheck(t)
	name := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !sameFile(f, name) {
		t.Fatal("the file is not itself")
	}
	if err := os.Remove(name); err != nil || sameFile(f, name) {
		t.Fatalf("removed: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil || sameFile(f, name) {
		t.Fatalf("replaced by another server's: %v", err)
	}
}

func TestHeldLockIsReported(t *testing.T) {
	leakCheck(t)
	path := filepath.Join(t.TempDir(), "s")
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := Listen(path, ListenOptions{}); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), ".lock") {
		t.Fatalf("%v", err)
	}
	if d := time.Since(began); d < lockWait || d > patience {
		t.Fatalf("gave up after %v", d)
	}
}

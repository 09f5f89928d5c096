// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ListenOptions configures the socket file.
type ListenOptions struct {
	Mode  os.FileMode // permissions; default 0660
	Group string      // name or number of the group that owns it; default the process's
}

const (
	maxSocketPath = 107 // bytes in sun_path, without the NUL
	lockWait      = time.Second
	lockRetry     = 10 * time.Millisecond
)

// Listen creates a UNIX socket at path. A socket left behind by a process that
// is gone is replaced; one that somebody listens on is refused, and so is a
// file of any other kind. While it does this it holds a lock on path.lock, so
// that of two servers started at once one fails cleanly. Closing the listener
// removes the socket.
func Listen(path string, o ListenOptions) (*net.UnixListener, error) {
	l, err := listen(path, o)
	if err != nil {
		return nil, fmt.Errorf("vfio-user: listen on %q: %w", path, err)
	}
	return l, nil
}

func listen(path string, o ListenOptions) (*net.UnixListener, error) {
	if path == "" || path[0] == '@' || path[0] == 0 {
		return nil, errors.New("want the path of a socket file")
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("path has %d bytes, the limit of a socket address is %d", len(path), maxSocketPath)
	}
	if o.Mode == 0 {
		o.Mode = 0o660
	}
	gid, err := lookupGroup(o.Group)
	if err != nil {
		return nil, err
	}
	unlock, err := lockPath(path + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Nobody may connect before the file has its final owner. The socket's own
	// mode becomes the file's at bind, so no umask, which all threads share,
	// has to change.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(cerr, err)
	}}
	nl, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	l := nl.(*net.UnixListener)
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, o.Mode.Perm())
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// lookupGroup returns the number of a group, or -1 for none.
func lookupGroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(g.Gid)
}

// removeStale removes a socket that nobody listens on.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("a file of type %v is in the way", fi.Mode().Type())
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("another server is listening: %w", syscall.EADDRINUSE)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether another server is listening: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// lockPath takes an exclusive lock on the file name, which it creates. The
// returned function removes the file and ends the lock.
func lockPath(name string) (unlock func(), err error) {
	for deadline := time.Now().Add(lockWait); ; time.Sleep(lockRetry) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		raw, err := f.SyscallConn()
		if err != nil {
			f.Close()
			return nil, err
		}
		var lerr error
		cerr := raw.Control(func(fd uintptr) { lerr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) })
		err = errors.Join(cerr, lerr)
		if err == nil && sameFile(f, name) {
			return func() {
				os.Remove(name)
				f.Close()
			}, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another server holds %q: %w", name, syscall.EADDRINUSE)
		}
	}
}

// sameFile reports whether name still is f: its last holder removes it.
func sameFile(f *os.File, name string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

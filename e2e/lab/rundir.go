// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RunRoot holds the run directories of all labs of the machine. Its path is
// short, because socket paths are limited to 107 bytes.
const RunRoot = "/run/ernic-lab"

const ownerLock = "lock"

// runDir is a directory that belongs to a living process.
type runDir struct {
	path string
	lock *os.File
}

// newRunDir makes a directory whose name starts with name, or is name exactly,
// and removes those whose owners are gone.
func newRunDir(root, name string, exact bool) (*runDir, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	// Making a directory and taking its lock are two steps. This lock makes
	// them one.
	all, err := flock(filepath.Join(root, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }()
	if err := sweepRunDirs(root); err != nil {
		return nil, err
	}
	var path string
	if exact {
		path = filepath.Join(root, name)
		err = os.Mkdir(path, 0o755)
		if errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("a lab named %q runs already (%s)", name, path)
		}
	} else {
		path, err = os.MkdirTemp(root, name+"-")
	}
	if err != nil {
		return nil, err
	}
	lock, err := flock(filepath.Join(path, ownerLock), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &runDir{path, lock}, nil
}

func sweepRunDirs(root string) error {
	dirs, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		path := filepath.Join(root, d.Name())
		lock, err := flock(filepath.Join(path, ownerLock), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // its owner lives
		}
		if err != nil {
			return err
		}
		err = os.RemoveAll(path)
		_ = lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *runDir) remove() error { return errors.Join(os.RemoveAll(d.path), d.lock.Close()) }

// flock opens a lock file. The lock is held until the file is closed, by the
// kernel if need be. Children do not inherit it.
func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

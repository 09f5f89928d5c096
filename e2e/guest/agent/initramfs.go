// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// diskPatience bounds the wait for the root disk. The disk is probed
// asynchronously to module loading.
const diskPatience = 10 * time.Second

type kernelMount struct {
	fs, dir, options string
	flags            uintptr
}

var kernelMounts = []kernelMount{
	{"devtmpfs", "/dev", "mode=0755", unix.MS_NOSUID},
	{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV},
	{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV},
}

func mountKernelFS(root string) error {
	for _, m := range kernelMounts {
		if err := mount(m.fs, root+m.dir, m.flags, m.options); err != nil {
			return err
		}
	}
	return nil
}

func mount(fs, dir string, flags uintptr, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fs, dir, fs, flags, options); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s on %s: %w", fs, dir, err)
	}
	return nil
}

// enterRoot loads the modules listed in /modules/order and makes the disk the
// root directory of this process.
func enterRoot(disk string) error {
	if disk == "" {
		return errors.New("the kernel command line names no root disk (ernic.root=)")
	}
	order, err := os.Open("/modules/order")
	if err != nil {
		return err
	}
	defer func() { _ = order.Close() }()
	for s := bufio.NewScanner(order); s.Scan(); {
		if err := loadModule("/modules/" + strings.TrimSpace(s.Text())); err != nil {
			return err
		}
	}
	const root = "/root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := mountDisk(disk, root); err != nil {
		return err
	}
	for _, m := range kernelMounts {
		if err := unix.Mount(m.dir, root+m.dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s into the root disk: %w", m.dir, err)
		}
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root disk to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

func mountDisk(disk, dir string) error {
	deadline := time.Now().Add(diskPatience)
	for {
		// Writes end with the guest, so nothing is gained by preparing the
		// parts of the disk that nobody has used.
		err := unix.Mount(disk, dir, "ext4", unix.MS_NOATIME, "noinit_itable")
		if err == nil {
			return nil
		}
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOTBLK)
		if !gone || time.Now().After(deadline) {
			return fmt.Errorf("mount the root disk %s: %w", disk, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

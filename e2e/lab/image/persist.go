// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pauses lie between the attempts at something that comes over the network. apt
// tries each file again by itself; this is for a mirror that is away, or in the
// middle of a change, for longer.
var pauses = []time.Duration{10 * time.Second, time.Minute}

// attempt calls f until it succeeds, as often as there are pauses and once more.
func attempt(ctx context.Context, p *Progress, f func() error) error {
	err := f()
	for _, pause := range pauses {
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.Sayf("failed, trying again in %v: %v", pause, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		err = f()
	}
	return err
}

// persist makes a component, from the start again when that fails.
func (b *build) persist(make func(*build) error) error {
	return attempt(b.ctx, b.p, func() error {
		if err := b.empty(); err != nil {
			return err
		}
		return make(b)
	})
}

// empty removes what an attempt has left in the build's directory.
func (b *build) empty() error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(b.dir, e.Name())); err != nil {
			return fmt.Errorf("remove a failed attempt: %w", err)
		}
	}
	return nil
}

// spaceNeeded is what the lab takes while it is built: the trees of base, tools,
// image and compilers, and the disk.
const spaceNeeded = 3 << 30

// enoughSpace reports whether the file system of dir can hold a lab.
func enoughSpace(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("guest lab: free space of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < spaceNeeded {
		return fmt.Errorf("guest lab: %s has %d MiB free, building needs %d MiB: make room, or set XDG_CACHE_HOME to another place",
			dir, free>>20, spaceNeeded>>20)
	}
	return nil
}

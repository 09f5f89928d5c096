// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// isEventFD reports whether fd is an eventfd. Writing to anything else a
// client may send could block or do harm.
func isEventFD(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil {
		return name == "anon_inode:[eventfd]"
	}
	// Without /proc: anonymous inodes have no file type. The others among them
	// (epoll, timerfd, ...) refuse a write with an error.
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == 0
}

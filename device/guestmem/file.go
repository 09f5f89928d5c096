// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileKey identifies an open file. The inode cannot be reused while we map it.
// Read-only and writable mappings are separate, because a client that shows a
// read-only descriptor must not gain what another descriptor allowed.
type fileKey struct {
	dev, ino uint64
	writable bool
}

// file is one whole-file mapping. All fields but base and length are guarded
// by Space.mu.
type file struct {
	key     fileKey
	base    unsafe.Pointer
	length  uint64
	windows int         // windows that refer to it
	current bool        // listed in Space.files, that is the newest mapping of its key
	idle    *time.Timer // running while windows == 0
}

// fileInfo is what fstat and friends say about a descriptor.
type fileInfo struct {
	key    fileKey
	size   uint64
	blocks uint64
}

// inspect checks that fd is a file we are ready to map.
func (s *Space) inspect(fd int) (fileInfo, Reason, error) {
	fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return fileInfo{}, BadFile, err
	}
	if fl&unix.O_PATH != 0 {
		return fileInfo{}, BadFile, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileInfo{}, BadFile, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < 0 {
		return fileInfo{}, BadFile, nil
	}
	if !s.opts.AnyFilesystem {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(fd, &fs); err != nil {
			return fileInfo{}, BadFile, err
		}
		if t := fs.Type; t != unix.TMPFS_MAGIC && t != unix.HUGETLBFS_MAGIC {
			return fileInfo{}, BadFilesystem, nil
		}
	}
	return fileInfo{
		key:    fileKey{st.Dev, st.Ino, fl&unix.O_ACCMODE == unix.O_RDWR},
		size:   uint64(st.Size),
		blocks: max(uint64(st.Blksize), pageSize),
	}, 0, nil
}

// mapping returns a mapping of fd that covers the first need bytes, from the
// cache or new. Caller holds s.mu.
func (s *Space) mapping(fd int, fi fileInfo, need uint64) (*file, Reason, error) {
	if f := s.files[fi.key]; f != nil && f.length >= need {
		return f, 0, nil
	}
	if fi.key.writable {
		f, r, err := s.mmap(fd, fi, unix.PROT_READ|unix.PROT_WRITE)
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return f, r, err
		}
		// Sealed against writing: use it read-only.
		fi.key.writable = false
		if f := s.files[fi.key]; f != nil && f.length >= need {
			return f, 0, nil
		}
	}
	return s.mmap(fd, fi, unix.PROT_READ)
}

func (s *Space) mmap(fd int, fi fileInfo, prot int) (*file, Reason, error) {
	// hugetlbfs maps whole huge pages only, so round up to the block size.
	length := fi.size + (fi.blocks-fi.size%fi.blocks)%fi.blocks
	if length < fi.size || length > 1<<62 {
		return nil, BeyondFile, nil
	}
	if length > s.opts.MaxFileBytes || s.mapped > s.opts.MaxFileBytes-length || s.mappings >= s.opts.MaxFiles {
		s.dropIdle()
		if length > s.opts.MaxFileBytes || s.mapped > s.opts.MaxFileBytes-length || s.mappings >= s.opts.MaxFiles {
			return nil, NoRoom, nil
		}
	}
	base, err := unix.MmapPtr(fd, 0, nil, uintptr(length), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err == unix.ENOMEM {
		s.dropIdle()
		base, err = unix.MmapPtr(fd, 0, nil, uintptr(length), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		return nil, MapFailed, err
	}
	// Guest memory does not belong in our core dumps; failure only makes them larger.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(base), uintptr(length), unix.MADV_DONTDUMP)
	f := &file{key: fi.key, base: base, length: length, current: true}
	if old := s.files[fi.key]; old != nil { // the file grew
		old.current = false
		if old.windows == 0 {
			s.munmap(old)
		}
	}
	s.files[fi.key] = f
	s.mapped += length
	s.mappings++
	s.stats.filesMapped.Add(1)
	return f, 0, nil
}

// hold counts one more window on f. Caller holds s.mu.
func (s *Space) hold(f *file) {
	f.windows++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
}

// release counts one window less; the last one starts the grace period.
// Caller holds s.mu.
func (s *Space) release(f *file) {
	f.windows--
	if f.windows > 0 {
		return
	}
	if !f.current || s.closed || s.opts.Grace < 0 {
		s.munmap(f)
		return
	}
	f.idle = time.AfterFunc(s.opts.Grace, func() {
		s.mu.Lock()
		expired := f.windows == 0 && f.idle != nil
		if expired {
			s.forget(f)
		}
		s.mu.Unlock()
		if expired { // outside the lock: this takes 80 ms for each touched GiB
			f.unmap()
		}
	})
}

// dropIdle ends the grace period of all files. Caller holds s.mu.
func (s *Space) dropIdle() {
	for _, f := range s.files {
		if f.windows == 0 {
			s.munmap(f)
		}
	}
}

// munmap unmaps f, which no window uses. Caller holds s.mu.
func (s *Space) munmap(f *file) {
	s.forget(f)
	f.unmap()
}

// forget takes f, which no window uses, out of the books. Caller holds s.mu.
func (s *Space) forget(f *file) {
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	if f.current {
		delete(s.files, f.key)
		f.current = false
	}
	s.mapped -= f.length
	s.mappings--
}

func (f *file) unmap() {
	if err := unix.MunmapPtr(f.base, uintptr(f.length)); err != nil {
		// Only possible if the bookkeeping is wrong.
		panic("guestmem: munmap of a mapping of ours: " + err.Error())
	}
	f.base = nil
}

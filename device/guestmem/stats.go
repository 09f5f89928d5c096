// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"sync/atomic"
)

// counters are the running totals of a Space.
type counters struct {
	maps          atomic.Uint64
	unmaps        atomic.Uint64
	filesMapped   atomic.Uint64
	drainTimeouts atomic.Uint64
	denied        atomic.Uint64
	faults        atomic.Uint64
}

// Stats is a snapshot of a Space.
type Stats struct {
	Windows       int    // windows now
	Files         int    // files mapped now, those in their grace period included
	FileBytes     uint64 // bytes of those files
	Maps          uint64 // windows ever added
	Unmaps        uint64 // windows ever removed
	FilesMapped   uint64 // mmap calls
	DrainTimeouts uint64 // unmaps that gave up waiting for pins
	Denied        uint64 // accesses refused: not mapped, no right, bad range
	Faults        uint64 // accesses that met a memory fault
}

// Stats returns a snapshot.
func (s *Space) Stats() Stats {
	s.mu.Lock()
	files, bytes := s.mappings, s.mapped
	s.mu.Unlock()
	return Stats{
		Windows:       s.table.Load().n,
		Files:         files,
		FileBytes:     bytes,
		Maps:          s.stats.maps.Load(),
		Unmaps:        s.stats.unmaps.Load(),
		FilesMapped:   s.stats.filesMapped.Load(),
		DrainTimeouts: s.stats.drainTimeouts.Load(),
		Denied:        s.stats.denied.Load(),
		Faults:        s.stats.faults.Load(),
	}
}

// count books an access error and returns it.
func (s *Space) count(err error) error {
	if e := (*Error)(nil); errors.As(err, &e) && e.Reason == Fault {
		s.stats.faults.Add(1)
	} else {
		s.stats.denied.Add(1)
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/device/guestmem"
)

func (s *Session) dmaMap(q *request) error {
	m, err := decodeDMAMap(q.payload, len(q.fds))
	if err != nil {
		return err
	}
	var acc guestmem.Access
	if m.flags&dmaMapRead != 0 {
		acc |= guestmem.Read
	}
	if m.flags&dmaMapWrite != 0 {
		acc |= guestmem.Write
	}
	if len(q.fds) == 1 {
		err = s.mem.MapFile(m.iova, m.size, q.fds[0], m.offset, acc)
		unix.Close(q.fds[0]) // the mapping does not need it
		q.fds[0] = -1
	} else {
		err = s.mem.MapMessage(m.iova, m.size, acc)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("vfio-user DMA_MAP refused")
		return err
	}
	if s.listener != nil {
		s.listener.DMAMapped(m.iova, m.size)
	}
	return nil
}

func (s *Session) dmaUnmap(p []byte) ([]byte, error) {
	u, err := decodeDMAUnmap(p)
	if err != nil {
		return nil, err
	}
	if u.all {
		err = s.unmapAll()
	} else {
		err = s.unmap(u.iova, u.size)
	}
	if errors.Is(err, guestmem.InUse) {
		// Answering would tell the client that the memory is free.
		s.m.unmapDrainFail.Add(1)
		return nil, errDrop{fmt.Errorf("vfio-user: DMA_UNMAP: %w", err)}
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("vfio-user DMA_UNMAP refused")
		return nil, err
	}
	r := s.payload(dmaUnmapLen)
	copy(r, p)
	return r, nil
}

func (s *Session) unmap(iova, size uint64) error {
	ws, err := s.mem.Inside(iova, size)
	if s.opts.StrictUnmap && (err != nil || len(ws) != 1 || ws[0].IOVA != iova || ws[0].Size != size) {
		return fmt.Errorf("vfio-user: DMA_UNMAP of %#x bytes at iova %#x is not exactly one window: %w", size, iova, syscall.ENOENT)
	}
	if err != nil || len(ws) == 0 {
		return err
	}
	s.unmapping(ws)
	return s.mem.Unmap(iova, size)
}

// unmapAll removes all windows, one by one: the address space has one byte more
// than a size can say.
func (s *Session) unmapAll() error {
	ws := s.mem.Windows()
	s.unmapping(ws)
	for _, w := range ws {
		if err := s.mem.Unmap(w.IOVA, w.Size); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) unmapping(ws []guestmem.Window) {
	if s.listener == nil {
		return
	}
	for _, w := range ws {
		s.listener.DMAUnmapping(w.IOVA, w.Size)
	}
}

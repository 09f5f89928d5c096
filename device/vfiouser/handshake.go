// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// handshake receives the first message, which must be an acceptable VERSION,
// and returns its header. On failure it has sent the error reply.
func (s *Session) handshake() (header, error) {
	if err := s.await(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return header{}, fmt.Errorf("no VERSION within %v: %w", s.opts.HandshakeTimeout, err)
		}
		return header{}, err
	}
	q := &s.req
	err := s.acceptVersion(q)
	s.dropFDs()
	s.sock.skip(q.size)
	if err != nil {
		if q.kind() == typeCommand {
			_ = s.answer(q.header, nil, -1, syscall.EINVAL)
		}
		return header{}, errDrop{err}
	}
	return q.header, nil
}

func (s *Session) acceptVersion(q *request) (err error) {
	switch {
	case q.cmd != CmdVersion || q.kind() != typeCommand:
		return fmt.Errorf("first message is %v, want VERSION", q.cmd)
	case q.noReply():
		return errors.New("VERSION without a reply")
	case len(q.fds) > 0:
		return fmt.Errorf("VERSION with %d descriptors", len(q.fds))
	}
	s.m.requests[CmdVersion].Add(1)
	s.client, err = decodeVersion(q.payload)
	return err
}

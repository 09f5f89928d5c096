// SPDX-License-Identifier: Apache-2.0

package mesh

import "github.com/ernic-dev/ernic/fabric/socket"

const (
	// lookAhead is how much is read behind what is known to come, in bytes: the
	// beginning of the next message, or all of it and more if it is small.
	lookAhead = 8 << 10
	// mostAhead is the most DATA frames of a message that are read at once.
	mostAhead = 20
)

// scatter is the reading half of a plainConn. gRPC asks for the header of each
// HTTP/2 frame, then for its payload, into memory that the slabPool gave it.
// Once the length of a message is known, so are the frames that a sensible peer
// cuts it into, and the memory that gRPC will want them in: scatter reads the
// rest of the message there with one system call. What is asked for then is in
// place already; a peer that cuts differently costs copies, no more.
//
// Payload never lies in front of its place. With frames as large as they may
// be there are no fewer headers in between than was foreseen.
type scatter struct {
	from   socket.Stream
	pool   *slabPool
	frames framing

	ahead   [][]byte // read and not asked for yet
	taken   int      // pieces of ahead that are consumed
	pieces  [][]byte
	headers [mostAhead][frameHeaderLen]byte
	look    []byte
}

// Read takes what comes next.
func (s *scatter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.taken == len(s.ahead) {
		if err := s.fill(p); err != nil {
			return 0, err
		}
	}
	b := s.ahead[s.taken]
	n := min(len(p), len(b))
	if &p[0] != &b[0] {
		copy(p, b[:n])
	}
	if b = b[n:]; len(b) > 0 {
		s.ahead[s.taken] = b
	} else {
		s.ahead[s.taken] = nil
		s.taken++
	}
	s.frames.follow(p[:n])
	return n, nil
}

// fill reads, when nothing is ahead: into p, where the rest of the message will
// be wanted, and ahead of it.
func (s *scatter) fill(p []byte) error {
	s.pieces = append(s.pieces[:0], p)
	s.foresee(len(p))
	s.pieces = append(s.pieces, s.look)
	n, err := s.from.Readv(s.pieces)
	s.ahead, s.taken = s.ahead[:0], 0
	for _, b := range s.pieces {
		if n == 0 {
			break
		}
		k := min(n, len(b))
		s.ahead = append(s.ahead, b[:k])
		n -= k
	}
	clear(s.pieces)
	return err
}

// foresee adds the places of the rest of the message that is under way, if the
// next n bytes are the rest of a frame of it, or of a frame's header.
func (s *scatter) foresee(n int) {
	f := &s.frames
	header := f.left == 0 && f.have+n == frameHeaderLen
	payload := f.data && f.left == n
	if f.skip > 0 || f.known < messagePrefix || !header && !payload {
		return
	}
	rest := f.message
	if payload {
		rest -= n
	}
	room := s.pool.behind()
	for i := range s.headers {
		k := min(rest, http2Frame)
		if k <= pooledAbove || k > len(room) {
			return
		}
		if i > 0 || payload {
			s.pieces = append(s.pieces, s.headers[i][:])
		}
		s.pieces = append(s.pieces, room[:k])
		room = room[k:]
		rest -= k
	}
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import "github.com/ernic-dev/ernic/fabric/socket"

const (
	// maxHeld is what gather keeps back at most while a message is incomplete,
	// in bytes. A peer grants more window once it has a quarter of one to
	// grant; what is kept back must not be what it waits for, so this is less
	// than three quarters of the smallest window.
	maxHeld = 288 << 10
	// copyBelow is the size of pieces that are copied, not pointed at.
	copyBelow = 256
	// copies is the room for them.
	copies = 4 << 10
)

// gather is the writing half of a plainConn. gRPC writes each HTTP/2 frame in
// pieces; gather points at those that belong to a message and writes all
// pieces of the message with one system call. Everything else goes out at once.
//
// The memory of a message must not change until its last piece was taken: the
// message is written by then, or never will be. gRPC frees its buffers one by
// one before that; a batch waits for the last.
type gather struct {
	to     socket.Stream
	frames framing

	pieces [][]byte
	held   int
	small  []byte
	// extends is set when the last piece is the end of small.
	extends bool
	err     error
}

// Write takes one piece.
func (g *gather) Write(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	stable := g.frames.data && g.frames.left >= len(b) && len(b) >= copyBelow
	g.frames.follow(b)
	if !stable && len(g.small)+len(b) > cap(g.small) {
		g.flush()
	}
	if stable {
		g.pieces = append(g.pieces, b)
		g.held += len(b)
		g.extends = false
	} else {
		g.copy(b)
	}
	if g.held >= maxHeld || g.frames.between() && (!g.frames.data || !g.frames.inMessage()) {
		g.flush()
	}
	if g.err != nil {
		return 0, g.err
	}
	return len(b), nil
}

// copy adds a piece whose memory will be used again.
func (g *gather) copy(b []byte) {
	g.held += len(b)
	last := len(g.pieces) - 1
	switch {
	case len(b) > cap(g.small):
		g.pieces = append(g.pieces, append([]byte(nil), b...))
		g.extends = false
	case g.extends:
		g.small = append(g.small, b...)
		g.pieces[last] = g.pieces[last][:len(g.pieces[last])+len(b)]
	case len(b) > 0:
		at := len(g.small)
		g.small = append(g.small, b...)
		g.pieces = append(g.pieces, g.small[at:])
		g.extends = true
	}
}

// flush writes all pieces.
func (g *gather) flush() {
	if g.err == nil && g.held > 0 {
		g.err = g.to.Writev(g.pieces)
	}
	clear(g.pieces)
	g.pieces, g.small, g.held, g.extends = g.pieces[:0], g.small[:0], 0, false
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import "encoding/binary"

const (
	// frameHeaderLen is the length of an HTTP/2 frame header:
	//
	//	0      3    4     5         9
	//	| len  |type|flags| stream  |  then len bytes
	frameHeaderLen = 9
	frameData      = 0 // its type, of DATA frames
	// prefaceLen is what a dialer sends before its first frame.
	prefaceLen = 24
)

// framing follows a stream of HTTP/2 frames, and the gRPC messages in its DATA
// frames: a prefix of one byte of flags and four of length, then the bytes. It
// reads along and judges nothing; a connection has one stream with DATA.
type framing struct {
	skip int // bytes before the first frame

	header [frameHeaderLen]byte
	have   int  // bytes of header that have passed
	left   int  // bytes of the frame's payload that have not passed
	data   bool // the latest frame is a DATA frame

	prefix  [messagePrefix]byte
	known   int // bytes of prefix that have passed
	message int // bytes of the message that have not passed, once the prefix has
}

// follow tells of bytes that have passed.
func (f *framing) follow(b []byte) {
	for len(b) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
		case f.left == 0:
			n := copy(f.header[f.have:], b)
			b = b[n:]
			if f.have += n; f.have == frameHeaderLen {
				f.have = 0
				f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
				f.data = f.header[3] == frameData
			}
		default:
			n := min(f.left, len(b))
			if f.data {
				f.followData(b[:n])
			}
			f.left -= n
			b = b[n:]
		}
	}
}

func (f *framing) followData(b []byte) {
	for len(b) > 0 {
		var n int
		if f.known < messagePrefix {
			n = copy(f.prefix[f.known:], b)
			if f.known += n; f.known == messagePrefix {
				f.message = int(binary.BigEndian.Uint32(f.prefix[1:]))
			}
		} else {
			n = min(f.message, len(b))
			f.message -= n
		}
		b = b[n:]
		if f.known == messagePrefix && f.message == 0 {
			f.known = 0
		}
	}
}

// between reports whether the last frame has passed as a whole.
func (f *framing) between() bool { return f.skip == 0 && f.have == 0 && f.left == 0 }

// inMessage reports whether a message has begun and not ended.
func (f *framing) inMessage() bool { return f.known > 0 }

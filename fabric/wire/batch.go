// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/fabric"
)

// Sizes of the batch format, in bytes unless said otherwise.
const (
	PrologueLen    = 16
	FrameHeaderLen = 32
	PingLen        = 8
	// MaxFrames is the most frames in a batch.
	MaxFrames = 256
	// MaxPadding is the most padding behind a batch.
	MaxPadding = 16 << 10
	// MaxHead is the largest offset of the payload area.
	MaxHead = 64 << 10
	// MaxPayloads is the largest payload area.
	MaxPayloads = fabric.MaxChunk
	// MaxMessage is the largest message on a stream.
	MaxMessage = MaxHead + MaxPayloads + MaxPadding
)

// Version range of this implementation.
const (
	VersionMin = 1
	VersionMax = 1
)

const (
	batchMagic = 0x45524e46 // "ERNF"
	flagInline = 1
	knownFlags = flagInline
)

// Type of a frame on the wire. Append only.
type Type uint8

// Frame types.
const (
	Data Type = 0
	Ping Type = 1
	Pong Type = 2
	// Bye is the last frame of a connection that its sender closes.
	Bye Type = 3

	types = 4
)

// PutToken and Token write and read the payload of a frame that is not Data.
func PutToken(b []byte, token uint64) { binary.BigEndian.PutUint64(b, token) }

// Token reads what PutToken wrote.
func Token(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

// Frame is one frame of a batch. Header and Payload point into the message.
type Frame struct {
	Type     Type
	Class    fabric.Class
	Src, Dst uint32
	Flow     uint32
	Seq      uint64
	Header   []byte
	Payload  []byte
}

// AppendPrologue starts a batch in b; FinishPrologue completes it.
func AppendPrologue(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, batchMagic)
	return append(b, make([]byte, PrologueLen-4)...)
}

// AppendFrame appends f's header fields and header bytes to b, the head of a
// batch. If inline is true the payload follows at once, otherwise its bytes
// belong into the payload area, in the order of the frames.
func AppendFrame(b []byte, f *Frame, inline bool) []byte {
	var flags byte
	if inline {
		flags = flagInline
	}
	be := binary.BigEndian
	b = append(b, byte(f.Type), byte(f.Class), flags, 0)
	b = be.AppendUint16(b, uint16(len(f.Header)))
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, uint32(len(f.Payload)))
	b = be.AppendUint32(b, f.Src)
	b = be.AppendUint32(b, f.Dst)
	b = be.AppendUint32(b, f.Flow)
	b = be.AppendUint64(b, f.Seq)
	b = append(b, f.Header...)
	if inline {
		b = append(b, f.Payload...)
	}
	return b
}

// FinishPrologue writes the counts into the head of a batch: head is the whole
// head, payloads the length of the payload area that follows it.
func FinishPrologue(head []byte, version uint8, frames, payloads int) {
	be := binary.BigEndian
	head[4], head[5] = version, 0
	be.PutUint16(head[6:], uint16(frames))
	be.PutUint32(head[8:], uint32(len(head)))
	be.PutUint32(head[12:], uint32(len(head)+payloads))
}

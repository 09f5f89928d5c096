// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/wire"
)

const (
	// inlineBelow is the largest payload that is copied behind its header. gRPC
	// never tells when it is done with a buffer of this size or less.
	inlineBelow = pooledAbove
	// headCap is the head of a batch, in bytes.
	headCap = 16 << 10
	// headRoom is the most that one frame adds to the head.
	headRoom = wire.FrameHeaderLen + fabric.MaxHeader + inlineBelow
)

// zeros is what padding is made of. It is never written.
var zeros [2 * pooledAbove]byte

// txBatch is one message on its way out. It comes from the free list of its
// connection and goes back there when gRPC has freed all of its buffers.
type txBatch struct {
	conn   *conn
	refs   atomic.Int32 // buffers gRPC has not freed, plus one while filled
	frames int
	// controls is how many of the frames are not data.
	controls int
	bytes    int // transport bytes of data frames
	area     int // bytes in the payload area

	released atomic.Bool // the owners of payloads are released

	piece    piece
	head     []byte
	pad      []byte
	payloads [][]byte
	owners   []fabric.Releaser // of payloads
	copied   []fabric.Releaser // owners of payloads that were copied
	outgoing mem.BufferSlice
}

// piece is a pool that takes a buffer of a batch back. On a connection that
// breaks it may never be called.
type piece struct{ batch *txBatch }

// Get is never called.
func (*piece) Get(int) *[]byte { return new([]byte) }

// Put ends gRPC's use of a buffer.
func (p *piece) Put(*[]byte) { p.batch.unref() }

func newTxBatch(c *conn) *txBatch {
	b := &txBatch{
		conn:     c,
		head:     make([]byte, 0, headCap),
		payloads: make([][]byte, 0, wire.MaxFrames),
		owners:   make([]fabric.Releaser, 0, wire.MaxFrames),
		copied:   make([]fabric.Releaser, 0, wire.MaxFrames),
		outgoing: make(mem.BufferSlice, 0, wire.MaxFrames+2),
	}
	b.piece.batch = b
	return b
}

// start empties the batch.
func (b *txBatch) start() {
	b.refs.Store(1)
	b.released.Store(false)
	b.frames, b.controls, b.bytes, b.area = 0, 0, 0, 0
	b.head = wire.AppendPrologue(b.head[:0])
	b.payloads, b.owners = b.payloads[:0], b.owners[:0]
	b.copied = b.copied[:0]
	b.outgoing = b.outgoing[:0]
}

// limit is the largest payload that the next frame may have, -1 if the batch
// takes no further frame.
func (b *txBatch) limit() int {
	if b.frames == wire.MaxFrames || len(b.head)+headRoom > headCap {
		return -1
	}
	return max(wire.MaxPayloads-b.area, inlineBelow)
}

// add appends a frame, whose payload is at most limit.
func (b *txBatch) add(f *wire.Frame, owner fabric.Releaser) {
	n := len(f.Payload)
	inline := n <= inlineBelow
	b.head = wire.AppendFrame(b.head, f, inline)
	b.frames++
	b.bytes += len(f.Header) + n
	if !inline {
		b.payloads, b.owners = append(b.payloads, f.Payload), append(b.owners, owner)
		b.area += n
	} else if owner != nil {
		b.copied = append(b.copied, owner)
	}
}

// finish makes the message of what was added.
func (b *txBatch) finish(version uint8) {
	head := b.head
	wire.FinishPrologue(head, version, b.frames, b.area)
	pad := padding(len(head) + b.area)

	b.refs.Add(int32(1 + len(b.payloads)))
	b.outgoing = append(b.outgoing, mem.NewBuffer(&b.head, &b.piece))
	for i := range b.payloads {
		b.outgoing = append(b.outgoing, mem.NewBuffer(&b.payloads[i], &b.piece))
	}
	if pad > 0 {
		b.refs.Add(1)
		b.pad = zeros[:pad]
		b.outgoing = append(b.outgoing, mem.NewBuffer(&b.pad, &b.piece))
	}
}

// padding is what to append to a message of n bytes so that its last DATA
// frame is one that gRPC reads into a pooled buffer: otherwise the end of the
// payload would not be adjacent to the rest.
func padding(n int) int {
	n += messagePrefix
	last := n % http2Frame
	if n < http2Frame || last == 0 || last > pooledAbove {
		return 0
	}
	return pooledAbove + 1 - last
}

// releaseCopied releases the owners whose bytes are in the head.
func (b *txBatch) releaseCopied() {
	for i, o := range b.copied {
		b.copied[i] = nil
		o.Release()
	}
	b.copied = b.copied[:0]
}

// release releases the owners of the payloads, the first time it is called:
// when nobody looks at the batch any more, or at the end of the connection.
func (b *txBatch) release() {
	if b.released.Swap(true) {
		return
	}
	for i, o := range b.owners {
		b.owners[i] = nil
		if o != nil {
			o.Release()
		}
	}
}

// buffers is what the codec hands to gRPC.
func (b *txBatch) buffers() mem.BufferSlice { return b.outgoing }

func (b *txBatch) unref() {
	if b.refs.Add(-1) == 0 {
		b.conn.recycle(b)
	}
}

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

	head     headPart
	pad      padPart
	parts    []part
	copied   []fabric.Releaser // owners of payloads that were copied
	outgoing mem.BufferSlice
}

// part is a payload on its way out. gRPC calls Put when it has written it; on a
// connection that breaks it may never do so.
type part struct {
	batch    *txBatch
	payload  []byte
	owner    fabric.Releaser
	released atomic.Bool
}

// headPart is the head of a batch.
type headPart struct {
	batch *txBatch
	bytes []byte
}

// padPart is the padding of a batch.
type padPart struct {
	batch *txBatch
	bytes []byte
}

// Get is never called: these pools only take back.
func (*part) Get(int) *[]byte     { return new([]byte) }
func (*headPart) Get(int) *[]byte { return new([]byte) }
func (*padPart) Get(int) *[]byte  { return new([]byte) }

// Put releases the payload.
func (p *part) Put(*[]byte) {
	p.release()
	p.batch.unref()
}

// release releases the owner the first time it is called.
func (p *part) release() {
	if p.released.Swap(true) {
		return
	}
	owner := p.owner
	p.owner = nil
	if owner != nil {
		owner.Release()
	}
}

// Put ends the use of the head.
func (p *headPart) Put(*[]byte) { p.batch.unref() }

// Put ends the use of the padding.
func (p *padPart) Put(*[]byte) { p.batch.unref() }

func newTxBatch(c *conn) *txBatch {
	b := &txBatch{
		conn:     c,
		parts:    make([]part, 0, wire.MaxFrames),
		copied:   make([]fabric.Releaser, 0, wire.MaxFrames),
		outgoing: make(mem.BufferSlice, 0, wire.MaxFrames+2),
	}
	b.head = headPart{batch: b, bytes: make([]byte, 0, headCap)}
	b.pad.batch = b
	return b
}

// start empties the batch.
func (b *txBatch) start() {
	b.refs.Store(1)
	b.frames, b.controls, b.bytes, b.area = 0, 0, 0, 0
	b.head.bytes = wire.AppendPrologue(b.head.bytes[:0])
	b.parts = b.parts[:0]
	b.copied = b.copied[:0]
	b.outgoing = b.outgoing[:0]
}

// limit is the largest payload that the next frame may have, -1 if the batch
// takes no further frame.
func (b *txBatch) limit() int {
	if b.frames == wire.MaxFrames || len(b.head.bytes)+headRoom > headCap {
		return -1
	}
	return max(wire.MaxPayloads-b.area, inlineBelow)
}

// add appends a frame, whose payload is at most limit.
func (b *txBatch) add(f *wire.Frame, owner fabric.Releaser) {
	n := len(f.Payload)
	inline := n <= inlineBelow
	b.head.bytes = wire.AppendFrame(b.head.bytes, f, inline)
	b.frames++
	b.bytes += len(f.Header) + n
	if !inline {
		b.parts = b.parts[:len(b.parts)+1]
		p := &b.parts[len(b.parts)-1]
		p.batch, p.payload, p.owner = b, f.Payload, owner
		p.released.Store(false)
		b.area += n
	} else if owner != nil {
		b.copied = append(b.copied, owner)
	}
}

// finish makes the message of what was added.
func (b *txBatch) finish(version uint8) {
	head := b.head.bytes
	wire.FinishPrologue(head, version, b.frames, b.area)
	pad := padding(len(head) + b.area)

	b.refs.Add(int32(1 + len(b.parts)))
	b.outgoing = append(b.outgoing, mem.NewBuffer(&b.head.bytes, &b.head))
	for i := range b.parts {
		p := &b.parts[i]
		b.outgoing = append(b.outgoing, mem.NewBuffer(&p.payload, p))
	}
	if pad > 0 {
		b.refs.Add(1)
		b.pad.bytes = zeros[:pad]
		b.outgoing = append(b.outgoing, mem.NewBuffer(&b.pad.bytes, &b.pad))
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

// abandon releases the owners that gRPC has not given back. The connection must
// be broken.
func (b *txBatch) abandon() {
	for i := range b.parts {
		b.parts[i].release()
	}
}

// buffers is what the codec hands to gRPC.
func (b *txBatch) buffers() mem.BufferSlice { return b.outgoing }

func (b *txBatch) unref() {
	if b.refs.Add(-1) == 0 {
		b.conn.recycle(b)
	}
}

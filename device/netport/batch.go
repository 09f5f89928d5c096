// SPDX-License-Identifier: Apache-2.0

package netport

// Releaser owns memory that is lent. Release may be called by any goroutine and
// does not block.
type Releaser interface{ Release() }

// Batch is a set of receive buffers, made once per receiving goroutine.
type Batch struct {
	bufs     [][]byte
	frames   [][]byte
	offloads []Offload
	owners   []Releaser
	lent     int // owners that are not nil
}

// NewBatch returns a batch of n buffers of size bytes each. A frame that does
// not fit is cut by the port; size must leave room to tell an oversized frame.
func NewBatch(n, size int) *Batch {
	b := &Batch{
		bufs: make([][]byte, n), frames: make([][]byte, n), offloads: make([]Offload, n), owners: make([]Releaser, n),
	}
	mem := make([]byte, n*size)
	for i := range b.bufs {
		b.bufs[i] = mem[i*size : (i+1)*size : (i+1)*size]
	}
	return b
}

// Len returns the number of buffers.
func (b *Batch) Len() int { return len(b.bufs) }

// Buffer returns buffer i for a port to fill.
func (b *Batch) Buffer(i int) []byte { return b.bufs[i] }

// SetLen says that buffer i holds a finished frame of n bytes.
func (b *Batch) SetLen(i, n int) { b.frames[i], b.offloads[i] = b.bufs[i][:n], Offload{} }

// Set says that frame i is a part of buffer i, or of memory that stays as it is,
// with work left in it.
func (b *Batch) Set(i int, frame []byte, o Offload) { b.frames[i], b.offloads[i] = frame, o }

// Lend is Set of a frame in the memory of owner, which is released by Done. The
// frame is not written to.
func (b *Batch) Lend(i int, frame []byte, o Offload, owner Releaser) {
	b.Set(i, frame, o)
	b.owners[i] = owner
	b.lent++
}

// Frame returns received frame i. It may not be written to.
func (b *Batch) Frame(i int) []byte { return b.frames[i] }

// Offload returns the work that is left in frame i.
func (b *Batch) Offload(i int) *Offload { return &b.offloads[i] }

// Done gives the frames back; they are not looked at any more.
func (b *Batch) Done() {
	if b.lent == 0 {
		return
	}
	for i, o := range b.owners {
		if o != nil {
			b.owners[i] = nil
			b.frames[i] = nil
			o.Release()
		}
	}
	b.lent = 0
}

// SPDX-License-Identifier: Apache-2.0

// Package netport is the seam between a LIF and whatever carries its Ethernet
// frames on the host: a TAP, a wire in memory, the mesh. A frame is the bytes
// from the destination address to the end of the payload: no preamble, no FCS,
// not padded.
package netport

import "errors"

// ErrClosed is what Receive and Send return after Close.
var ErrClosed = errors.New("port is closed")

// ErrFull is what Send returns when the port cannot take the frame now. The
// frame is lost, as on a wire.
var ErrFull = errors.New("port cannot take the frame now")

// Port is the host side of a LIF. Receive is called by one goroutine per queue,
// Send by any number of goroutines.
type Port interface {
	// Name says what the port is for logs and errors, such as "tap:ernic0".
	Name() string

	// Queues returns the number of receive queues, at least 1. Frames of one
	// flow come on one queue.
	Queues() int

	// Receive blocks until queue q has a frame and then takes what is there, up
	// to the batch's size. It returns the number of frames. Any error but
	// ErrClosed may pass; the caller waits a little and calls again.
	Receive(q int, b *Batch) (int, error)

	// Send passes one frame on and keeps nothing of it. It does not block: a
	// frame that cannot be taken is refused with an error. q is a hint.
	Send(q int, frame []byte) error

	// Close ends every Receive with ErrClosed.
	Close() error
}

// Batch is a set of receive buffers, made once per receiving goroutine.
type Batch struct {
	bufs   [][]byte
	frames [][]byte
}

// NewBatch returns a batch of n buffers of size bytes each. A frame that does
// not fit is cut by the port; size must leave room to tell an oversized frame.
func NewBatch(n, size int) *Batch {
	b := &Batch{bufs: make([][]byte, n), frames: make([][]byte, n)}
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

// SetLen says that buffer i holds a frame of n bytes.
func (b *Batch) SetLen(i, n int) { b.frames[i] = b.bufs[i][:n] }

// Frame returns received frame i.
func (b *Batch) Frame(i int) []byte { return b.frames[i] }

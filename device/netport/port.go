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

// Offloader is a Port that also takes frames that are not finished, and hands out
// such frames.
type Offloader interface {
	Port

	// SendOffload is Send of a frame with work left in it. A frame to be cut may
	// have MaxOffload bytes.
	SendOffload(q int, frame []byte, o *Offload) error
}

// Carrier is a Port that knows whether its wire is there. Any other port is up
// until it is closed.
type Carrier interface {
	Port

	// Watch calls changed with the state there is, and again with every change,
	// one call at a time, until Close. why says what is missing, "" when up. It
	// is called once.
	Watch(changed func(up bool, why string))
}

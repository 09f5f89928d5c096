// SPDX-License-Identifier: Apache-2.0

package fabric

import "fmt"

// Limits of one frame.
const (
	// MaxHeader is the largest Frame.Header in bytes.
	MaxHeader = 256
	// MaxChunk is the largest Frame.Payload in bytes. Longer messages are cut
	// by the sender, so that a large one holds up a small one of another flow
	// by one chunk at most.
	MaxChunk = 256 << 10
	// Manager is the node id of the manager. Workers count from 1.
	Manager uint32 = 0
)

// Class says what a link does with a frame it has no room for. The values are
// part of the wire format: append only.
type Class uint8

// Frame classes.
const (
	// Reliable is RDMA traffic of connected queue pairs (RC, UC): back-pressure.
	Reliable Class = 0
	// Datagram is RDMA traffic without a connection (UD, GSI): dropped and counted.
	Datagram Class = 1
	// Ethernet is a LIF's frame: dropped and counted.
	Ethernet Class = 2
	// Control is a message from worker to worker: back-pressure.
	Control Class = 3

	// Classes is the number of classes.
	Classes = 4
)

var classNames = [Classes]string{"reliable", "datagram", "ethernet", "control"}

// String names the class in lower case.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Valid reports whether c is a class this package knows.
func (c Class) Valid() bool { return c < Classes }

// Lossy reports whether frames of the class are dropped, and not pushed back,
// when there is no room.
func (c Class) Lossy() bool { return c == Datagram || c == Ethernet }

// Releaser owns the bytes of a frame. Release may be called from any
// goroutine and must not block.
type Releaser interface{ Release() }

// Frame is the unit a link carries. Links copy the struct and never the
// payload.
type Frame struct {
	// Dst and Src are node ids. A link fills in Src when it sends.
	Dst, Src uint32
	// Flow is the ordering key, usually a queue pair number.
	Flow uint32
	// Class decides between back-pressure and loss.
	Class Class
	// Header holds the transport's header, at most MaxHeader bytes.
	Header []byte
	// Payload holds at most MaxChunk bytes. A receiver may not write to it.
	Payload []byte
	// Owner is released once nobody needs Header and Payload any more; until
	// then the bytes must not change. Without an Owner nobody is told, and they
	// must never change.
	Owner Releaser
}

// Release releases the Owner, if there is one, and forgets the bytes.
func (f *Frame) Release() {
	o := f.Owner
	f.Owner, f.Header, f.Payload = nil, nil, nil
	if o != nil {
		o.Release()
	}
}

// Drop releases the Owner and leaves the frame as it is: what a link does to a
// frame of its caller that it does not take.
func (f *Frame) Drop() {
	if f.Owner != nil {
		f.Owner.Release()
	}
}

// Size is the number of transport bytes the frame carries.
func (f *Frame) Size() int { return len(f.Header) + len(f.Payload) }

// Check says why a link must refuse the frame, or returns nil.
func (f *Frame) Check() error {
	switch {
	case !f.Class.Valid():
		return fmt.Errorf("fabric: frame to node %d: unknown class %d", f.Dst, uint8(f.Class))
	case len(f.Header) > MaxHeader:
		return fmt.Errorf("fabric: frame to node %d: header of %d bytes exceeds %d", f.Dst, len(f.Header), MaxHeader)
	case len(f.Payload) > MaxChunk:
		return fmt.Errorf("fabric: frame to node %d: payload of %d bytes exceeds %d", f.Dst, len(f.Payload), MaxChunk)
	}
	return nil
}

// Groups is the number of groups that flows are hashed into. A link schedules
// groups, not single flows, so that its state has a fixed size.
const Groups = 256

// Group maps a flow to its group. The function is part of the contract
// between both ends only in so far as it never changes within a process.
func Group(flow uint32) uint8 {
	// Queue pair numbers are small and dense. A multiplicative hash spreads
	// neighbours, and multiples of a power of two, over all groups.
	return uint8((flow * 0x9E3779B1) >> 24)
}

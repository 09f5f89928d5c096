// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/ernic-dev/ernic/fabric/wire"
)

// rxMessage is a received message and the Owner of the frames in it. It goes
// back to its pool when all of them are released.
type rxMessage struct {
	refs    atomic.Int32
	bytes   []byte          // the message, contiguous
	buffers mem.BufferSlice // what bytes points into, if it was not copied
	copied  *[]byte         // what bytes points into otherwise
}

var (
	rxMessages = sync.Pool{New: func() any { return new(rxMessage) }}
	// rxCopies holds memory for messages that did not arrive contiguously.
	rxCopies = sync.Pool{New: func() any { b := make([]byte, wire.MaxMessage); return &b }}
)

// newRxMessage returns a message with one reference, the caller's.
func newRxMessage() *rxMessage {
	m := rxMessages.Get().(*rxMessage)
	m.refs.Store(1)
	return m
}

// take is called by the codec with the buffers of the next message.
func (m *rxMessage) take(data mem.BufferSlice) {
	if all, ok := join(data); ok {
		data.Ref()
		m.bytes, m.buffers = all, data
		return
	}
	n := data.Len()
	c := rxCopies.Get().(*[]byte)
	if n > len(*c) {
		// The limit on received messages keeps this from happening.
		b := make([]byte, n)
		c = &b
	}
	data.CopyTo(*c)
	m.bytes, m.copied = (*c)[:n], c
}

// hold adds n references.
func (m *rxMessage) hold(n int) { m.refs.Add(int32(n)) }

// Release gives a reference back, on any goroutine.
func (m *rxMessage) Release() {
	n := m.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		panic("mesh: a received frame was released twice")
	}
	if m.copied != nil {
		rxCopies.Put(m.copied)
	}
	m.buffers.Free()
	m.bytes, m.buffers, m.copied = nil, nil, nil
	rxMessages.Put(m)
}

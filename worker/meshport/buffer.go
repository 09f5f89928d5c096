// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/fabric"
)

// small is the size up to which a received frame is copied: the memory it came in
// belongs to many frames and should not wait for a guest with the smallest of them.
const small = 2048

// sizes are the classes of buffers.
var sizes = [...]int{small, 10 << 10, netport.MaxOffload}

var pools [len(sizes)]sync.Pool

// buffer holds a frame on its way out, to one node or to many, or a small one on
// its way in.
type buffer struct {
	refs   atomic.Int32
	class  uint8
	header [headerLen]byte
	data   []byte
	frame  fabric.Frame // for the call of Send, so that it is not allocated
}

// getBuffer returns a buffer that holds a copy of data, of at most MaxOffload
// bytes, with one reference.
func getBuffer(data []byte) *buffer {
	class := 0
	for len(data) > sizes[class] {
		class++
	}
	b, _ := pools[class].Get().(*buffer)
	if b == nil {
		b = &buffer{class: uint8(class), data: make([]byte, 0, sizes[class])}
	}
	b.data = append(b.data[:0], data...)
	b.refs.Store(1)
	return b
}

// Release implements [fabric.Releaser] and [netport.Releaser].
func (b *buffer) Release() {
	if b.refs.Add(-1) == 0 {
		pools[b.class].Put(b)
	}
}

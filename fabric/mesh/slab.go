// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/ernic-dev/ernic/fabric/wire"
)

const (
	// http2Frame is the largest DATA frame gRPC sends.
	http2Frame = 16 << 10
	// pooledAbove is the size above which gRPC asks a pool for a buffer; DATA
	// frames up to it get memory of their own.
	pooledAbove = 1 << 10
	// messagePrefix is what gRPC puts in front of each message.
	messagePrefix = 5

	slabSize    = 512 << 10
	slabHandles = 128
	// slabRoom is what a slab must have left for a new message to start in it.
	slabRoom  = wire.MaxHead/4 + wire.MaxPayloads + http2Frame
	keepSlabs = 4
)

// slabPool is the buffer pool of one connection. gRPC asks it for one buffer
// per DATA frame, in the order of arrival; consecutive buffers are adjacent in
// memory, with their capacity reaching to the end of the slab, so that join can
// put a message of many DATA frames together without copying.
//
// Where one message ends is guessed: a buffer smaller than a full DATA frame
// is taken for the last of its message. A wrong guess costs a copy, no more.
type slabPool struct {
	mu      sync.Mutex // guards all below
	current *slab
	free    []*slab
	// owner finds the slab of a handle that comes back.
	owner map[*[]byte]*slab
	// boundary is set when the last buffer handed out ended a message.
	boundary bool
}

// slab is a run of memory that is handed out piece by piece from the front and
// reused as a whole.
type slab struct {
	mem     []byte
	handles [slabHandles][]byte
	off     int // first byte not handed out
	used    int // handles handed out
	refs    int // handles not yet back
}

var _ mem.BufferPool = (*slabPool)(nil)

func newSlabPool() *slabPool {
	return &slabPool{owner: make(map[*[]byte]*slab)}
}

// Get returns a buffer of n bytes.
func (p *slabPool) Get(n int) *[]byte {
	if n <= pooledAbove || n > http2Frame {
		b := make([]byte, n)
		return &b
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	switch {
	case s == nil:
		s = p.next()
	case s.refs == 0:
		s.off, s.used = 0, 0
	case s.off+n > slabSize || s.used == slabHandles || p.boundary && slabSize-s.off < slabRoom:
		s = p.next()
	}
	p.boundary = n < http2Frame
	h := &s.handles[s.used]
	*h = s.mem[s.off : s.off+n]
	s.off += n
	s.used++
	s.refs++
	return h
}

// next makes a slab without users the current one.
func (p *slabPool) next() *slab {
	if n := len(p.free); n > 0 {
		p.current, p.free = p.free[n-1], p.free[:n-1]
		p.current.off, p.current.used = 0, 0
		return p.current
	}
	s := &slab{mem: make([]byte, slabSize)}
	for i := range s.handles {
		p.owner[&s.handles[i]] = s
	}
	p.current = s
	return s
}

// Put takes a buffer back. Any goroutine may call it.
func (p *slabPool) Put(h *[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.owner[h]
	if s == nil {
		return
	}
	s.refs--
	if s.refs > 0 || s == p.current {
		return
	}
	if len(p.free) < keepSlabs {
		p.free = append(p.free, s)
		return
	}
	p.forget(s)
}

// behind is the memory that the next buffers are likely to come from.
func (p *slabPool) behind() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	if s == nil || s.refs == 0 {
		return nil
	}
	return s.mem[s.off:]
}

func (p *slabPool) forget(s *slab) {
	for i := range s.handles {
		delete(p.owner, &s.handles[i])
	}
}

// trim gives memory back that nobody uses, on a connection that is idle.
func (p *slabPool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.free {
		p.forget(s)
	}
	p.free = nil
	if p.current != nil && p.current.refs == 0 {
		p.forget(p.current)
		p.current = nil
	}
}

// join returns the bytes of all buffers as one slice if they are adjacent in
// memory.
func join(buffers mem.BufferSlice) ([]byte, bool) {
	if len(buffers) == 0 {
		return nil, true
	}
	all := buffers[0].ReadOnlyData()
	for _, b := range buffers[1:] {
		next := b.ReadOnlyData()
		if len(next) == 0 {
			continue
		}
		n := len(all)
		if cap(all)-n < len(next) {
			return nil, false
		}
		all = all[:n+len(next)]
		if &all[n] != &next[0] {
			return nil, false
		}
	}
	return all, true
}

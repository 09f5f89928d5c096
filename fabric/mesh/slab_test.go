// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/ernic-dev/ernic/fabric/wire"
)

// receiveAs cuts n bytes the way gRPC does and reads them through the pool.
func receiveAs(p *slabPool, n int, fill func([]byte)) mem.BufferSlice {
	var s mem.BufferSlice
	for n > 0 {
		k := min(n, http2Frame)
		n -= k
		if mem.IsBelowBufferPoolingThreshold(k) {
			b := make([]byte, k)
			fill(b)
			s = append(s, mem.SliceBuffer(b))
			continue
		}
		h := p.Get(k)
		fill(*h)
		s = append(s, mem.NewBuffer(h, p))
	}
	return s
}

func TestPadding_LeavesNoSmallPieceAtTheEnd(t *testing.T) {
	for n := 1; n <= 3*http2Frame+10; n++ {
		pad := padding(n)
		total := n + pad + messagePrefix
		last := total % http2Frame
		if total > http2Frame && last != 0 && last <= pooledAbove {
			t.Fatalf("a message of %d bytes with %d of padding ends with a piece of %d", n, pad, last)
		}
		if pad > pooledAbove || pad > wire.MaxPadding || n < http2Frame-messagePrefix && pad > 0 {
			t.Fatalf("%d bytes of padding for %d", pad, n)
		}
	}
}

func TestSlabPool_MessagesAreContiguousAndIntact(t *testing.T) {
	p := newSlabPool()
	r := rand.New(rand.NewPCG(7, 7))
	type held struct {
		s    mem.BufferSlice
		want []byte
	}
	var live []held
	joined := 0
	const messages = 3000
	for range messages {
		n := 1 + r.IntN(wire.MaxPayloads)
		if r.IntN(2) == 0 {
			n = 1 + r.IntN(4000)
		}
		n += padding(n) + messagePrefix
		seed := byte(r.Uint32())
		i := 0
		want := make([]byte, n)
		for j := range want {
			want[j] = seed + byte(j*7)
		}
		s := receiveAs(p, n, func(b []byte) { i += copy(b, want[i:]) })
		if all, ok := join(s); ok {
			joined++
			if !bytes.Equal(all, want) {
				t.Fatal("the joined message is not what was received")
			}
		}
		live = append(live, held{s, want})
		for len(live) > r.IntN(8) {
			k := r.IntN(len(live))
			if !bytes.Equal(live[k].s.Materialize(), live[k].want) {
				t.Fatal("a held message was overwritten")
			}
			live[k].s.Free()
			live = append(live[:k], live[k+1:]...)
		}
	}
	if joined < messages*98/100 {
		t.Errorf("%d of %d messages were contiguous", joined, messages)
	}
	for _, h := range live {
		h.s.Free()
	}
	p.trim()
	if len(p.owner) != 0 || p.current != nil || p.free != nil {
		t.Errorf("after trim: %d handles, current %v, %d free", len(p.owner), p.current != nil, len(p.free))
	}
}

func TestSlabPool_IsReusedByAQuickConsumer(t *testing.T) {
	p := newSlabPool()
	for range 100 {
		receiveAs(p, 200<<10, func([]byte) {}).Free()
	}
	if n := len(p.owner) / slabHandles; n != 1 {
		t.Errorf("%d slabs for one message at a time", n)
	}
}

func TestSlabPool_TakesBuffersBackFromManyGoroutines(t *testing.T) {
	p := newSlabPool()
	c := make(chan mem.BufferSlice, 8)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for s := range c {
				s.Free()
			}
		})
	}
	for i := range 3000 {
		c <- receiveAs(p, 1000+i*37%100000, func(b []byte) { b[0] = 1 })
	}
	close(c)
	wg.Wait()
	p.trim()
	if len(p.owner) != 0 {
		t.Errorf("%d handles left", len(p.owner))
	}
	if n := testing.AllocsPerRun(100, func() {
		h := p.Get(5000)
		p.Put(h)
	}); n > 0 {
		t.Errorf("%v allocations per buffer", n)
	}
}

func TestJoin_RefusesWhatIsNotAdjacent(t *testing.T) {
	a, b := make([]byte, 10, 100), make([]byte, 10)
	if _, ok := join(mem.BufferSlice{mem.SliceBuffer(a), mem.SliceBuffer(b)}); ok {
		t.Error("joined two allocations")
	}
	if got, ok := join(mem.BufferSlice{mem.SliceBuffer(a[:4]), mem.SliceBuffer(a[4:4]), mem.SliceBuffer(a[4:10])}); !ok || len(got) != 10 {
		t.Error("did not join what is adjacent")
	}
	if _, ok := join(mem.BufferSlice{mem.SliceBuffer(a[:4:4]), mem.SliceBuffer(a[4:10])}); ok {
		t.Error("joined beyond a capacity")
	}
	if got, ok := join(nil); !ok || len(got) != 0 {
		t.Error("an empty message")
	}
}

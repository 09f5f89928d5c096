// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ernic-dev/ernic/fabric/wire"
)

// h2 makes a stream of HTTP/2 frames.
type h2 struct {
	bytes []byte
	next  byte
}

// fill returns n bytes, different from their neighbours.
func (h *h2) fill(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		h.next = h.next*5 + 13
		b[i] = h.next
	}
	return b
}

func frameHeader(kind byte, n int) []byte {
	return []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, 0, 0, 0, 0, 1}
}

func (h *h2) control(n int) {
	h.bytes = append(append(h.bytes, frameHeader(8, n)...), h.fill(n)...)
}

// message appends a message of n bytes in DATA frames of at most most bytes.
func (h *h2) message(n, most int) {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(n))
	for b = append(b, h.fill(n)...); len(b) > 0; {
		k := min(len(b), most)
		h.bytes = append(append(h.bytes, frameHeader(frameData, k)...), b[:k]...)
		b = b[k:]
	}
}

// script makes a stream of what ops say, three bytes each.
func script(ops []byte) []byte {
	var h h2
	for ; len(ops) >= 3 && len(h.bytes) < 2<<20; ops = ops[3:] {
		n := int(binary.BigEndian.Uint16(ops[1:]))
		switch ops[0] % 6 {
		case 0:
			h.control(n % 100)
		case 1:
			h.message(n%3000, http2Frame)
		case 2:
			h.message(5*n, http2Frame)
		case 3:
			h.message(5*n, 1+n%http2Frame)
		case 4:
			h.message(n, 1+n%(2*pooledAbove))
		case 5: // garbage: what is followed may be out of step from here
			h.bytes = append(h.bytes, h.fill(n%64)...)
		}
	}
	return h.bytes
}

// portions is a Stream that reads as much at a time as its script says.
type portions struct {
	rest []byte
	cuts []byte
	at   int
}

func (s *portions) Readv(v [][]byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := len(s.rest)
	if len(s.cuts) > 0 {
		n = min(n, 1+int(s.cuts[s.at%len(s.cuts)])<<11)
		s.at++
	}
	got := 0
	for _, b := range v {
		k := copy(b, s.rest[:min(n-got, len(s.rest))])
		s.rest = s.rest[k:]
		got += k
	}
	return got, nil
}

func (s *portions) Writev([][]byte) error { return nil }

// asGRPC reads a stream as gRPC does: headers into memory of its own, the
// payload of DATA frames into buffers of the pool. Buffers are kept for a
// while; all must hold what the stream said until they are given back. It
// returns how many payloads were found in place.
func asGRPC(t *testing.T, stream, cuts []byte) {
	t.Helper()
	pool := newSlabPool()
	s := scatter{from: &portions{rest: bytes.Clone(stream), cuts: cuts}, pool: pool, look: make([]byte, lookAhead)}
	type kept struct {
		handle     *[]byte
		data, want []byte
	}
	var keeps []kept
	drop := func(n int) {
		for _, k := range keeps[:n] {
			if !bytes.Equal(k.data, k.want) {
				t.Fatalf("a buffer of %d bytes changed before it was given back", len(k.want))
			}
			if k.handle != nil {
				pool.Put(k.handle)
			}
		}
		keeps = keeps[n:]
	}
	var header [frameHeaderLen]byte
	r := rand.New(rand.NewPCG(uint64(len(stream)), 1))
	for at := 0; ; {
		n, err := io.ReadFull(&s, header[:])
		if !bytes.Equal(header[:n], stream[at:at+n]) {
			t.Fatalf("header at %d is % x", at, header[:n])
		}
		if err != nil {
			if at+n != len(stream) {
				t.Fatalf("the stream ended at %d of %d: %v", at+n, len(stream), err)
			}
			break
		}
		at += n
		size := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
		if size > http2Frame {
			break // gRPC gives the connection up
		}
		k := kept{}
		if header[3] == frameData && size > pooledAbove {
			k.handle = pool.Get(size)
			k.data = *k.handle
		} else {
			k.data = make([]byte, size)
		}
		n, err = io.ReadFull(&s, k.data)
		k.data, k.want = k.data[:n], stream[at:at+n]
		if !bytes.Equal(k.data, k.want) {
			t.Fatalf("payload of %d bytes at %d is wrong", n, at)
		}
		keeps = append(keeps, k)
		at += n
		if err != nil {
			if at != len(stream) {
				t.Fatalf("the stream ended at %d of %d: %v", at, len(stream), err)
			}
			break
		}
		switch r.IntN(4) {
		case 0:
			drop(len(keeps))
		case 1:
			drop(r.IntN(len(keeps) + 1))
		}
		if len(keeps) > 200 {
			drop(100)
		}
	}
	drop(len(keeps))
}

// FuzzScatter reads scripted and raw streams in scripted portions.
func FuzzScatter(f *testing.F) {
	f.Add([]byte{2, 200, 0, 2, 200, 0, 2, 200, 0}, []byte{255}, false)
	f.Add([]byte{2, 200, 0, 0, 0, 13, 3, 200, 0, 4, 90, 1, 1, 1, 1, 2, 250, 3}, []byte{40, 1, 0, 3}, false)
	f.Add([]byte{3, 60, 1, 3, 61, 77, 3, 255, 255, 2, 255, 255, 5, 0, 20, 2, 9, 9}, []byte{255, 7}, false)
	f.Add([]byte{4, 4, 0, 4, 4, 1, 4, 4, 2, 2, 5, 0, 4, 8, 0}, []byte{0}, false)
	f.Add(script([]byte{2, 3, 0, 1, 2, 200, 0, 0, 9}), []byte{2}, true)
	f.Fuzz(func(t *testing.T, ops, cuts []byte, raw bool) {
		stream := ops
		if !raw {
			stream = script(ops)
		}
		asGRPC(t, stream, cuts)
	})
}

// counting is a Stream that counts what it is asked.
type counting struct {
	portions
	calls int
}

func (c *counting) Readv(v [][]byte) (int, error) {
	c.calls++
	return c.portions.Readv(v)
}

func TestScatter_PutsALargeMessageInPlaceWithFewCalls(t *testing.T) {
	var h h2
	const messages = 20
	for range messages {
		h.message(wire.MaxPayloads+144+padding(wire.MaxPayloads+144), http2Frame)
	}
	pool := newSlabPool()
	from := &counting{portions: portions{rest: h.bytes}}
	s := scatter{from: from, pool: pool, look: make([]byte, lookAhead)}
	var header [frameHeaderLen]byte
	inPlace, frames := 0, 0
	var handles []*[]byte
	for {
		if _, err := io.ReadFull(&s, header[:]); err != nil {
			break
		}
		b := pool.Get(int(header[0])<<16 | int(header[1])<<8 | int(header[2]))
		handles = append(handles, b)
		frames++
		if s.taken < len(s.ahead) && &s.ahead[s.taken][0] == &(*b)[0] && len(s.ahead[s.taken]) == len(*b) {
			inPlace++
		}
		if _, err := io.ReadFull(&s, *b); err != nil {
			t.Fatal(err)
		}
		if len(*b) < http2Frame { // the end of a message
			for _, h := range handles {
				pool.Put(h)
			}
			handles = nil
		}
	}
	// The first frame of a message is begun by what was looked ahead.
	if frames != messages*17 || inPlace != messages*16 {
		t.Errorf("%d of %d frames were in place, want %d of %d", inPlace, frames, messages*16, messages*17)
	}
	if most := messages + 3; from.calls > most {
		t.Errorf("%d calls for %d messages, want at most %d", from.calls, messages, most)
	}
}

// recording is a Stream that keeps what is written.
type recording struct {
	got   []byte
	calls int
}

func (r *recording) Readv([][]byte) (int, error) { return 0, io.EOF }

func (r *recording) Writev(v [][]byte) error {
	r.calls++
	for _, b := range v {
		r.got = append(r.got, b...)
	}
	return nil
}

// writer writes as gRPC does, and spoils what it may change as soon as it may.
type writer struct {
	t    *testing.T
	g    gather
	to   recording
	want []byte
	h    h2
}

func newWriter(t *testing.T) *writer {
	w := &writer{t: t}
	w.g = gather{to: &w.to, small: make([]byte, 0, copies)}
	return w
}

func (w *writer) write(b []byte, spoil bool) {
	w.want = append(w.want, b...)
	if n, err := w.g.Write(b); n != len(b) || err != nil {
		w.t.Fatalf("%d bytes of %d: %v", n, len(b), err)
	}
	if spoil {
		clear(b)
	}
	if w.g.held > maxHeld {
		w.t.Fatalf("%d bytes are kept back", w.g.held)
	}
}

// frame writes a frame that is not DATA in one piece.
func (w *writer) frame(n int) {
	w.write(append(frameHeader(8, n), w.h.fill(n)...), true)
	if !bytes.Equal(w.to.got, w.want) {
		w.t.Fatal("something is kept back behind a frame that is not DATA")
	}
}

// message writes DATA frames whose payload is in pieces of at most most bytes,
// with a frame that is not DATA in the midst of it if disturb is set.
func (w *writer) message(n, most int, disturb bool) {
	m := w.h.fill(n)
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(n))
	for rest := m; ; {
		k := min(len(prefix)+len(rest), http2Frame)
		w.write(frameHeader(frameData, k), true)
		if len(prefix) > 0 {
			w.write(prefix, true)
			k -= len(prefix)
			prefix = nil
		}
		for k > 0 {
			p := min(k, most)
			w.write(rest[:p:p], false)
			rest, k = rest[p:], k-p
		}
		if len(rest) == 0 {
			break
		}
		if disturb {
			w.frame(13)
		}
	}
	if !bytes.Equal(w.to.got, w.want) {
		w.t.Fatalf("a message of %d bytes is not written at its end", n)
	}
}

// FuzzGather writes scripted frames; what is kept back is bounded, order and
// bytes are kept although memory is used again as soon as it may be.
func FuzzGather(f *testing.F) {
	f.Add([]byte{0, 0, 13, 1, 0, 99, 2, 250, 0, 3, 250, 7, 2, 255, 255, 1, 0, 0})
	f.Add([]byte{4, 200, 200, 5, 1, 1, 4, 3, 3, 0, 255, 255, 6, 100, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWriter(t)
		for ; len(ops) >= 3 && len(w.want) < 2<<20; ops = ops[3:] {
			n := int(binary.BigEndian.Uint16(ops[1:]))
			switch ops[0] % 7 {
			case 0:
				w.frame(n)
			case 1:
				w.message(n%3000, http2Frame, false)
			case 2:
				w.message(7*n, http2Frame, false)
			case 3:
				w.message(7*n, http2Frame, true)
			case 4:
				w.message(n, 1+n%600, false)
			case 5:
				w.message(0, 1, false)
			case 6:
				w.message(7*n, 1+n%5000, n%2 == 0)
			}
		}
	})
}

// A peer whose window is used up grants more when it has a quarter of one to
// grant; what is kept back at that moment must leave it that much.
func TestGather_KeepsBackLessThanAPeerWaitsFor(t *testing.T) {
	if most := maxHeld + http2Frame; most >= minWindow-minWindow/4 {
		t.Errorf("%d bytes may be kept back of a window of %d", most, minWindow)
	}
}

func TestGather_WritesALargeMessageWithOneCall(t *testing.T) {
	w := newWriter(t)
	w.message(wire.MaxPayloads+2000, http2Frame, false)
	if w.to.calls != 1 {
		t.Errorf("%d calls", w.to.calls)
	}
}

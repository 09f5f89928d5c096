// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/fabric"
)

// encode makes a batch the way a sender does: small payloads inline.
func encode(frames []Frame, padding int) []byte {
	head := AppendPrologue(nil)
	var area []byte
	for i := range frames {
		inline := len(frames[i].Payload) <= 1024
		head = AppendFrame(head, &frames[i], inline)
		if !inline {
			area = append(area, frames[i].Payload...)
		}
	}
	FinishPrologue(head, VersionMax, len(frames), len(area))
	return append(append(head, area...), make([]byte, padding)...)
}

func decode(msg []byte) ([]Frame, error) {
	var d Decoder
	if err := d.Reset(msg, VersionMax); err != nil {
		return nil, err
	}
	var frames []Frame
	var f Frame
	for d.Next(&f) {
		frames = append(frames, f)
	}
	return frames, nil
}

func equal(a, b *Frame) bool {
	return a.Type == b.Type && a.Class == b.Class && a.Src == b.Src && a.Dst == b.Dst && a.Flow == b.Flow && a.Seq == b.Seq &&
		bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Payload, b.Payload)
}

func TestBatch_GoesThroughUnchanged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	random := func(n int) []byte {
		b := make([]byte, n+8)
		for i := 0; i < n; i += 8 {
			binary.NativeEndian.PutUint64(b[i:], r.Uint64())
		}
		return b[:n]
	}
	for range 100 {
		frames := make([]Frame, 1+r.IntN(20))
		room := MaxPayloads
		for i := range frames {
			n := 0
			switch r.IntN(4) {
			case 0:
				n = r.IntN(200)
			case 1:
				n = 1000 + r.IntN(100)
			case 2:
				n = r.IntN(room + 1)
			}
			if n > 1024 {
				if n > room {
					n = 0
				}
				room -= n
			}
			frames[i] = Frame{
				Class: fabric.Class(r.IntN(fabric.Classes)), Src: r.Uint32(), Dst: r.Uint32(), Flow: r.Uint32(), Seq: r.Uint64(),
				Header: random(r.IntN(fabric.MaxHeader + 1)), Payload: random(n),
			}
			if r.IntN(10) == 0 {
				frames[i] = Frame{Type: Ping + Type(r.IntN(3)), Class: fabric.Control, Payload: random(PingLen)}
			}
		}
		got, err := decode(encode(frames, r.IntN(2000)))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(frames) {
			t.Fatalf("%d frames became %d", len(frames), len(got))
		}
		for i := range frames {
			if !equal(&got[i], &frames[i]) {
				t.Fatalf("frame %d changed", i)
			}
		}
	}
}

// The layout is a contract between versions: these bytes must not change.
func TestBatch_HasTheDocumentedLayout(t *testing.T) {
	f := Frame{Class: fabric.Ethernet, Src: 1, Dst: 2, Flow: 0x0a0b0c0d, Seq: 5, Header: []byte{0xaa, 0xbb}, Payload: []byte{1, 2, 3}}
	got := hex.EncodeToString(encode([]Frame{f}, 0))
	want := strings.Join([]string{
		"45524e46", "01000001", "00000035", "00000035",
		"00020100", "00020000", "00000003", "00000001", "00000002", "0a0b0c0d", "0000000000000005", "aabb", "010203",
	}, "")
	if got != want {
		t.Fatalf("batch is\n%s, want\n%s", got, want)
	}
	h := Hello{
		Purpose: AskForLink, Lane: 1, Lanes: 4, VersionMin: 1, VersionMax: 2, Node: 3, To: 9,
		Instance: [16]byte{0x11, 15: 0x22}, Incarnation: 7, Epoch: 8,
	}
	got = hex.EncodeToString(h.Append(nil))
	want = strings.Join([]string{
		"45524e48", "01010104", "00010002", "00000003", "11000000000000000000000000000022",
		"0000000000000007", "0000000000000008", "00000009", "000000000000000000000000",
	}, "")
	if got != want {
		t.Fatalf("hello is\n%s, want\n%s", got, want)
	}
	var back Hello
	if err := back.Decode(h.Append(nil)); err != nil || back != h {
		t.Fatalf("hello came back as %+v, %v", back, err)
	}
}

func TestReset_RefusesWhatDoesNotAddUp(t *testing.T) {
	good := func() []byte {
		return encode([]Frame{
			{Header: []byte("head"), Payload: []byte("small")},
			{Payload: make([]byte, 2000)},
			{Type: Ping, Class: fabric.Control, Payload: make([]byte, PingLen)},
		}, 10)
	}
	if _, err := decode(good()); err != nil {
		t.Fatal(err)
	}
	be := binary.BigEndian
	const first, second = PrologueLen, PrologueLen + FrameHeaderLen + 9
	const third = second + FrameHeaderLen
	for name, spoil := range map[string]func(b []byte) []byte{
		"empty":                  func([]byte) []byte { return nil },
		"short prologue":         func(b []byte) []byte { return b[:PrologueLen-1] },
		"magic":                  func(b []byte) []byte { b[0] = 'X'; return b },
		"version":                func(b []byte) []byte { b[4] = 9; return b },
		"reserved":               func(b []byte) []byte { b[5] = 1; return b },
		"no frames":              func(b []byte) []byte { be.PutUint16(b[6:], 0); return b },
		"too many frames":        func(b []byte) []byte { be.PutUint16(b[6:], MaxFrames+1); return b },
		"one frame too few":      func(b []byte) []byte { be.PutUint16(b[6:], 2); return b },
		"one frame too many":     func(b []byte) []byte { be.PutUint16(b[6:], 4); return b },
		"head beyond message":    func(b []byte) []byte { be.PutUint32(b[8:], uint32(len(b)+1)); return b },
		"head before prologue":   func(b []byte) []byte { be.PutUint32(b[8:], PrologueLen-1); return b },
		"head beyond length":     func(b []byte) []byte { be.PutUint32(b[12:], PrologueLen); return b },
		"length beyond message":  func(b []byte) []byte { be.PutUint32(b[12:], uint32(len(b)+1)); return b },
		"length too short":       func(b []byte) []byte { be.PutUint32(b[12:], be.Uint32(b[12:])-1); return b },
		"length too long":        func(b []byte) []byte { be.PutUint32(b[12:], be.Uint32(b[12:])+1); return b },
		"huge lengths":           func(b []byte) []byte { be.PutUint32(b[8:], ^uint32(0)); be.PutUint32(b[12:], ^uint32(0)); return b },
		"type":                   func(b []byte) []byte { b[first] = 4; return b },
		"class":                  func(b []byte) []byte { b[first+1] = fabric.Classes; return b },
		"flags":                  func(b []byte) []byte { b[first+2] |= 2; return b },
		"reserved in frame":      func(b []byte) []byte { b[first+3] = 1; return b },
		"reserved after length":  func(b []byte) []byte { b[first+7] = 1; return b },
		"header too long":        func(b []byte) []byte { be.PutUint16(b[first+4:], fabric.MaxHeader+1); return b },
		"header too long to fit": func(b []byte) []byte { be.PutUint16(b[first+4:], 200); return b },
		"payload too long":       func(b []byte) []byte { be.PutUint32(b[second+8:], fabric.MaxChunk+1); return b },
		"payload one too long":   func(b []byte) []byte { be.PutUint32(b[second+8:], 2001); return b },
		"payload one too short":  func(b []byte) []byte { be.PutUint32(b[second+8:], 1999); return b },
		"payload 4 GiB":          func(b []byte) []byte { be.PutUint32(b[second+8:], ^uint32(0)); return b },
		"ping of wrong length":   func(b []byte) []byte { be.PutUint32(b[third+8:], 7); return b },
		"ping with header":       func(b []byte) []byte { be.PutUint16(b[third+4:], 1); return b },
		"too much padding":       func(b []byte) []byte { return append(b, make([]byte, MaxPadding)...) },
	} {
		if frames, err := decode(spoil(good())); err == nil {
			t.Errorf("%s: taken as %d frames", name, len(frames))
		}
	}
	for n := range good() {
		if n < len(good())-10 {
			if _, err := decode(good()[:n]); err == nil {
				t.Errorf("a batch cut at %d was taken", n)
			}
		}
	}
}

func TestHello_RefusesNonsense(t *testing.T) {
	h := Hello{Lanes: 4, VersionMin: 1, VersionMax: 1, Node: 3}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":         func(b []byte) []byte { return b[:HelloLen-1] },
		"magic":         func(b []byte) []byte { b[0] = 0; return b },
		"format":        func(b []byte) []byte { b[4] = 2; return b },
		"purpose":       func(b []byte) []byte { b[5] = purposes; return b },
		"lane":          func(b []byte) []byte { b[6] = 4; return b },
		"no lanes":      func(b []byte) []byte { b[7] = 0; return b },
		"many lanes":    func(b []byte) []byte { b[7] = MaxLanes + 1; return b },
		"version range": func(b []byte) []byte { b[9] = 5; return b },
	} {
		var got Hello
		if err := got.Decode(spoil(h.Append(nil))); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
	var got Hello
	if err := got.Decode(append(h.Append(nil), 1, 2, 3)); err != nil {
		t.Errorf("a longer hello, as a later version may send: %v", err)
	}
}

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		own, peer [2]uint16
		want      uint8
		ok        bool
	}{
		{[2]uint16{1, 1}, [2]uint16{1, 1}, 1, true},
		{[2]uint16{1, 3}, [2]uint16{2, 9}, 3, true},
		{[2]uint16{2, 9}, [2]uint16{1, 3}, 3, true},
		{[2]uint16{1, 1}, [2]uint16{2, 3}, 0, false},
		{[2]uint16{4, 5}, [2]uint16{2, 3}, 0, false},
	} {
		own := Hello{Node: 1, VersionMin: c.own[0], VersionMax: c.own[1]}
		peer := Hello{Node: 2, VersionMin: c.peer[0], VersionMax: c.peer[1]}
		got, err := Negotiate(&own, &peer)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%v and %v: %d, %v", c.own, c.peer, got, err)
		}
		if err != nil && (!errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "2-3")) {
			t.Errorf("the error does not name the ranges: %v", err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode([]Frame{{Header: []byte("head"), Payload: []byte("small")}}, 0))
	f.Add(encode([]Frame{{Payload: make([]byte, 3000)}, {Type: Pong, Class: fabric.Control, Payload: make([]byte, PingLen)}}, 7))
	f.Add(encode(make([]Frame, MaxFrames), 0))
	f.Add([]byte("ERNF"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		frames, err := decode(msg)
		if err != nil {
			return
		}
		bytes := 0
		for i := range frames {
			fr := &frames[i]
			if len(fr.Header) > fabric.MaxHeader || len(fr.Payload) > fabric.MaxChunk || !fr.Class.Valid() || fr.Type >= types {
				t.Fatalf("frame %d is outside the limits: %+v", i, fr)
			}
			if cap(fr.Header) != len(fr.Header) || cap(fr.Payload) != len(fr.Payload) {
				t.Fatalf("frame %d reaches beyond its bytes", i)
			}
			bytes += len(fr.Header) + len(fr.Payload)
		}
		if bytes > len(msg) {
			t.Fatalf("%d bytes of frames in a message of %d", bytes, len(msg))
		}
		again, err := decode(encode(frames, 0))
		if err != nil {
			// The encoder of this test inlines differently, which may exceed the
			// head; what it makes must still never crash.
			return
		}
		for i := range frames {
			if !equal(&frames[i], &again[i]) {
				t.Fatalf("frame %d changes when encoded again", i)
			}
		}
	})
}

func FuzzHello(f *testing.F) {
	h := Hello{Lanes: 4, VersionMin: 1, VersionMax: 1, Node: 3}
	f.Add(h.Append(nil))
	f.Add([]byte("ERNH\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Hello
		if h.Decode(b) != nil {
			return
		}
		if err := again.Decode(h.Append(nil)); err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

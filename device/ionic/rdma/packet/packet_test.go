// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// sample is a header with a different value in every field that op carries.
func sample(op Op) Header {
	h := Header{
		Op: op, Flags: First | Last | AckRequest, Syndrome: NakSequence,
		DstQPN: 0x010203, SrcQPN: 0x040506, PSN: 0x070809, Count: 0x0a0b0c, MSN: 0x0d0e0f,
		VA: 0x1011121314151617, RKey: 0x18191a1b, Length: 0x1c1d1e1f, Imm: [4]byte{0x20, 0x21, 0x22, 0x23},
		QKey: 0x24252627, Operand: 0x28292a2b2c2d2e2f, Compare: 0x3031323334353637,
	}
	for i := range 16 {
		h.SrcGID[i], h.DstGID[i] = byte(0x40+i), byte(0x50+i)
	}
	if op.IsDatagram() {
		h.SrcMAC = [6]byte{0x60, 0x61, 0x62, 0x63, 0x64, 0x65}
		h.VLAN = 0x6667
		for i := range 40 {
			h.GRH[i] = byte(0x68 + i)
		}
		h.Path = PathIPv4 | PathVLAN
	}
	return h
}

func TestEncode_GoldenBytes(t *testing.T) {
	const fixed = "0d60%s 00010203 00040506 00070809 000a0b0c 000d0e0f 1011121314151617 18191a1b 1c1d1e1f" +
		" 20212223 24252627 28292a2b2c2d2e2f 3031323334353637" +
		" 00000000000000000000000000000000 00000000000000000000000000000000"
	p := Get(0)
	defer p.Release()
	p.Header = sample(Write)
	p.SrcGID, p.DstGID = [16]byte{}, [16]byte{}
	p.Flags = First | Solicited | AckRequest
	want := strings.NewReplacer(" ", "", "0d60%s", "030d6060").Replace(fixed)
	if got := hex.EncodeToString(p.Encode()); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestDecode_RestoresEveryField(t *testing.T) {
	for op := range numOps {
		p := Get(0)
		p.Header = sample(op)
		b := bytes.Clone(p.Encode())
		if want := map[bool]int{false: HeaderLen, true: DatagramHeaderLen}[op.IsDatagram()]; len(b) != want {
			t.Errorf("%v: header of %d bytes, want %d", op, len(b), want)
		}
		q := Get(0)
		if err := q.Decode(b); err != nil {
			t.Errorf("%v: %v", op, err)
		}
		if q.Header != p.Header {
			t.Errorf("%v:\n got %+v\nwant %+v", op, q.Header, p.Header)
		}
		p.Release()
		q.Release()
	}
}

func TestDecode_RefusesAndNamesTheField(t *testing.T) {
	for _, c := range []struct {
		name string
		op   Op
		edit func(b []byte) []byte
		says string
	}{
		{"Empty", Write, func(b []byte) []byte { return nil }, "0 bytes"},
		{"Short", Write, func(b []byte) []byte { return b[:95] }, "95 bytes"},
		{"Long", Write, func(b []byte) []byte { return append(b, 0) }, "97 bytes"},
		{"DatagramCut", Datagram, func(b []byte) []byte { return b[:HeaderLen] }, "96 bytes"},
		{"UnknownOp", Write, func(b []byte) []byte { b[0] = byte(numOps); return b }, "unknown op 13"},
		{"UnknownFlag", Write, func(b []byte) []byte { b[1] = 0x80; return b }, "unknown flags"},
		{"WrongHeaderLength", Write, func(b []byte) []byte { b[3] = 148; return b }, "says 148"},
		{"DstQPN", Write, func(b []byte) []byte { b[4] = 1; return b }, "QP number"},
		{"SrcQPN", Write, func(b []byte) []byte { b[8] = 1; return b }, "QP number"},
		{"PSN", Write, func(b []byte) []byte { b[12] = 1; return b }, "PSN"},
		{"MSN", Write, func(b []byte) []byte { b[20] = 1; return b }, "MSN"},
		{"NoPSN", Write, func(b []byte) []byte { clear(b[16:20]); return b }, "0 PSNs"},
		{"TooManyPSNs", Write, func(b []byte) []byte { copy(b[16:], []byte{0, 0x80, 0, 1}); return b }, "8388609 PSNs"},
		{"UnknownPath", Datagram, func(b []byte) []byte { b[144] = 4; return b }, "path"},
		{"PathPadding", Datagram, func(b []byte) []byte { b[147] = 1; return b }, "path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Get(0)
			defer p.Release()
			p.Header = sample(c.op)
			b := c.edit(bytes.Clone(p.Encode()))
			if err := p.Decode(b); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "from the peer") {
				t.Errorf("error %v, want one that says %q and who is at fault", err, c.says)
			}
		})
	}
	p := Wrap(make([]byte, MaxPayload+1), nil)
	defer p.Release()
	p.Header = sample(Write)
	if err := p.Decode(bytes.Clone(p.Encode())); err == nil {
		t.Error("a payload beyond the maximum was accepted")
	}
}

type gift struct{ n int }

func (g *gift) Release() { g.n++ }

func TestRelease_GivesWrappedMemoryBackOnce(t *testing.T) {
	var g gift
	p := Wrap([]byte("abc"), &g)
	if string(p.Payload) != "abc" {
		t.Errorf("payload %q", p.Payload)
	}
	p.Release()
	if g.n != 1 {
		t.Errorf("released %d times", g.n)
	}
}

func TestGet_EverySizeHasItsOwnMemory(t *testing.T) {
	sizes := []int{0, 1, 511, 512, 513, 4096, 4097, 32 << 10, 32<<10 + 1, MaxPayload - 1, MaxPayload}
	for range 3 {
		var ps []*Packet
		for i, n := range sizes {
			p := Get(n)
			if len(p.Payload) != n || p.Header != (Header{}) {
				t.Fatalf("Get(%d): %d bytes, header %+v", n, len(p.Payload), p.Header)
			}
			for k := range p.Payload {
				p.Payload[k] = byte(i)
			}
			p.Header = sample(Write)
			ps = append(ps, p)
		}
		for i, p := range ps {
			if n := sizes[i]; n > 0 && (p.Payload[0] != byte(i) || p.Payload[n-1] != byte(i)) {
				t.Errorf("the payload of %d bytes is shared", n)
			}
			p.Release()
		}
	}
}

func TestGet_BeyondTheMaximumPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Get(MaxPayload + 1)
}

func TestGet_ConcurrentUsersDoNotMeet(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				n := 1 + r.IntN(8192)
				p := Get(n)
				for i := range p.Payload {
					p.Payload[i] = byte(g)
				}
				for i := range p.Payload {
					if p.Payload[i] != byte(g) {
						t.Error("payload changed under its owner")
						return
					}
				}
				p.Release()
			}
		}()
	}
	wg.Wait()
}

func TestQueue_KeepsOrderAndSizes(t *testing.T) {
	var q Queue
	for i := range 5 {
		p := Get(i)
		p.PSN = uint32(i)
		q.Push(p)
	}
	if q.Len() != 5 || q.Bytes() != 10 {
		t.Errorf("%d packets, %d bytes", q.Len(), q.Bytes())
	}
	t2 := q.Take()
	if q.Len() != 0 || q.Bytes() != 0 || q.Pop() != nil {
		t.Error("the queue is not empty after Take")
	}
	q.Push(Get(7))
	for i := range 5 {
		p := t2.Pop()
		if p == nil || p.PSN != uint32(i) {
			t.Fatalf("packet %d is %+v", i, p)
		}
		p.Release()
	}
	if t2.Pop() != nil || t2.Len() != 0 || t2.Bytes() != 0 {
		t.Error("the taken queue is not empty")
	}
	if p := q.Pop(); p == nil || len(p.Payload) != 7 || q.Len() != 0 {
		t.Error("the queue is not usable after Take")
	}
}

func TestString_NamesEveryValue(t *testing.T) {
	for o := range numOps {
		if s := o.String(); s == "" || strings.Contains(s, "(") {
			t.Errorf("op %d has no name: %q", o, s)
		}
	}
	for s, want := range map[Syndrome]string{
		Positive: "ack", 0x1f: "ack", RNR | 12: "rnr(12)", NakSequence: "nak-sequence",
		NakInvalidRequest: "nak-invalid-request", NakRemoteAccess: "nak-remote-access",
		NakRemoteOperation: "nak-remote-operation", 0x7f: "syndrome(0x7f)",
	} {
		if got := s.String(); got != want {
			t.Errorf("syndrome %#x is %q, want %q", uint8(s), got, want)
		}
	}
	for f, want := range map[Flags]string{0: "-", First | Last: "first|last", Unreliable | 0x80: "unreliable|bit7"} {
		if got := f.String(); got != want {
			t.Errorf("flags %#x are %q, want %q", uint8(f), got, want)
		}
	}
	if got := (PathIPv4 | PathVLAN).String(); got != "ipv4|vlan" {
		t.Errorf("path is %q", got)
	}
	if got := Op(200).String(); got != "op(200)" {
		t.Errorf("unknown op is %q", got)
	}
}

// FuzzDecode: what decodes encodes to the same bytes; nothing crashes.
func FuzzDecode(f *testing.F) {
	for op := range numOps {
		p := Get(0)
		p.Header = sample(op)
		b := bytes.Clone(p.Encode())
		f.Add(b)
		f.Add(b[:len(b)-1])
		p.Release()
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Get(0)
		defer p.Release()
		if p.Decode(b) != nil {
			return
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Errorf("\n   got %x\ndecoded %x", got, b)
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	p := Get(0)
	p.Header = sample(Write)
	q := Get(0)
	b.ReportAllocs()
	for b.Loop() {
		if err := q.Decode(p.Encode()); err != nil {
			b.Fatal(err)
		}
	}
}

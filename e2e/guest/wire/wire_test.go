// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFramesComeBackAsTheyWereSent(t *testing.T) {
	in := []Frame{
		{Type: Hello, Payload: bytes.Repeat([]byte{7}, NonceSize)},
		{Type: Start, Stream: 1, Payload: []byte(`{"argv":["true"]}`)},
		{Type: Stdin, Stream: 1, Payload: []byte{}},
		{Type: Stdout, Stream: 1<<32 - 1, Payload: bytes.Repeat([]byte("x"), MaxPayload)},
	}
	var b []byte
	for _, f := range in {
		b = Append(b, f)
	}
	r := bytes.NewReader(b)
	for _, want := range in {
		got, err := Read(r)
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != want.Type || got.Stream != want.Stream || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("got %v stream %d, %d bytes; want %v stream %d, %d bytes",
				got.Type, got.Stream, len(got.Payload), want.Type, want.Stream, len(want.Payload))
		}
	}
	if _, err := Read(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestReadRefusesWhatIsNoFrame(t *testing.T) {
	good := Append(nil, Frame{Type: Stdout, Stream: 1, Payload: []byte("hello")})
	long := bytes.Clone(good)
	long[14] = 0xff
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"other magic":       {append([]byte("xxxx"), good[4:]...), ErrMagic},
		"cut in the header": {good[:9], io.ErrUnexpectedEOF},
		"cut in payload":    {good[:len(good)-1], io.ErrUnexpectedEOF},
		"no payload at all": {good[:HeaderSize], io.ErrUnexpectedEOF},
		"payload too long":  {long, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(c.in))
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestWelcomeIsFoundBehindStaleBytes(t *testing.T) {
	nonce, old := [NonceSize]byte{1, 2, 3}, [NonceSize]byte{9}
	b := Append(nil, Frame{Type: Stdout, Stream: 4, Payload: []byte("left over")})
	b = b[5:]
	b = Append(b, Frame{Type: Welcome, Payload: append(old[:], `{"cpus":1}`...)})
	b = append(b, Magic...)
	b = Append(b, Frame{Type: Welcome, Payload: append(nonce[:], `{"cpus":4}`...)})
	b = Append(b, Frame{Type: Exit, Stream: 1, Payload: []byte(`{}`)})
	r := bytes.NewReader(b)
	got, err := FindWelcome(r, nonce)
	if err != nil || string(got) != `{"cpus":4}` {
		t.Fatalf("got %q, %v", got, err)
	}
	if f, err := Read(r); err != nil || f.Type != Exit {
		t.Errorf("the frame behind the welcome: %v, %v", f.Type, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Append(nil, Frame{Type: Start, Stream: 1, Payload: []byte(`{"argv":["sh","-c","true"]}`)}))
	f.Add(Append(nil, Frame{Type: PowerOff}))
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			fr, err := Read(r)
			if err != nil {
				return
			}
			back, err := Read(bytes.NewReader(Append(nil, fr)))
			if err != nil || back.Type != fr.Type || back.Stream != fr.Stream || !bytes.Equal(back.Payload, fr.Payload) {
				t.Fatalf("frame %v does not survive encoding: %v, %v", fr, back, err)
			}
		}
	})
}

func FuzzFindWelcome(f *testing.F) {
	var nonce [NonceSize]byte
	f.Add(Append(nil, Frame{Type: Welcome, Payload: append(nonce[:], `{}`...)}))
	f.Add(Append([]byte("boot noise eRnG"), Frame{Type: Welcome, Payload: nonce[:]}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, err := FindWelcome(bytes.NewReader(b), nonce)
		if err == nil && len(rest) > MaxPayload-NonceSize {
			t.Fatalf("%d bytes behind the nonce", len(rest))
		}
	})
}

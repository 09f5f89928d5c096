// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

// line is one message of a recorded session of QEMU.
type line struct {
	client bool
	name   string
	length int
	fds    int
	bytes  []byte // cut for long server messages
}

// recorded reads a transcript: direction, name, len=, fds=, hex.
func recorded(t *testing.T, path string) []line {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []line
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var dir, text string
		var l line
		if _, err := fmt.Sscanf(s.Text(), "%s %s len=%d fds=%d %s", &dir, &l.name, &l.length, &l.fds, &text); err != nil {
			t.Fatalf("%s: %q: %v", path, s.Text(), err)
		}
		l.client = dir == ">"
		if l.bytes, err = hex.DecodeString(text); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// The client does message for message, byte for byte, what QEMU did with a
// device that had MSI-X, a mappable BAR and 512 MiB of memory; only the message
// ids are its own.
func TestRealizeIsQEMUsByteForByte(t *testing.T) {
	lines := recorded(t, "../testdata/qemu11.1.3-q35.hex")
	near, far := socketPair(t)
	p := &peer{t, far}
	played := make(chan error, 1)
	go func() { played <- p.play(lines) }()
	c, err := New(near, Options{Windows: []Window{{Size: 512 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Realize()
	if err != nil {
		t.Error(err)
	}
	c.Close()
	if err := <-played; err != nil {
		t.Error(err)
	}
	if d == nil || d.MSIX == nil || d.MSIX.Vectors != 20 || d.MSIX.Offset != 0x50 || d.PM != 0x40 || d.Regions[4].Areas != 2 || d.Regions[2].Size != 64<<10 {
		t.Errorf("realized as %+v", d)
	}
}

// play answers a client with the recorded replies until it closes, and says
// where the client differs from the record.
func (p *peer) play(lines []line) error {
	for n := 0; n < len(lines); n++ {
		want := lines[n]
		if !want.client {
			return fmt.Errorf("line %d: two server messages in a row", n+1)
		}
		h, payload, err := p.read()
		if err != nil {
			// The client is done; it must have come to the end of the machine reset.
			if !strings.HasPrefix(want.name, "DMA_UNMAP") {
				return fmt.Errorf("client ended before line %d, %s", n+1, want.name)
			}
			return nil
		}
		got := message(h.id, h.cmd, h.flags, h.errno, payload)
		if w := append([]byte{got[0], got[1]}, want.bytes[2:]...); !bytes.Equal(got, w) {
			return fmt.Errorf("line %d, %s: client sent\n% x, QEMU\n% x", n+1, want.name, got, w)
		}
		if n++; n == len(lines) || lines[n].client {
			return fmt.Errorf("line %d: no answer recorded", n+1)
		}
		if err := p.answer(lines[n], h.id); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) answer(l line, id uint16) error {
	b := append(l.bytes, make([]byte, l.length-len(l.bytes))...)
	le.PutUint16(b, id)
	var fds []int
	if l.fds == 1 {
		f, err := os.CreateTemp(p.t.TempDir(), "bar")
		if err != nil {
			return err
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	return p.write(b, fds...)
}

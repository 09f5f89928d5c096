// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// bzImage makes an image with two setup sectors and a payload 16 bytes behind
// them.
func bzImage(data string) []byte {
	b := make([]byte, 3*512+16)
	b[bzSetupSectors] = 2
	copy(b[bzMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[bzProtocol:], 0x20f)
	binary.LittleEndian.PutUint32(b[bzPayloadOffset:], 16)
	binary.LittleEndian.PutUint32(b[bzPayloadLength:], uint32(len(data)+4))
	return append(append(b, data...), "SIZEand the rest"...)
}

func TestPayloadIsFoundWithItsProgram(t *testing.T) {
	for start, want := range map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ": "xz", "\x1f\x8b\x08": "gzip"} {
		data, program, err := payload(bzImage(start + "kernel"))
		if err != nil || program != want || string(data) != start+"kernel" {
			t.Errorf("%s: %q with %q, %v", want, data, program, err)
		}
	}
}

func TestPayloadErrorsSayWhatIsWrong(t *testing.T) {
	change := func(at int, v ...byte) []byte {
		b := bzImage("\x1f\x8bkernel")
		copy(b[at:], v)
		return b
	}
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"empty":               {nil, "not a bzImage"},
		"ELF":                 {bytes.Repeat([]byte("\x7fELF"), 1000), "not a bzImage"},
		"old protocol":        {change(bzProtocol, 7, 2), "0x207"},
		"unknown compression": {bzImage("LZOPkernel"), "4c 5a 4f 50"},
		"length beyond file":  {change(bzPayloadLength, 0xff, 0xff, 0xff, 0xff), "payload from"},
		"offset beyond file":  {change(bzPayloadOffset, 0xff, 0xff, 0xff, 0xff), "payload from"},
		"nothing inside":      {change(bzPayloadLength, 0, 0, 0, 0), "payload from"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := payload(c.image); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(bzImage("\x28\xb5\x2f\xfdkernel"))
	f.Add([]byte("HdrS"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if data, program, err := payload(b); err == nil && (len(data) < 4 || program == "") {
			t.Errorf("payload of %d bytes, program %q", len(data), program)
		}
	})
}

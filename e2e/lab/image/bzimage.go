// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets in a bzImage, from the x86 boot protocol ("The Linux/x86 Boot
// Protocol" of the kernel's documentation). All values are little-endian.
const (
	bzSetupSectors   = 0x1f1 // u8: sectors of 512 bytes behind the first one
	bzMagic          = 0x202 // "HdrS"
	bzProtocol       = 0x206 // u16: payload fields from 2.08 on
	bzPayloadOffset  = 0x248 // u32: from the end of the setup sectors
	bzPayloadLength  = 0x24c // u32: with four bytes at the end for the size unpacked
	bzHeaderEnd      = 0x250
	bzMinimumVersion = 0x0208
)

// payload returns the compressed kernel inside a bzImage and the name of the
// program that unpacks it.
func payload(image []byte) (data []byte, program string, err error) {
	if len(image) < bzHeaderEnd || string(image[bzMagic:bzMagic+4]) != "HdrS" {
		return nil, "", errors.New("kernel image: not a bzImage")
	}
	if v := binary.LittleEndian.Uint16(image[bzProtocol:]); v < bzMinimumVersion {
		return nil, "", fmt.Errorf("kernel image: boot protocol %#x names no payload", v)
	}
	setup := uint64(image[bzSetupSectors])
	if setup == 0 {
		setup = 4
	}
	start := (setup+1)*512 + uint64(binary.LittleEndian.Uint32(image[bzPayloadOffset:]))
	end := start + uint64(binary.LittleEndian.Uint32(image[bzPayloadLength:]))
	if end > uint64(len(image)) || end-start < 8 {
		return nil, "", fmt.Errorf("kernel image: payload from %d to %d in a file of %d bytes", start, end, len(image))
	}
	data = image[start : end-4]
	for magic, program := range map[string]string{
		"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ": "xz", "\x1f\x8b": "gzip",
	} {
		if bytes.HasPrefix(data, []byte(magic)) {
			return data, program, nil
		}
	}
	return nil, "", fmt.Errorf("kernel image: unknown compression, the payload starts with % x", data[:4])
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io"
)

// cpioFile is one entry of an initramfs. A path that ends in "/" is a
// directory. Paths are relative to the root, parents come before children.
type cpioFile struct {
	path string
	mode uint32 // permission bits
	data []byte
}

const (
	cpioDir     = 0o040000
	cpioRegular = 0o100000
)

// writeCPIO writes files in the "newc" format that the kernel unpacks: for each
// file a header of "070701" and thirteen eight-digit hexadecimal numbers, the
// name with its terminating zero, the data; name and data each padded to four
// bytes. An entry named TRAILER!!! ends the archive.
func writeCPIO(w io.Writer, files []cpioFile) error {
	for i, f := range append(files[:len(files):len(files)], cpioFile{path: "TRAILER!!!"}) {
		mode, name, links := cpioRegular|f.mode, f.path, 1
		if n := len(name); n > 0 && name[n-1] == '/' {
			mode, name, links = cpioDir|f.mode, name[:n-1], 2
		}
		header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, mode, 0, 0, links, 0, len(f.data), 0, 0, 0, 0, len(name)+1, 0)
		b := pad4(append([]byte(header), name+"\x00"...))
		b = pad4(append(b, f.data...))
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// pad4 works because each header starts at a multiple of four.
func pad4(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

// A busy machine may let the reader of a command's output run only after the
// patience for it is gone.
func TestPump_LateReaderGetsWhatWasWritten(t *testing.T) {
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wr.Close() // as a daemon keeps it open
	want := bytes.Repeat([]byte("output "), 9000)
	if _, err := wr.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := rd.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	pump(rd, wire.Stdout, func(_ wire.Type, b []byte) { got.Write(b) })
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d of %d bytes", got.Len(), len(want))
	}
}

// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
)

// Tracer sees every complete message of a session. Calls may come from
// several goroutines. msg is valid during the call only.
type Tracer interface {
	Message(fromClient bool, msg []byte, fds int)
}

// Transcript is a Tracer that writes one line for each message:
//
//	> DMA_MAP len=48 fds=1 010002003000...
//	< DMA_MAP len=16 fds=0 010002001000...
//
// ">" is the client, "<" the server; len counts the whole message and fds its
// descriptors. Server messages are cut after 128 bytes, client messages are
// whole, so that a transcript can be replayed.
type Transcript struct {
	mu  sync.Mutex
	w   *bufio.Writer
	err error
}

const transcriptCut = 128

// NewTranscript returns a Transcript that writes to w. Each line is flushed.
func NewTranscript(w io.Writer) *Transcript {
	return &Transcript{w: bufio.NewWriter(w)}
}

// Message writes one line.
func (t *Transcript) Message(fromClient bool, msg []byte, fds int) {
	if len(msg) < headerLen {
		return
	}
	dir, shown := ">", msg
	if !fromClient {
		dir, shown = "<", msg[:min(len(msg), transcriptCut)]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	// A bufio.Writer keeps its first error for Flush.
	fmt.Fprintf(t.w, "%s %v len=%d fds=%d ", dir, parseHeader(msg).cmd, len(msg), fds)
	_, _ = hex.NewEncoder(t.w).Write(shown)
	_ = t.w.WriteByte('\n')
	t.err = t.w.Flush()
}

// Err returns the first write error; nothing is written after it.
func (t *Transcript) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

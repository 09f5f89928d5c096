// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/device/guestmem"
)

// Errors of DMA messages.
var (
	// ErrInHandler is returned to a Device that asks for a DMA message while
	// it handles a request: the client answers only after its request is done.
	ErrInHandler = errors.New("vfio-user: DMA message from inside a request handler would deadlock")
	// ErrNoDMAMessages is returned if the client is known not to answer.
	ErrNoDMAMessages = fmt.Errorf("vfio-user: client does not answer DMA messages: %w", syscall.EIO)
	// ErrDMATimeout is returned if the client did not answer in time.
	ErrDMATimeout = fmt.Errorf("vfio-user: no reply to DMA message: %w", syscall.ETIMEDOUT)
)

// rustVMMMinor is the minor version that rust-vmm's client offers, and only
// it. That client has no code for requests of the server.
const rustVMMMinor = 1

// maxDMAOps bounds the messages under way; QEMU queues them one by one anyway.
const maxDMAOps = 1024

// dmaOp is a DMA message that waits for its reply.
type dmaOp struct {
	cmd   Command
	iova  uint64
	count uint64
	dst   []byte // DMA_READ: where the data goes
	done  chan error
}

// dmaTable holds the DMA messages under way, by message id. The ids of the two
// directions are independent.
type dmaTable struct {
	mu     sync.Mutex // guards all below
	next   uint16
	ops    map[uint16]*dmaOp
	closed error
}

// DMARead reads guest memory at iova into p by messages to the client. It is
// slow, a round trip for each max_data_xfer_size bytes, and meant for windows
// without a file. It must not be called from a Device method; it fails with
// ErrInHandler then. Hold no pin on guest memory meanwhile: a DMA_UNMAP that
// waits for the pin keeps the reply from being read.
func (s *Session) DMARead(ctx context.Context, p []byte, iova uint64) error {
	return s.dmaTransfer(ctx, CmdDMARead, p, iova, guestmem.Read)
}

// DMAWrite writes p to guest memory at iova by messages to the client. See
// DMARead.
func (s *Session) DMAWrite(ctx context.Context, p []byte, iova uint64) error {
	return s.dmaTransfer(ctx, CmdDMAWrite, p, iova, guestmem.Write)
}

func (s *Session) dmaTransfer(ctx context.Context, cmd Command, p []byte, iova uint64, acc guestmem.Access) error {
	chunk := min(s.client.maxTransfer, maxTransfer)
	switch {
	case !s.ready.Load():
		return ErrClientGone
	case s.client.minor == rustVMMMinor || chunk == 0:
		return ErrNoDMAMessages
	case goroutineID() == s.goroutine:
		return ErrInHandler
	}
	if err := s.mem.CheckMessage(iova, uint64(len(p)), acc); err != nil {
		return err
	}
	for len(p) > 0 {
		n := min(uint64(len(p)), chunk)
		if err := s.dmaMessage(ctx, cmd, p[:n], iova); err != nil {
			s.m.dmaMessageErrors.Add(1)
			return fmt.Errorf("%v of %d bytes at iova %#x: %w", cmd, n, iova, err)
		}
		p = p[n:]
		iova += n
	}
	return nil
}

// dmaMessage sends one message and waits for the reply.
func (s *Session) dmaMessage(ctx context.Context, cmd Command, p []byte, iova uint64) error {
	op := &dmaOp{cmd: cmd, iova: iova, count: uint64(len(p)), done: make(chan error, 1)}
	var body []byte
	if cmd == CmdDMARead {
		op.dst = p
	} else {
		body = p
	}
	id, err := s.dma.add(op)
	if err != nil {
		return err
	}
	s.m.dmaMessages.Add(1)
	head := make([]byte, headerLen+dmaMessageLen)
	header{id: id, cmd: cmd, size: uint32(len(head) + len(body))}.put(head)
	le.PutUint64(head[headerLen:], op.iova)
	le.PutUint64(head[headerLen+8:], op.count)
	s.sendMu.Lock()
	err = s.send(head, body, -1)
	s.sendMu.Unlock()
	if err != nil {
		s.sock.conn.Close() // part of the message may be on its way: the stream is broken
		s.dma.cancel(id, op)
		return err
	}
	t := time.NewTimer(s.opts.DMATimeout)
	defer t.Stop()
	select {
	case err := <-op.done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		s.m.dmaMessageTimeouts.Add(1)
		err = ErrDMATimeout
	}
	if s.dma.cancel(id, op) {
		return err
	}
	return <-op.done // the reply came at the same moment
}

// add books op under a free id.
func (t *dmaTable) add(op *dmaOp) (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return 0, t.closed
	}
	if len(t.ops) >= maxDMAOps {
		return 0, fmt.Errorf("vfio-user: %d DMA messages under way: %w", len(t.ops), syscall.EBUSY)
	}
	for {
		t.next++
		if _, used := t.ops[t.next]; !used {
			t.ops[t.next] = op
			return t.next, nil
		}
	}
}

// cancel forgets op unless its reply is already being delivered.
func (t *dmaTable) cancel(id uint16, op *dmaOp) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ops[id] != op {
		return false
	}
	delete(t.ops, id)
	return true
}

// deliver gives a reply to the operation that waits for it. It reports false
// if there is none.
func (t *dmaTable) deliver(q *request) bool {
	t.mu.Lock()
	op := t.ops[q.id]
	if op == nil || op.cmd != q.cmd {
		t.mu.Unlock()
		return false
	}
	delete(t.ops, q.id)
	t.mu.Unlock()
	op.done <- op.finish(q)
	return true
}

// finish checks a reply and takes its data.
func (op *dmaOp) finish(q *request) error {
	if q.flags&flagError != 0 {
		if q.errno == 0 || q.errno > maxErrno {
			return fmt.Errorf("client reports errno %d: %w", q.errno, syscall.EIO)
		}
		return fmt.Errorf("client reports: %w", syscall.Errno(q.errno))
	}
	if len(q.payload) != dmaMessageLen+len(op.dst) ||
		le.Uint64(q.payload) != op.iova || le.Uint64(q.payload[8:]) != op.count {
		return fmt.Errorf("malformed reply of %d bytes: %w", q.size, syscall.EPROTO)
	}
	copy(op.dst, q.payload[dmaMessageLen:])
	return nil
}

// fail ends all operations and lets no new one begin.
func (t *dmaTable) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = err
	for id, op := range t.ops {
		delete(t.ops, id)
		op.done <- err
	}
}

// goroutineID returns the number of the calling goroutine. The language hides
// it, so it is read from the head of a stack trace, "goroutine 7 [running]:",
// in about a microsecond; a DMA message takes a hundred times longer.
func goroutineID() uint64 {
	var b [64]byte
	f := bytes.Fields(b[:runtime.Stack(b[:], false)])
	if len(f) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/wire"
)

// maxOutstanding is how many batches gRPC may hold of one connection: one that
// is written and one that follows without a gap. More would only take away from
// batching and fairness.
const maxOutstanding = 2

// burial is how long gRPC may take to be done with the bytes of a connection
// that is severed.
const burial = 100 * time.Millisecond

// exchange is the part of a gRPC stream, of either side, that is used here.
type exchange interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// control is a frame that the link itself has to send.
type control struct {
	due   bool
	token uint64
}

// conn is one connection of a lane, from hello to its end.
type conn struct {
	lane    *lane
	stream  exchange
	pool    *slabPool
	version uint8
	// instance of the process at the other end.
	instance [16]byte
	// sever breaks the connection at once; both directions then fail. It may be
	// called more than once, by any goroutine.
	sever func()
	// previous is the connection that this one replaces, nil if there was none.
	previous *conn
	// ended is closed when the reader has delivered its last frame.
	ended chan struct{}

	failOnce sync.Once
	failure  error // why the connection ended; set before sever

	// Guarded by lane.mu.
	wake        sync.Cond // the writer waits here
	sending     bool      // somebody is in SendMsg
	outstanding int       // batches that gRPC has not freed
	dead        bool      // the writer must end
	buried      bool      // what gRPC has not freed by now it never will
	sent        uint64
	ping, pong  control
	bye         control
	batches     []*txBatch // free list
	flying      []*txBatch // those gRPC holds

	// Written by the reader only.
	received                       uint64
	rx                             fabric.Frame // what Receive is called with
	rxFrames, rxBytes, rxMessages  atomic.Uint64
	rxCopies                       atomic.Uint64
	rxBadFrame, rxBadSrc, rxBadDst atomic.Uint64
	heard                          atomic.Bool

	// Owned by the pulse.
	silent int    // pulses without a sign of life
	pulsed uint64 // rxMessages at the last pulse
}

func newConn(ln *lane, stream exchange, pool *slabPool, version uint8, instance [16]byte, sever func()) *conn {
	c := &conn{
		lane: ln, stream: stream, pool: pool, version: version, instance: instance, sever: sever,
		ended: make(chan struct{}),
	}
	c.wake.L = &ln.mu
	return c
}

func errSequence(got, want uint64) error {
	return fmt.Errorf("frame %d from the peer where %d was due", got, want)
}

// errByePeer is the failure of a connection that the peer closed in good order.
var errByePeer = errors.New("closed by the peer")

// fail ends the connection.
func (c *conn) fail(err error) {
	c.failOnce.Do(func() {
		c.failure = err
		c.sever()
	})
}

// idle reports whether nothing is on its way to gRPC. lane.mu must be held.
func (c *conn) idle() bool { return !c.sending && c.outstanding == 0 }

// ready reports whether the writer has something to do and may do it. lane.mu
// must be held.
func (c *conn) ready() bool {
	return !c.sending && c.outstanding < maxOutstanding &&
		(c.lane.queue.Len() > 0 || c.ping.due || c.pong.due || c.bye.due)
}

// fill makes a batch of what waits and marks the connection as sending. lane.mu
// must be held and something must wait.
func (c *conn) fill() *txBatch {
	var b *txBatch
	if n := len(c.batches); n > 0 {
		b, c.batches = c.batches[n-1], c.batches[:n-1]
	} else {
		b = newTxBatch(c)
	}
	b.start()
	p := c.lane.peer
	w := wire.Frame{Src: p.link.opts.Self, Dst: p.node}
	c.addControl(b, &w, wire.Ping, &c.ping)
	c.addControl(b, &w, wire.Pong, &c.pong)
	w.Type = wire.Data
	var f fabric.Frame
	for limit := b.limit(); limit >= 0 && c.lane.queue.Pop(&f, limit); limit = b.limit() {
		w.Class, w.Flow, w.Header, w.Payload, w.Seq = f.Class, f.Flow, f.Header, f.Payload, c.sent
		c.sent++
		b.add(&w, f.Owner)
	}
	if c.lane.queue.Len() == 0 {
		c.addControl(b, &w, wire.Bye, &c.bye)
	}
	c.sending = true
	c.outstanding++
	c.flying = append(c.flying, b)
	return b
}

func (c *conn) addControl(b *txBatch, w *wire.Frame, t wire.Type, ctl *control) {
	if !ctl.due {
		return
	}
	ctl.due = false
	var token [wire.PingLen]byte
	wire.PutToken(token[:], ctl.token)
	*w = wire.Frame{Type: t, Class: fabric.Control, Src: w.Src, Dst: w.Dst, Seq: c.sent, Payload: token[:]}
	c.sent++
	b.add(w, nil)
	b.bytes -= wire.PingLen
	b.controls++
}

// transmit hands a filled batch to gRPC. No lock may be held.
func (c *conn) transmit(b *txBatch) {
	b.finish(c.version)
	b.releaseCopied()
	frames, bytes := b.frames-b.controls, b.bytes
	err := c.stream.SendMsg(b)
	b.unref()
	if err != nil {
		c.fail(sendError(err))
	}

	ln := c.lane
	ln.mu.Lock()
	c.sending = false
	if err == nil {
		ln.stats.TxMessages++
		ln.stats.TxFrames += uint64(frames)
		ln.stats.TxBytes += uint64(bytes)
	} else {
		ln.stats.Drops[fabric.DropLinkDown] += uint64(frames)
	}
	if c.dead {
		c.wake.Broadcast()
	} else if c.ready() {
		c.wake.Signal()
	}
	ln.mu.Unlock()
}

// recycle takes back a batch that gRPC is done with.
func (c *conn) recycle(b *txBatch) {
	b.release()
	ln := c.lane
	ln.mu.Lock()
	c.outstanding--
	c.flying = slices.DeleteFunc(c.flying, func(f *txBatch) bool { return f == b })
	c.batches = append(c.batches, b)
	if c.dead {
		c.wake.Broadcast()
	} else if c.ready() {
		c.wake.Signal()
	}
	ln.mu.Unlock()
}

// bury is what remains to be done when the connection has ended: gRPC forgets
// what it had queued when a connection breaks, and the owners must be released
// all the same. It waits until gRPC does not look at the bytes any more: once
// the connection is severed, its writer returns at the next write.
func (c *conn) bury() {
	late := time.AfterFunc(burial, func() {
		c.lane.mu.Lock()
		c.buried = true
		c.lane.mu.Unlock()
		c.wake.Broadcast()
	})
	defer late.Stop()
	c.lane.mu.Lock()
	for c.sending || c.outstanding > 0 && !c.buried {
		c.wake.Wait()
	}
	flying := c.flying
	c.flying = nil
	c.lane.mu.Unlock()
	for _, b := range flying {
		b.release()
	}
}

// write is the writer goroutine of the connection.
func (c *conn) write() {
	ln := c.lane
	var groups [fabric.Groups]uint8
	for {
		ln.mu.Lock()
		for !c.ready() && !c.dead {
			c.wake.Wait()
		}
		if c.dead {
			ln.mu.Unlock()
			return
		}
		b := c.fill()
		rooms := ln.queue.TakeRoom(&groups)
		ln.mu.Unlock()
		c.transmit(b)
		for _, g := range groups[:rooms] {
			ln.peer.link.opts.Receiver.Writable(ln.peer.node, g)
		}
	}
}

// read is the reader goroutine of the connection: it returns when the
// connection has ended, with the reason.
func (c *conn) read() error {
	if c.previous != nil {
		<-c.previous.ended
		c.previous = nil
	}
	for {
		m := newRxMessage()
		if err := c.stream.RecvMsg(m); err != nil {
			m.Release()
			c.fail(receiveError(err))
			break
		}
		if !c.heard.Load() {
			c.heard.Store(true)
		}
		err := c.deliver(m)
		m.Release()
		if err != nil {
			c.fail(err)
			c.drain()
			break
		}
	}
	return c.failure
}

// drain reads until the severed connection has ended for gRPC too.
func (c *conn) drain() {
	for {
		m := newRxMessage()
		err := c.stream.RecvMsg(m)
		m.Release()
		if err != nil {
			return
		}
	}
}

// deliver hands the frames of one message to the receiver.
func (c *conn) deliver(m *rxMessage) error {
	c.rxMessages.Add(1)
	if m.copied != nil {
		c.rxCopies.Add(1)
	}
	var d wire.Decoder
	if err := d.Reset(m.bytes, c.version); err != nil {
		c.rxBadFrame.Add(1)
		return err
	}
	var (
		link          = c.lane.peer.link
		w             wire.Frame
		frames, bytes uint64
	)
	m.hold(d.Frames())
	defer func() {
		c.rxFrames.Add(frames)
		c.rxBytes.Add(bytes)
	}()
	for d.Next(&w) {
		if w.Seq != c.received {
			c.rxBadFrame.Add(1)
			m.hold(-1 - d.Frames())
			return errSequence(w.Seq, c.received)
		}
		c.received++
		switch {
		case w.Type == wire.Bye:
			m.hold(-1 - d.Frames())
			return errByePeer
		case w.Type != wire.Data:
			c.answer(&w)
			m.Release()
		case w.Src != c.lane.peer.node:
			c.rxBadSrc.Add(1)
			m.Release()
		case w.Dst != link.opts.Self:
			c.rxBadDst.Add(1)
			m.Release()
		default:
			frames++
			bytes += uint64(len(w.Header) + len(w.Payload))
			c.rx = fabric.Frame{
				Dst: w.Dst, Src: w.Src, Flow: w.Flow, Class: w.Class,
				Header: w.Header, Payload: w.Payload, Owner: m,
			}
			link.opts.Receiver.Receive(&c.rx)
		}
	}
	return nil
}

// answer handles a ping or a pong. The reader leaves the answer to the writer.
func (c *conn) answer(w *wire.Frame) {
	token := wire.Token(w.Payload)
	if w.Type == wire.Pong {
		c.lane.peer.pong(token)
		return
	}
	c.request(&c.pong, token)
}

// request asks the writer for a control frame; one of a kind waits at most.
func (c *conn) request(ctl *control, token uint64) {
	ln := c.lane
	ln.mu.Lock()
	ctl.due, ctl.token = true, token
	if c.ready() {
		c.wake.Signal()
	}
	ln.mu.Unlock()
}

func sendError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("connection lost while sending")
	}
	return errors.New("sending: " + status.Convert(err).Message())
}

func receiveError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("stream ended by the peer")
	}
	return errors.New(status.Convert(err).Message())
}

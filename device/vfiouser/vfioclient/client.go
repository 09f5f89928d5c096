// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options sets up a client; the zero value is a guest of 64 MiB.
type Options struct {
	// Windows lays out the guest's memory; nil is 32 MiB at address 0 and 32 MiB
	// at 4 GiB, as a machine splits its memory around the PCI hole.
	Windows []Window
	// Timeout bounds the wait for each reply; 0 is QEMU's 5 s.
	Timeout time.Duration
}

// DefaultTimeout is how long QEMU waits for a reply.
const DefaultTimeout = 5 * time.Second

var defaultWindows = []Window{
	{IOVA: 0, Size: 32 << 20},
	{IOVA: 4 << 30, Size: 32 << 20, Offset: 32 << 20},
}

// ErrTimeout is the error of a request that the server did not answer in time.
// As in QEMU the session is of no use after it: the late reply is unexpected.
var ErrTimeout = errors.New("vfioclient: timed out waiting for reply")

// ErrClosed is the error of a session that was ended by Close.
var ErrClosed = errors.New("vfioclient: session closed")

// ServerError is an error reply of the server.
type ServerError struct {
	Command string
	Errno   syscall.Errno
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("vfioclient: server refused %s: %v", e.Command, e.Errno)
}

func (e *ServerError) Unwrap() error { return e.Errno }

// Client is one session with a server. Its methods may be used from any goroutine.
type Client struct {
	conn    *net.UnixConn
	timeout time.Duration
	ram     *RAM
	caps    atomic.Pointer[Capabilities]

	send struct {
		sync.Mutex // serialises messages on the socket
		buf        []byte
	}
	calls struct {
		sync.Mutex // guards the requests that wait for a reply, and the reason of the end
		next       uint16
		wait       map[uint16]*call
		posted     map[uint16]struct{} // ids of the newest posted messages, to name a reply to one
		postedRing [256]uint16
		postedAt   int
		err        error
	}
	dma  responder
	irqs struct {
		sync.Mutex
		vectors map[int]*Vector // MSI-X vectors that the server was given
		errs    *Vector
		atClose []func()
	}
	command atomic.Uint32 // COMMAND as it was last written by this client
	closing sync.Once
	done    chan struct{} // closed when the session has ended
	ended   sync.WaitGroup
}

// call is a request that waits for its reply.
type call struct {
	cmd     uint16
	name    string
	fds     bool // descriptors may come with the reply
	reply   []byte
	gotFDs  []int
	err     error
	arrived chan struct{}
}

// Dial connects to the server at a socket path and negotiates the version.
func Dial(ctx context.Context, path string, o Options) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("vfioclient: connect: %w", err)
	}
	return New(conn.(*net.UnixConn), o)
}

// New negotiates the version on a connection, which it owns from here on.
func New(conn *net.UnixConn, o Options) (*Client, error) {
	if o.Windows == nil {
		o.Windows = defaultWindows
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	ram, err := newRAM(o.Windows)
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{conn: conn, timeout: o.Timeout, ram: ram, done: make(chan struct{})}
	c.calls.wait = make(map[uint16]*call)
	c.calls.posted = make(map[uint16]struct{})
	c.irqs.vectors = make(map[int]*Vector)
	c.dma.ram = ram
	c.caps.Store(&defaultCapabilities)
	c.ended.Go(c.receive)
	if err := c.negotiate(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// RAM returns the guest's memory, which is gone after Close.
func (c *Client) RAM() *RAM { return c.ram }

// Done is closed when the session has ended, by Close or by a mistake of the server.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the session ended; nil while it has not.
func (c *Client) Err() error {
	c.calls.Lock()
	defer c.calls.Unlock()
	return c.calls.err
}

// Close ends the session as the end of a QEMU process does: abruptly, without a
// word to the server. The guest's memory and vectors are gone when it returns:
// nobody may use them any more.
func (c *Client) Close() { c.closing.Do(c.release) }

// AtClose adds a function that Close calls when the vectors are gone and the
// guest's memory is still there: to wait for those who use it.
func (c *Client) AtClose(f func()) {
	c.irqs.Lock()
	defer c.irqs.Unlock()
	c.irqs.atClose = append(c.irqs.atClose, f)
}

func (c *Client) release() {
	c.Drop()
	c.irqs.Lock()
	for _, v := range c.irqs.vectors {
		v.close()
	}
	if c.irqs.errs != nil {
		c.irqs.errs.close()
	}
	last := c.irqs.atClose
	c.irqs.Unlock()
	for _, f := range last {
		f()
	}
	c.ram.close()
}

// Drop closes the connection and keeps the guest's memory, to see what the
// server still writes to it. Close is still needed.
func (c *Client) Drop() {
	c.fail(ErrClosed)
	c.ended.Wait()
}

// fail ends the session; the first reason stays.
func (c *Client) fail(err error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.calls.err != nil {
		return
	}
	c.calls.err = err
	for id, w := range c.calls.wait {
		w.err = err
		close(w.arrived)
		delete(c.calls.wait, id)
	}
	c.conn.Close()
	close(c.done)
}

// start sends a request. The reply is taken with finish.
func (c *Client) start(cmd uint16, name string, payload []byte, withFDs bool, fds ...int) (*call, error) {
	w := &call{cmd: cmd, name: name, fds: withFDs, arrived: make(chan struct{})}
	c.send.Lock()
	defer c.send.Unlock()
	c.calls.Lock()
	if err := c.calls.err; err != nil {
		c.calls.Unlock()
		return nil, err
	}
	id := c.nextID()
	c.calls.wait[id] = w
	c.calls.Unlock()
	if err := c.transmit(id, cmd, 0, 0, payload, fds); err != nil {
		c.fail(err)
		return nil, err
	}
	return w, nil
}

// finish waits for the reply and returns its payload.
func (c *Client) finish(w *call) ([]byte, error) {
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case <-w.arrived:
	case <-timer.C:
		c.fail(fmt.Errorf("%w to %s", ErrTimeout, w.name))
		<-w.arrived
	}
	return w.reply, w.err
}

func (c *Client) request(cmd uint16, name string, payload []byte) ([]byte, error) {
	w, err := c.start(cmd, name, payload, false)
	if err != nil {
		return nil, err
	}
	return c.finish(w)
}

// post sends a request that must not be answered.
func (c *Client) post(cmd uint16, head, data []byte) error {
	c.send.Lock()
	defer c.send.Unlock()
	c.calls.Lock()
	if err := c.calls.err; err != nil {
		c.calls.Unlock()
		return err
	}
	id := c.nextID()
	c.notePosted(id)
	c.calls.Unlock()
	c.send.buf = append(append(append(c.send.buf[:0], make([]byte, headerSize)...), head...), data...)
	putHeader(c.send.buf, id, cmd, flagNoReply, 0)
	if _, err := c.conn.Write(c.send.buf); err != nil {
		return fmt.Errorf("vfioclient: post a message: %w", err)
	}
	return nil
}

// nextID returns an id that no waiting request has; c.calls is locked.
func (c *Client) nextID() uint16 {
	for {
		c.calls.next++
		if _, busy := c.calls.wait[c.calls.next]; !busy {
			delete(c.calls.posted, c.calls.next)
			return c.calls.next
		}
	}
}

// notePosted remembers the ids of the last posted messages; c.calls is locked.
func (c *Client) notePosted(id uint16) {
	at := c.calls.postedAt % len(c.calls.postedRing)
	if c.calls.postedAt >= len(c.calls.postedRing) {
		delete(c.calls.posted, c.calls.postedRing[at])
	}
	c.calls.postedRing[at] = id
	c.calls.posted[id] = struct{}{}
	c.calls.postedAt++
}

// transmit writes one message with one sendmsg; c.send is locked.
func (c *Client) transmit(id, cmd uint16, flags, errno uint32, payload []byte, fds []int) error {
	c.send.buf = append(append(c.send.buf[:0], make([]byte, headerSize)...), payload...)
	putHeader(c.send.buf, id, cmd, flags, errno)
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(c.send.buf, rights, nil)
	for err == nil && n < len(c.send.buf) {
		var m int
		m, err = c.conn.Write(c.send.buf[n:])
		n += m
	}
	if err != nil {
		return fmt.Errorf("vfioclient: send a message: %w", err)
	}
	return nil
}

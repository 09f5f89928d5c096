// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/ernic-dev/ernic/e2e/guest/wire"
)

// helloPatience is how long one Hello waits for its Welcome before the client
// connects again. An agent that was in the middle of a frame of an earlier host
// takes the Hello for the rest of it, and notices only the new connection.
const helloPatience = 30 * time.Second

// ErrGone is returned for a command whose guest has ended or cut the line.
var ErrGone = errors.New("the guest is gone")

// Client speaks to the agent of one guest over one virtio-serial port. It is
// safe for concurrent use.
type Client struct {
	// Info is what the agent said of its guest when the session began.
	Info wire.Info

	conn net.Conn

	writeMu sync.Mutex // keeps frames whole

	mu      sync.Mutex // guards what follows
	streams map[uint32]*Command
	next    uint32
	lost    error // why the line is down
}

// dialPause is the pause between attempts while QEMU is not yet listening.
const dialPause = 50 * time.Millisecond

// Dial connects to the Unix socket of a virtio-serial port and waits until
// QEMU listens there and the agent answers, or ctx ends.
func Dial(ctx context.Context, socket string) (*Client, error) {
	for {
		c, err := dialOnce(ctx, socket)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("agent at %s: %w", socket, errors.Join(context.Cause(ctx), err))
		}
		pause := dialPause
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		case errors.Is(err, context.DeadlineExceeded):
			// The agent looks for a new connection four times a second.
			pause = time.Second
		default:
			return nil, fmt.Errorf("agent at %s: %w", socket, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func dialOnce(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, streams: map[uint32]*Command{}}
	ctx, cancel := context.WithTimeout(ctx, helloPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	in := bufio.NewReaderSize(conn, wire.MaxPayload)
	info, err := c.greet(in)
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	if err := json.Unmarshal(info, &c.Info); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the agent's welcome: %w", err)
	}
	go c.receive(in)
	return c, nil
}

func (c *Client) greet(in io.Reader) ([]byte, error) {
	var nonce [wire.NonceSize]byte
	rand.Read(nonce[:]) // documented never to fail
	if err := c.write(wire.Frame{Type: wire.Hello, Payload: nonce[:]}); err != nil {
		return nil, err
	}
	return wire.FindWelcome(in, nonce)
}

func (c *Client) write(f wire.Frame) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if _, err := c.conn.Write(wire.Append(nil, f)); err != nil {
		return fmt.Errorf("%w: send %v: %w", ErrGone, f.Type, err)
	}
	return nil
}

// Close cuts the line. The agent kills the commands that still run.
func (c *Client) Close() error { return c.conn.Close() }

// PowerOff asks the guest to end. It does not wait.
func (c *Client) PowerOff() error { return c.write(wire.Frame{Type: wire.PowerOff}) }

func (c *Client) receive(in io.Reader) {
	for {
		f, err := wire.Read(in)
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrGone, err))
			return
		}
		c.mu.Lock()
		s := c.streams[f.Stream]
		if f.Type == wire.Exit {
			delete(c.streams, f.Stream)
		}
		c.mu.Unlock()
		if s == nil {
			continue
		}
		switch f.Type {
		case wire.Stdout:
			s.out(s.stdout, f.Payload)
		case wire.Stderr:
			s.out(s.stderr, f.Payload)
		case wire.Exit:
			s.exit(f.Payload)
		case wire.Reject:
			s.finish(wire.Status{Code: -1}, errors.New(string(f.Payload)))
		}
	}
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	c.lost = err
	open := c.streams
	c.streams = map[uint32]*Command{}
	c.mu.Unlock()
	for _, s := range open {
		s.finish(wire.Status{Code: -1}, err)
	}
	_ = c.conn.Close()
}

// open registers a stream and sends its Start.
func (c *Client) open(s *Command, w wire.Command) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if len(b) > wire.MaxPayload {
		return fmt.Errorf("a command of %d bytes, the limit is %d", len(b), wire.MaxPayload)
	}
	c.mu.Lock()
	if c.lost != nil {
		defer c.mu.Unlock()
		return c.lost
	}
	c.next++
	s.client, s.stream = c, c.next
	c.streams[s.stream] = s
	c.mu.Unlock()
	return c.write(wire.Frame{Type: wire.Start, Stream: s.stream, Payload: b})
}

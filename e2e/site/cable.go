// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"net"
	"sync"
)

// Cable carries the connections of the other workers to one worker, and can be
// cut. As with a real one neither end notices at once: what is sent waits, and
// arrives when the cable is whole again, if its sender is still there.
type Cable struct {
	listener net.Listener
	target   string
	carriers sync.WaitGroup

	mu     sync.Mutex // guards what follows
	ends   map[net.Conn]struct{}
	whole  chan struct{} // closed when the cable is whole again; nil while it is
	closed bool
}

// newCable carries connections to a target, host:port.
func newCable(target string) (*Cable, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cable to %s: %w", target, err)
	}
	c := &Cable{listener: l, target: target, ends: make(map[net.Conn]struct{})}
	c.carriers.Go(c.accept)
	return c, nil
}

// Addr is the host:port that the other workers connect to.
func (c *Cable) Addr() string { return c.listener.Addr().String() }

// Cut stops everything that is under way, in both directions.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole == nil {
		c.whole = make(chan struct{})
	}
}

// Mend lets everything go on.
func (c *Cable) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole != nil {
		close(c.whole)
		c.whole = nil
	}
}

// Close ends the cable and all connections over it.
func (c *Cable) Close() error {
	err := c.listener.Close()
	c.mu.Lock()
	c.closed = true
	for e := range c.ends {
		e.Close()
	}
	c.mu.Unlock()
	c.Mend()
	c.carriers.Wait()
	return err
}

// wait returns when the cable is whole.
func (c *Cable) wait() {
	c.mu.Lock()
	whole := c.whole
	if c.closed {
		whole = nil
	}
	c.mu.Unlock()
	if whole != nil {
		<-whole
	}
}

// add notes an end, and reports false, after closing it, when the cable is no
// more.
func (c *Cable) add(e net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		e.Close()
		return false
	}
	c.ends[e] = struct{}{}
	return true
}

func (c *Cable) drop(ends ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range ends {
		e.Close()
		delete(c.ends, e)
	}
}

func (c *Cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		if c.add(near) {
			c.carriers.Go(func() { c.connect(near) })
		}
	}
}

// connect makes the other half of a connection and carries it.
func (c *Cable) connect(near net.Conn) {
	c.wait()
	far, err := net.Dial("tcp", c.target)
	if err != nil || !c.add(far) {
		c.drop(near)
		return
	}
	c.carriers.Go(func() { c.carry(near, far) })
	c.carry(far, near)
}

// carry copies one direction until one end closes, which the other end learns
// when the cable is whole.
func (c *Cable) carry(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		c.wait()
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	c.drop(to, from)
}

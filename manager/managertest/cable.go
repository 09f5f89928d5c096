// SPDX-License-Identifier: Apache-2.0

package managertest

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Cable is what a client and the manager are connected by. Unlike a cable it can be interrupted without either side
// noticing.
type Cable struct {
	mu      sync.Mutex // guards what follows
	manager *Manager
	// silent is closed when the cable carries again; nil while it does.
	silent chan struct{}
	conns  map[*conn]struct{}
	dials  int
}

// Cable returns a new cable to the manager.
func (m *Manager) Cable() *Cable { return &Cable{manager: m, conns: make(map[*conn]struct{})} }

// Silence holds back everything that is sent, in both directions, as if the cable were pulled or the other side frozen.
// Neither side notices.
func (c *Cable) Silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent == nil {
		c.silent = make(chan struct{})
	}
}

// Restore delivers what was held back, as TCP would.
func (c *Cable) Restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent == nil {
		return
	}
	close(c.silent)
	c.silent = nil
	for k := range c.conns {
		if k.isClosed() {
			_ = k.Conn.Close()
			delete(c.conns, k)
		}
	}
}

// Cut closes all connections, which both sides notice.
func (c *Cable) Cut() {
	c.mu.Lock()
	var all []*conn
	for k := range c.conns {
		all = append(all, k)
	}
	c.mu.Unlock()
	for _, k := range all {
		k.once.Do(func() { close(k.closed) })
		_ = k.Conn.Close()
	}
}

// Dials returns how often a connection was asked for.
func (c *Cable) Dials() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

func (c *Cable) state() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

func (c *Cable) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	c.dials++
	c.mu.Unlock()
	for silent := c.state(); silent != nil; silent = c.state() {
		select {
		case <-silent:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	to := c.manager
	c.mu.Unlock()
	raw, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	k := &conn{Conn: raw, cable: c, closed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[k] = struct{}{}
	return k, nil
}

// conn is one connection over a cable.
type conn struct {
	net.Conn
	cable  *Cable
	once   sync.Once
	closed chan struct{}
}

func (k *conn) isClosed() bool {
	select {
	case <-k.closed:
		return true
	default:
		return false
	}
}

// carries waits until the cable carries, and reports whether the connection is still open.
func (k *conn) carries() bool {
	for silent := k.cable.state(); silent != nil; silent = k.cable.state() {
		select {
		case <-silent:
		case <-k.closed:
			return false
		}
	}
	return true
}

// Write sends p once the cable carries.
func (k *conn) Write(p []byte) (int, error) {
	if !k.carries() {
		return 0, net.ErrClosed
	}
	return k.Conn.Write(p)
}

// Read delivers what came once the cable carries.
func (k *conn) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	if !k.carries() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close closes the connection. While the cable is silent the manager does not learn of it.
func (k *conn) Close() error {
	k.once.Do(func() { close(k.closed) })
	k.cable.mu.Lock()
	defer k.cable.mu.Unlock()
	if k.cable.silent != nil {
		return nil
	}
	delete(k.cable.conns, k)
	return k.Conn.Close()
}

// Redirect makes the cable lead to another manager from the next connection on.
func (c *Cable) Redirect(m *Manager) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.manager = m
}

// DialOptions connects a client to the manager by this cable.
func (c *Cable) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) }),
	}
}

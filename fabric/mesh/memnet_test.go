// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// memnet is a network of pipes in memory, for tests under synctest. Its cables
// can be cut loudly (both ends see it) or silently (bytes stop).
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	cables    []*cable
	dials     int
	down      bool // new cables are refused
	next      int
}

func newMemnet() *memnet { return &memnet{listeners: map[string]*memListener{}} }

type memListener struct {
	net     *memnet
	address string
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

type memAddr string

func (a memAddr) Network() string { return "mem" }
func (a memAddr) String() string  { return string(a) }

func (m *memnet) listen() *memListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	address := fmt.Sprintf("node%d:1", m.next)
	l := &memListener{net: m, address: address, conns: make(chan net.Conn), done: make(chan struct{})}
	m.listeners[address] = l
	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		if l.net.listeners[l.address] == l {
			delete(l.net.listeners, l.address)
		}
		l.net.mu.Unlock()
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return memAddr(l.address) }

var errRefused = errors.New("connection refused")

// dial is what Options.Dial takes.
func (m *memnet) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.dials++
	down := m.down
	m.mu.Unlock()
	if l == nil || down {
		return nil, fmt.Errorf("dial %s: %w", address, errRefused)
	}
	a, b := net.Pipe()
	c := &cable{ends: [2]net.Conn{a, b}}
	c.moved.L = &c.mu
	m.mu.Lock()
	m.cables = append(m.cables, c)
	m.mu.Unlock()
	select {
	case l.conns <- &end{Conn: b, cable: c}:
		return &end{Conn: a, cable: c}, nil
	case <-l.done:
		return nil, fmt.Errorf("dial %s: %w", address, errRefused)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// freeze stops the bytes on all cables without a word.
func (m *memnet) freeze() {
	for _, c := range m.all() {
		c.mu.Lock()
		c.frozen = true
		c.mu.Unlock()
	}
}

// refuse makes the network refuse new cables, or not.
func (m *memnet) refuse(on bool) {
	m.mu.Lock()
	m.down = on
	m.mu.Unlock()
}

func (m *memnet) all() []*cable {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*cable(nil), m.cables...)
}

func (m *memnet) dialed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

type cable struct {
	ends   [2]net.Conn
	mu     sync.Mutex
	moved  sync.Cond
	frozen bool
}

// end is one end of a cable.
type end struct {
	net.Conn
	cable  *cable
	closed bool // guarded by cable.mu
}

// Write blocks on a frozen cable, as a full socket buffer does.
func (e *end) Write(b []byte) (int, error) {
	c := e.cable
	c.mu.Lock()
	for c.frozen && !e.closed {
		c.moved.Wait()
	}
	closed := e.closed
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	return e.Conn.Write(b)
}

// Close closes this end. On a frozen cable the other end does not notice.
func (e *end) Close() error {
	c := e.cable
	c.mu.Lock()
	e.closed = true
	frozen := c.frozen
	c.mu.Unlock()
	c.moved.Broadcast()
	if frozen {
		return e.SetDeadline(time.Unix(1, 0))
	}
	return e.Conn.Close()
}

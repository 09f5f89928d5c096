// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"net"
	"sync"
)

// trackedListener knows the connections that it accepted. gRPC waits for those that have not finished their handshake,
// of which it can be told nothing else than that they are closed.
type trackedListener struct {
	net.Listener
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

func track(l net.Listener) *trackedListener {
	return &trackedListener{Listener: l, open: make(map[net.Conn]struct{})}
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[t] = struct{}{}
	return t, nil
}

// closeAll closes every connection that is open.
func (l *trackedListener) closeAll() {
	l.mu.Lock()
	var all []net.Conn
	for c := range l.open {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

type trackedConn struct {
	net.Conn
	listener *trackedListener
}

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

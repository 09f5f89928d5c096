// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net"

	"github.com/ernic-dev/ernic/fabric/socket"
)

// plainConn is a connection without encryption as gRPC sees it. gRPC's own
// buffers are off: messages go from the memory of their frames to the socket,
// and from the socket into the slabs, without another copy.
type plainConn struct {
	net.Conn
	out gather
	in  scatter
}

// newPlainConn wraps a connection. dials says whether this end made it.
func newPlainConn(raw net.Conn, pool *slabPool, dials bool) (*plainConn, error) {
	s, err := socket.New(raw)
	if err != nil {
		return nil, err
	}
	c := &plainConn{Conn: raw}
	c.out = gather{to: s, small: make([]byte, 0, copies)}
	c.in = scatter{from: s, pool: pool, look: make([]byte, lookAhead)}
	if dials {
		c.out.frames.skip = prefaceLen
	} else {
		c.in.frames.skip = prefaceLen
	}
	return c, nil
}

// Read implements net.Conn.
func (c *plainConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write implements net.Conn.
func (c *plainConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// grpcBuffers are the sizes of gRPC's buffers of a connection.
type grpcBuffers struct{ read, write int }

// wrap makes what gRPC shall see of a connection.
func (l *Link) wrap(raw net.Conn, pool *slabPool, dials bool) (net.Conn, grpcBuffers, error) {
	if !l.opts.Insecure {
		return raw, grpcBuffers{readBuffer, writeBuffer}, nil
	}
	c, err := newPlainConn(raw, pool, dials)
	return c, grpcBuffers{}, err
}

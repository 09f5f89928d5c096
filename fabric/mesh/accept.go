// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/wire"
)

// goodbye is how long a connection whose stream has ended may take to tell the
// peer why.
const goodbye = 500 * time.Millisecond

// accept is the goroutine that takes connections. Each gets a gRPC server of
// its own: a connection needs its own buffer pool, and ends alone.
func (l *Link) accept() {
	const pauseMost = time.Second
	pause := time.Millisecond
	for {
		raw, err := l.opts.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
				return
			}
			// Out of descriptors, most likely: others may end.
			l.opts.OnEvent(Event{Kind: Refused, Err: fmt.Errorf("accepting: %w", err)})
			select {
			case <-time.After(pause):
				pause = min(2*pause, pauseMost)
				continue
			case <-l.ctx.Done():
				return
			}
		}
		pause = time.Millisecond
		in := &inbound{link: l, raw: raw, pool: newSlabPool(), done: make(chan struct{})}
		if l.pending.Add(1) > int64(l.opts.MaxPending) {
			l.pending.Add(-1)
			in.refuse(0, fmt.Errorf("%d connections wait for a hello already", l.opts.MaxPending))
			_ = raw.Close()
			continue
		}
		if !l.spawn(in.serve) {
			_ = raw.Close()
		}
	}
}

// inbound is a connection that a peer made.
type inbound struct {
	link *Link
	raw  net.Conn
	pool *slabPool

	conn    *conn       // the lane's, set by the handler
	greeted atomic.Bool // the hello came, good or bad
	admit   sync.Once   // takes the connection out of link.pending
	end     sync.Once
	done    chan struct{} // closed when the connection has no more use
}

// serve runs the connection to its end.
func (in *inbound) serve() {
	l := in.link
	defer in.settled()
	conn, buffers, err := l.wrap(in.raw, in.pool, false)
	if err != nil {
		in.refuse(0, err)
		_ = in.raw.Close()
		return
	}
	server := grpc.NewServer(
		grpc.Creds(l.opts.ServerCredentials),
		grpc.ConnectionTimeout(l.opts.Timing.Hello),
		grpc.MaxConcurrentStreams(1),
		grpc.ReadBufferSize(buffers.read),
		grpc.WriteBufferSize(buffers.write),
		grpc.StaticStreamWindowSize(int32(l.opts.Window)),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.MaxRecvMsgSize(wire.MaxMessage),
		grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.ForceServerCodecV2(codec{}),
		experimental.BufferPool(in.pool),
	)
	server.RegisterService(&serviceDesc, in)
	healthv1.RegisterHealthServer(server, l.health)
	if l.opts.Reflection {
		reflection.Register(server)
	}

	// Whoever has not said hello in time never will.
	timer := time.AfterFunc(l.opts.Timing.Hello, func() {
		if !in.greeted.Load() {
			in.refuse(0, fmt.Errorf("no hello within %v", l.opts.Timing.Hello))
			in.sever()
		}
	})
	defer timer.Stop()
	stop := context.AfterFunc(l.ctx, in.sever)
	defer stop()

	// Serve returns when the listener does, at the end of the connection.
	_ = server.Serve(&oneListener{in: in, conn: conn})
	hurry := time.AfterFunc(goodbye, func() { _ = in.raw.Close() })
	defer hurry.Stop()
	server.GracefulStop()
	_ = in.raw.Close()
	if in.conn != nil {
		in.conn.bury()
	}
}

// finish lets the connection end once what is under way is sent.
func (in *inbound) finish() { in.end.Do(func() { close(in.done) }) }

// sever breaks the connection.
func (in *inbound) sever() {
	_ = in.raw.Close()
	in.finish()
}

// settled takes the connection out of those that wait for a hello.
func (in *inbound) settled() { in.admit.Do(func() { in.link.pending.Add(-1) }) }

func (in *inbound) refuse(node uint32, err error) {
	in.link.refused.Add(1)
	in.link.opts.OnEvent(Event{Kind: Refused, Node: node, Address: in.raw.RemoteAddr().String(), Err: err})
}

// exchange is the handler of the connection's stream.
func (in *inbound) exchange(stream grpc.ServerStream) error {
	defer in.finish()
	var h wire.Hello
	err := in.receiveHello(stream, &h)
	if in.greeted.Swap(true) {
		return status.Error(codes.FailedPrecondition, "this connection has a stream already")
	}
	in.settled()
	if err == nil {
		err = in.serveHello(stream, &h)
	}
	if err == nil {
		return nil
	}
	var r refusal
	if !errors.As(err, &r) {
		r = refusal{codes.FailedPrecondition, err}
	}
	in.refuse(h.Node, err)
	return status.Error(r.code, err.Error())
}

// refusal is an error with the gRPC code it is answered with.
type refusal struct {
	code codes.Code
	error
}

func (in *inbound) receiveHello(stream grpc.ServerStream, h *wire.Hello) error {
	m := newRxMessage()
	defer m.Release()
	if err := stream.RecvMsg(m); err != nil {
		return fmt.Errorf("no hello: %w", text(err))
	}
	return h.Decode(m.bytes)
}

// serveHello answers a hello and does what it asks for. The error, if any, is
// why it is refused.
func (in *inbound) serveHello(stream grpc.ServerStream, h *wire.Hello) error {
	l := in.link
	own := l.hello(h.Node)
	own.Purpose, own.Lane, own.Lanes, own.Epoch = h.Purpose, h.Lane, h.Lanes, h.Epoch
	version, err := wire.Negotiate(&own, h)
	if err != nil {
		return err
	}
	node, known := l.opts.Directory.Node(h.Node)
	p := l.peer(h.Node)
	if !known || p == nil {
		return refusal{codes.Unavailable, fmt.Errorf("node %d does not know node %d", l.opts.Self, h.Node)}
	}
	if err := p.checkHello(h, node); err != nil {
		return err
	}
	if err := l.verify(stream.Context(), h.Node); err != nil {
		return refusal{codes.PermissionDenied, err}
	}
	if (h.Purpose == wire.AskForLink) != p.dials() {
		return fmt.Errorf("node %d dials node %d, not the other way round", min(l.opts.Self, h.Node), max(l.opts.Self, h.Node))
	}
	if h.Purpose == wire.AskForLink {
		if err := stream.SendMsg(rawBytes(own.Append(nil))); err != nil {
			return refusal{codes.Unavailable, fmt.Errorf("answering the hello: %w", text(err))}
		}
		signal(p.nudge)
		p.demand()
		return nil
	}
	ln, err := p.admit(h)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(rawBytes(own.Append(nil))); err != nil {
		return refusal{codes.Unavailable, fmt.Errorf("answering the hello: %w", text(err))}
	}
	c := newConn(ln, stream, in.pool, version, h.Instance, in.sever)
	in.conn = c
	if err := p.attach(c); err != nil {
		return refusal{codes.Unavailable, err}
	}
	p.detach(c, c.read())
	return nil
}

// admit prepares the link for a lane that the peer dials and returns that
// lane. A new epoch is a new link: what is left of the old one is ended first.
func (p *peer) admit(h *wire.Hello) (*lane, error) {
	p.admission.Lock()
	defer p.admission.Unlock()
	p.mu.Lock()
	same := p.epoch == h.Epoch
	p.epoch = h.Epoch
	p.mu.Unlock()
	if !same {
		for _, ln := range *p.lanes.Load() {
			if c := ln.current(); c != nil {
				c.fail(errReplaced)
				<-c.ended
			}
		}
	}
	if err := p.setLanes(int(h.Lanes)); err != nil {
		return nil, err
	}
	return (*p.lanes.Load())[h.Lane], nil
}

// oneListener is a listener that accepts one connection and then waits for its
// end.
type oneListener struct {
	in   *inbound
	conn net.Conn
}

// Accept returns the connection the first time.
func (o *oneListener) Accept() (net.Conn, error) {
	if c := o.conn; c != nil {
		o.conn = nil
		return c, nil
	}
	<-o.in.done
	return nil, net.ErrClosed
}

// Close does nothing: the connection has an owner.
func (o *oneListener) Close() error { return nil }

// Addr is the local address of the connection.
func (o *oneListener) Addr() net.Addr { return o.in.raw.LocalAddr() }

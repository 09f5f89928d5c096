// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/directory"
	"github.com/ernic-dev/ernic/fabric/wire"
)

const (
	// writeBuffer is the size of gRPC's write buffer: the largest message goes
	// out in one system call, which is worth more than anything else here.
	// readBuffer is its counterpart. Both come from a pool shared by all
	// connections while there is something to write or read.
	writeBuffer = 288 << 10
	readBuffer  = 128 << 10
	// connWindow is the flow control window of a connection, which is no bound: a
	// connection has one stream, and Options.Window bounds that. One of the same
	// size would only double the number of window updates.
	connWindow = 1 << 30
	// maxHeaderList bounds the HTTP/2 headers of a peer.
	maxHeaderList = 8 << 10
)

// outbound is a connection that this node dialed, after the hellos.
type outbound struct {
	raw    net.Conn
	cc     *grpc.ClientConn
	cancel context.CancelFunc
	stream grpc.ClientStream
	pool   *slabPool
	peer   wire.Hello
}

// sever breaks the connection without waiting for anything. The stream is not
// canceled: it then ends after gRPC's writer has, not before.
func (o *outbound) sever() { _ = o.raw.Close() }

// close gives all resources back, on a connection that is severed or done.
func (o *outbound) close() {
	o.sever()
	o.cancel()
	_ = o.cc.Close()
}

// dialLane makes the connection of a lane and starts its goroutines.
func (l *Link) dialLane(ctx context.Context, ln *lane, node directory.Node) error {
	p := ln.peer
	own := l.hello(node.ID)
	own.Purpose, own.Lane, own.Lanes, own.Epoch = wire.CarryLane, uint8(ln.index), uint8(len(*p.lanes.Load())), p.epoch
	o, version, err := l.dial(ctx, p, node, own)
	if err != nil {
		return fmt.Errorf("node %d at %s, lane %d: %w", node.ID, node.Address, ln.index, err)
	}
	c := newConn(ln, o.stream, o.pool, version, o.peer.Instance, o.sever)
	if err := p.attach(c); err != nil {
		o.close()
		return err
	}
	run := func() {
		err := c.read()
		o.close()
		p.detach(c, err)
		c.bury()
	}
	if !l.spawn(run) {
		c.fail(errGoingDown)
		run()
	}
	return nil
}

// askForLink asks a node to dial this one.
func (l *Link) askForLink(ctx context.Context, p *peer, node directory.Node) error {
	own := l.hello(node.ID)
	own.Purpose, own.Lanes = wire.AskForLink, 1
	o, _, err := l.dial(ctx, p, node, own)
	if err != nil {
		return fmt.Errorf("node %d at %s, asked to dial: %w", node.ID, node.Address, err)
	}
	o.close()
	return nil
}

// hello introduces this node to another.
func (l *Link) hello(to uint32) wire.Hello {
	return wire.Hello{
		VersionMin: l.opts.versions[0], VersionMax: l.opts.versions[1],
		Node: l.opts.Self, To: to,
		Instance: l.opts.Instance, Incarnation: l.opts.Incarnation,
	}
}

// dial connects to a node and exchanges hellos, within ctx.
func (l *Link) dial(ctx context.Context, p *peer, node directory.Node, own wire.Hello) (*outbound, uint8, error) {
	raw, err := l.opts.Dial(ctx, node.Address)
	if err != nil {
		return nil, 0, err
	}
	o := &outbound{raw: raw, pool: newSlabPool()}
	conn, buffers, err := l.wrap(raw, o.pool, true)
	if err != nil {
		_ = raw.Close()
		return nil, 0, err
	}
	o.cc, err = grpc.NewClient("passthrough:///"+node.Address,
		grpc.WithTransportCredentials(l.opts.ClientCredentials),
		grpc.WithContextDialer(once(conn)),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(buffers.read),
		grpc.WithWriteBufferSize(buffers.write),
		grpc.WithStaticStreamWindowSize(int32(l.opts.Window)),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		experimental.WithBufferPool(o.pool),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(codec{}),
			grpc.MaxCallRecvMsgSize(wire.MaxMessage),
			grpc.MaxCallSendMsgSize(wire.MaxMessage),
		),
	)
	if err != nil {
		_ = raw.Close()
		return nil, 0, err
	}
	// The stream outlives ctx, which bounds its beginning.
	streamCtx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	release := context.AfterFunc(ctx, func() { o.cancel(); o.sever() })
	version, err := l.greet(streamCtx, o, p, node, own)
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		o.close()
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer to the hello: %w", ctx.Err())
		}
		return nil, 0, err
	}
	return o, version, nil
}

// greet opens the stream and exchanges hellos.
func (l *Link) greet(ctx context.Context, o *outbound, p *peer, node directory.Node, own wire.Hello) (uint8, error) {
	var err error
	if o.stream, err = o.cc.NewStream(ctx, &streamDesc, methodPath); err != nil {
		return 0, text(err)
	}
	// An error here is told by RecvMsg with its cause.
	_ = o.stream.SendMsg(rawBytes(own.Append(nil)))
	m := newRxMessage()
	defer m.Release()
	if err := o.stream.RecvMsg(m); err != nil {
		return 0, text(err)
	}
	if err := o.peer.Decode(m.bytes); err != nil {
		return 0, err
	}
	if err := p.checkHello(&o.peer, node); err != nil {
		return 0, err
	}
	if err := l.verify(o.stream.Context(), node.ID); err != nil {
		return 0, err
	}
	return wire.Negotiate(&own, &o.peer)
}

// verify asks whether the connection of ctx may speak for the node.
func (l *Link) verify(ctx context.Context, node uint32) error {
	if l.opts.Verify == nil {
		return nil
	}
	pr, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return fmt.Errorf("node %d: the connection has no peer", node)
	}
	return l.opts.Verify(node, pr.AuthInfo)
}

// once is a dialer that returns raw the first time: making the connection again
// is not gRPC's business here.
func once(raw net.Conn) func(context.Context, string) (net.Conn, error) {
	var used atomic.Bool
	return func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, net.ErrClosed
		}
		return raw, nil
	}
}

// text makes a plain error of a gRPC status.
func text(err error) error { return errors.New(status.Convert(err).Message()) }

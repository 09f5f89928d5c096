// SPDX-License-Identifier: Apache-2.0

// Package relay lets a worker reach a peer by way of the manager when it cannot be reached directly, which is a last resort.
//
//	mesh --- loopback socket --- relay === manager === relay --- fabric listener --- mesh
//	         (the end that calls)                              (the end that is called)
//
// What is carried is the connection that the two would have made directly: they protect it and check who is at its other
// end as ever, and the manager sees bytes. Each relayed connection is a connection of its own to the manager, so that
// heartbeats do not wait behind it. The end that called looks now and then whether the direct way is open, and then gives
// the relayed connections up: the mesh makes new ones.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

const (
	// DirectTime is how long the direct way may take before the manager is called.
	DirectTime = time.Second
	// defaultLook is the time between two looks whether the direct way is open.
	defaultLook = 10 * time.Second
	// chunk is the most bytes in one message.
	chunk = 32 << 10
)

// Config says what a relay connects.
type Config struct {
	// Self returns the own node id, and false before there is one.
	Self func() (uint32, bool)
	// Manager makes a connection of its own to the manager; its error is why that is not possible now.
	Manager func() (*grpc.ClientConn, error)
	// Peer returns the node that is reached at an address.
	Peer func(address string) (uint32, bool)
	// Listener is the host:port of the own fabric listener, where calls of others are connected to.
	Listener string
	Log      zerolog.Logger
	// Look is the time between two looks whether the direct way is open. Default 10 s.
	Look time.Duration
}

// Relay holds the connections that go by way of the manager.
type Relay struct {
	cfg    Config
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	ended  sync.WaitGroup
	opened atomic.Uint64
	bytes  atomic.Uint64

	mu     sync.Mutex // guards what follows
	closed bool
	open   map[uint32]map[*tunnel]struct{} // by peer
	looked map[uint32]bool                 // peers whose direct way is looked at
}

// tunnel is one connection.
type tunnel struct {
	conn   net.Conn // to the mesh
	cancel context.CancelFunc
	called bool // by this end
}

// New returns a relay without connections.
func New(cfg Config) *Relay {
	if cfg.Look == 0 {
		cfg.Look = defaultLook
	}
	r := &Relay{cfg: cfg, open: make(map[uint32]map[*tunnel]struct{}), looked: make(map[uint32]bool)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends all connections.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.ended.Wait()
}

// spawn starts a goroutine that Close waits for, unless the relay is closed.
func (r *Relay) spawn(do func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.ended.Go(do)
	return true
}

// Relayed reports whether a connection to or from a peer goes by way of the manager.
func (r *Relay) Relayed(peer uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open[peer]) > 0
}

// Counters returns how many peers are reached by way of the manager now, how many connections there were, and how many
// bytes they carried both ways.
func (r *Relay) Counters() (peers int, opened, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open), r.opened.Load(), r.bytes.Load()
}

// Dial connects to a peer at an address: directly, or if that fails by way of the manager. The error is that of the
// direct way, with the other one behind it.
func (r *Relay) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := direct(ctx, address)
	if err == nil {
		return conn, nil
	}
	peer, ok := r.cfg.Peer(address)
	if !ok || ctx.Err() != nil {
		return nil, err
	}
	conn, roundabout := r.call(ctx, peer, address)
	if roundabout != nil {
		return nil, fmt.Errorf("%w, and by way of the manager: %w", err, roundabout)
	}
	return conn, nil
}

func direct(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DirectTime)
	defer cancel()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

type stream = grpc.BidiStreamingClient[ernicv1.RelayRequest, ernicv1.RelayResponse]

// connect opens a stream to the manager, says a first message and waits for the manager's to say that the two ends are
// joined. ctx bounds all of that; the stream ends with the returned function.
func (r *Relay) connect(ctx context.Context, first *ernicv1.RelayRequest) (stream, context.CancelFunc, error) {
	cc, err := r.cfg.Manager()
	if err != nil {
		return nil, nil, err
	}
	live, cancel := context.WithCancel(r.ctx)
	end := func() {
		cancel()
		_ = cc.Close()
	}
	release := context.AfterFunc(ctx, cancel)
	s, err := ernicv1.NewManagerServiceClient(cc).Relay(live)
	if err == nil {
		// What is wrong with a stream that takes nothing is told to who receives.
		_ = s.Send(first)
		_, err = s.Recv()
	}
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, nil, errors.New(session.Cause(err))
	}
	return s, end, nil
}

// call connects to a peer by way of the manager.
func (r *Relay) call(ctx context.Context, peer uint32, address string) (net.Conn, error) {
	self, ok := r.cfg.Self()
	if !ok {
		return nil, errors.New("this worker is no member yet")
	}
	s, end, err := r.connect(ctx, &ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Call{Call: &ernicv1.RelayCall{From: self, To: peer}}})
	if err != nil {
		return nil, err
	}
	mine, theirs, err := pair(ctx)
	if err != nil {
		end()
		return nil, err
	}
	t := &tunnel{conn: theirs, cancel: end, called: true}
	if !r.spawn(func() { r.carry(peer, t, s) }) {
		end()
		return nil, errors.Join(net.ErrClosed, mine.Close(), theirs.Close())
	}
	r.lookOut(peer, address)
	return mine, nil
}

// Answer connects a call of a peer to the own listener. It does not wait.
func (r *Relay) Answer(from uint32, token [16]byte) {
	r.spawn(func() {
		ctx, cancel := context.WithTimeout(r.ctx, DirectTime)
		defer cancel()
		s, end, err := r.connect(ctx, &ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Answer{Answer: token[:]}})
		if err != nil {
			r.cfg.Log.Warn().Err(err).Uint32("peer", from).Msg("a peer that calls by way of the manager cannot be answered")
			return
		}
		conn, err := direct(ctx, r.cfg.Listener)
		if err != nil {
			end()
			r.cfg.Log.Warn().Err(err).Uint32("peer", from).Msg("the own listener does not take a peer that calls by way of the manager")
			return
		}
		r.carry(from, &tunnel{conn: conn, cancel: end}, s)
	})
}

// carry copies both ways until either side ends, and closes both.
func (r *Relay) carry(peer uint32, t *tunnel, s stream) {
	r.add(peer, t)
	defer r.remove(peer, t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.outward(t.conn, s)
		t.end()
	}()
	r.inward(t.conn, s)
	t.end()
	<-done
}

func (t *tunnel) end() {
	t.cancel()
	_ = t.conn.Close()
}

func (r *Relay) outward(conn net.Conn, s stream) {
	buf := make([]byte, chunk)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			r.bytes.Add(uint64(n))
			if s.Send(&ernicv1.RelayRequest{Message: &ernicv1.RelayRequest_Data{Data: buf[:n]}}) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *Relay) inward(conn net.Conn, s stream) {
	for {
		m, err := s.Recv()
		if err != nil {
			return
		}
		r.bytes.Add(uint64(len(m.GetData())))
		if _, err := conn.Write(m.GetData()); err != nil {
			return
		}
	}
}

func (r *Relay) add(peer uint32, t *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened.Add(1)
	if r.open[peer] == nil {
		r.open[peer] = make(map[*tunnel]struct{})
		r.cfg.Log.Warn().Uint32("peer", peer).Bool("called", t.called).Msg("a peer is reached by way of the manager only")
	}
	r.open[peer][t] = struct{}{}
}

func (r *Relay) remove(peer uint32, t *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open[peer], t)
	if len(r.open[peer]) == 0 {
		delete(r.open, peer)
	}
}

// lookOut looks now and then whether a peer can be reached directly, for as long as it is not.
func (r *Relay) lookOut(peer uint32, address string) {
	r.mu.Lock()
	already := r.looked[peer]
	r.looked[peer] = true
	r.mu.Unlock()
	if already {
		return
	}
	r.spawn(func() {
		tick := time.NewTicker(r.cfg.Look)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-r.ctx.Done():
				return
			}
			if r.settled(peer, address) {
				return
			}
		}
	})
}

// settled reports whether there is nothing to look for any more: no connection to the peer is left, or the direct way is
// open, in which case all are given up.
func (r *Relay) settled(peer uint32, address string) bool {
	r.mu.Lock()
	if len(r.open[peer]) == 0 {
		delete(r.looked, peer)
		r.mu.Unlock()
		return true
	}
	r.mu.Unlock()
	conn, err := direct(r.ctx, address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.looked, peer)
	r.cfg.Log.Info().Uint32("peer", peer).Msg("a peer can be reached directly again")
	for t := range r.open[peer] {
		if t.called {
			t.end()
		}
	}
	return true
}

// pair returns the two ends of a connection over loopback.
func pair(ctx context.Context) (mine, theirs net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if mine, err = direct(ctx, l.Addr().String()); err != nil {
		return nil, nil, err
	}
	for {
		theirs, err = l.Accept()
		if err != nil {
			return nil, nil, errors.Join(err, mine.Close())
		}
		// Whoever else found the port in this moment is not let in.
		if theirs.RemoteAddr().String() == mine.LocalAddr().String() {
			return mine, theirs, nil
		}
		_ = theirs.Close()
	}
}

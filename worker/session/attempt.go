// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// defaultInterval is the health interval before the manager has told its own.
	defaultInterval = 5 * time.Second
	// shortestInterval keeps a manager from making a worker busy with heartbeats.
	shortestInterval = 10 * time.Millisecond
	// connectTimeout bounds one attempt to connect.
	connectTimeout = 5 * time.Second
	// leaveTimeout is how long a worker that stops waits for the manager to have heard it.
	leaveTimeout = 500 * time.Millisecond
)

var errSilent = errors.New("nothing came from it for three health intervals")

type stream = grpc.BidiStreamingClient[ernicv1.SessionRequest, ernicv1.SessionResponse]

// link is one stream to the manager.
type link struct {
	s       *Session
	manager string
	stream  stream
	node    uint32
	// silence is how long the manager may say nothing. It belongs to the receiver once there is one, and no longer changes
	// after the registration.
	silence  time.Duration
	watchdog *time.Timer

	registered chan *ernicv1.Registered
	probes     chan uint64
	ended      chan error

	// What follows belongs to the receiver. parts are those of an update that is not complete yet.
	accepted bool
	parts    []*ernicv1.MeshUpdate
	// The last heartbeat sent, which its answer is measured by.
	beat   atomic.Uint64
	beatAt atomic.Int64
	start  time.Time
}

// attempt connects, registers and stays until the session ends. It reports whether the manager accepted the worker, and
// why the session is over.
func (s *Session) attempt(ctx context.Context) (registered bool, err error) {
	s.mu.Lock()
	manager := s.managers.current()
	s.mu.Unlock()
	s.locate(manager)
	s.mu.Lock()
	node, addr, interval := s.node, s.addr, s.interval
	s.mu.Unlock()
	// The stream outlives ctx for as long as it takes to say good-bye.
	streamCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leaveTimeout, func() { cancel(ctx.Err()) }) })
	defer stop()

	conn, err := s.connect(manager)
	if err != nil {
		return false, err
	}
	// Closing waits for the farewell to be written, which takes seconds on a connection that takes nothing more.
	defer func() { go func() { _ = conn.Close() }() }()
	l := &link{
		s:          s,
		manager:    manager,
		silence:    3 * interval,
		registered: make(chan *ernicv1.Registered, 1),
		probes:     make(chan uint64, 4),
		ended:      make(chan error, 1),
		start:      time.Now(),
	}
	l.watchdog = time.AfterFunc(l.silence, func() { cancel(errSilent) })
	defer l.watchdog.Stop()
	// Until the manager has accepted the worker there is no one to take leave of.
	unregistered := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	defer unregistered()

	fail := func(err error) error {
		if cause := context.Cause(streamCtx); cause != nil {
			return cause
		}
		return s.explain(manager, err)
	}
	if l.stream, err = ernicv1.NewManagerServiceClient(conn).Session(streamCtx); err != nil {
		return false, fail(err)
	}
	s.setRegistering()
	if err := l.stream.Send(s.cfg.register(node, addr, s.base.Load())); err != nil && !errors.Is(err, io.EOF) {
		return false, fail(err)
	}
	go l.receive()
	select {
	case err := <-l.ended:
		return false, fail(err)
	case m := <-l.registered:
		unregistered()
		return true, fail(l.run(ctx, m))
	}
}

// connect returns a connection to a manager.
func (s *Session) connect(manager string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+manager, append([]grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
	}, s.cfg.Dial...)...)
}

// errNoSession is why the manager cannot be asked for anything.
var errNoSession = errors.New("there is no session with the manager")

// DialManager returns a connection of its own to the manager that the worker has a session with.
func (s *Session) DialManager() (*grpc.ClientConn, error) {
	s.mu.Lock()
	manager, state := s.managers.current(), s.state
	s.mu.Unlock()
	if state != ernicv1.SessionState_SESSION_STATE_REGISTERED {
		return nil, errNoSession
	}
	return s.connect(manager)
}

func (s *Session) setRegistering() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = ernicv1.SessionState_SESSION_STATE_REGISTERING
}

// run sends what there is to send until the session ends.
func (l *link) run(ctx context.Context, m *ernicv1.Registered) error {
	interval := l.silence / 3
	l.node = m.GetNodeId()
	// The first heartbeat goes at once and the second soon, since only that can carry a round trip.
	next := time.NewTimer(interval / 10)
	defer next.Stop()
	err := l.heartbeat()
	for err == nil {
		select {
		case err := <-l.ended:
			return err
		case <-ctx.Done():
			return l.leave()
		case <-next.C:
			// A little early by chance, so that the workers of a mesh do not keep step.
			next.Reset(interval - rand.N(interval/10))
			err = l.heartbeat()
		case <-l.s.beatNow:
			err = l.heartbeat()
		case seq := <-l.probes:
			err = l.stream.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_ProbeAnswer{
				ProbeAnswer: &ernicv1.ProbeAnswer{Sequence: seq},
			}})
		case <-l.s.claims.changed:
			err = l.sendClaims()
		}
	}
	// A stream that takes nothing more says why where it is received.
	return <-l.ended
}

func (l *link) heartbeat() error {
	m := &ernicv1.Heartbeat{NodeId: l.node, Sequence: l.beat.Load() + 1, Report: l.s.report()}
	l.beatAt.Store(int64(time.Since(l.start)))
	l.beat.Store(m.GetSequence())
	return l.stream.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Heartbeat{Heartbeat: m}})
}

// sendClaims sends what the manager does not hold yet, or no longer should.
func (l *link) sendClaims() error {
	for {
		m := l.s.claims.next()
		if m == nil {
			return nil
		}
		m.NodeId = l.node
		if err := l.stream.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Claims{Claims: m}}); err != nil {
			return err
		}
	}
}

// leave tells the manager that the worker stops and waits for it to have heard; the stream is torn down if it has not in
// time.
func (l *link) leave() error {
	if err := l.stream.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Leave{Leave: &ernicv1.Leave{}}}); err != nil {
		return <-l.ended
	}
	if err := l.stream.CloseSend(); err != nil {
		return err
	}
	return <-l.ended
}

// receive takes in what the manager sends until the stream ends.
func (l *link) receive() {
	for {
		m, err := l.stream.Recv()
		if err == nil {
			l.watchdog.Reset(l.silence)
			err = l.take(m)
		}
		if err != nil {
			l.ended <- err
			return
		}
	}
}

func (l *link) take(m *ernicv1.SessionResponse) error {
	switch m := m.GetMessage().(type) {
	case *ernicv1.SessionResponse_Registered:
		return l.takeRegistered(m.Registered)
	case *ernicv1.SessionResponse_HeartbeatAck:
		if m.HeartbeatAck.GetSequence() == l.beat.Load() {
			l.s.rtt.Store(max(1, int64(time.Since(l.start))-l.beatAt.Load()))
		}
	case *ernicv1.SessionResponse_ClaimAck:
		l.s.takeClaimAck(m.ClaimAck)
	case *ernicv1.SessionResponse_Probe:
		select {
		case l.probes <- m.Probe.GetSequence():
		default: // an answer that is not sent yet answers this one too
		}
	case *ernicv1.SessionResponse_Drain:
		l.s.drain(m.Drain.GetReason())
	case *ernicv1.SessionResponse_Relay:
		if h := l.s.cfg.Handlers.Relay; h != nil && len(m.Relay.GetToken()) == 16 {
			h(m.Relay.GetFrom(), [16]byte(m.Relay.GetToken()))
		}
	case *ernicv1.SessionResponse_SetLink:
		l.s.setLink(m.SetLink.GetUp(), m.SetLink.GetReason())
	case *ernicv1.SessionResponse_Mesh:
		return l.takeMesh(m.Mesh)
	}
	return nil
}

func (l *link) takeRegistered(m *ernicv1.Registered) error {
	if id := m.GetNodeId(); id == 0 || id == anyNode {
		return fmt.Errorf("the manager at %s gave this worker the node id %d", l.manager, id)
	}
	if l.accepted {
		return fmt.Errorf("the manager at %s accepted one registration twice", l.manager)
	}
	l.accepted = true
	if interval := m.GetHealthInterval().AsDuration(); interval > 0 {
		l.silence = 3 * max(interval, shortestInterval)
		l.watchdog.Reset(l.silence)
	}
	if err := l.s.claims.registered(m.GetClaims()); err != nil {
		return err
	}
	l.s.accepted(m, l.silence/3)
	l.registered <- m
	return nil
}

// takeMesh puts a new view in place once all parts of an update are there.
func (l *link) takeMesh(p *ernicv1.MeshUpdate) error {
	old := l.s.base.Load()
	var before *ernicv1.MeshUpdate
	if len(l.parts) > 0 {
		before = l.parts[len(l.parts)-1]
	}
	if err := checkPart(old, before, p); err != nil {
		return fmt.Errorf("the manager at %s sent a mesh update that makes no sense: %w", l.manager, err)
	}
	l.parts = append(l.parts, p)
	if p.GetMore() {
		return nil
	}
	now := old.apply(l.parts)
	l.parts = nil
	l.s.base.Store(now)
	l.s.publish()
	return nil
}

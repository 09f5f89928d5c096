// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// relayPatience is how long a stream may say nothing at its beginning, and a call wait for its answer.
	relayPatience = 2 * time.Second
	// maxRelays is the most calls that wait or are joined at a time: it is a last resort, and all its bytes pass through here.
	maxRelays = 256
)

type relayStream = grpc.BidiStreamingServer[ernicv1.RelayRequest, ernicv1.RelayResponse]

// relayTable holds the calls between workers that cannot reach each other.
//
//	caller --Call(to)--> manager --RelayOffer(token)--> session of the other one
//	                     manager <--Answer(token)------ the other one
//	caller <===========> manager <====================> the other one
type relayTable struct {
	mu sync.Mutex // guards what follows
	// waiting are the calls without an answer.
	waiting map[[16]byte]*relayCall
	count   int // waiting or joined
}

// relayCall is a call that waits for its answer.
type relayCall struct {
	holder string // of the certificate of the node that is called
	answer chan *relayAnswer
}

// relayAnswer is the stream of the other side; done is closed when it may end.
type relayAnswer struct {
	stream relayStream
	done   chan struct{}
}

func (t *relayTable) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// begin enters a call, unless there are too many.
func (t *relayTable) begin(c *relayCall) (token [16]byte, ok bool) {
	// Read never fails; see its documentation.
	rand.Read(token[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == maxRelays {
		return token, false
	}
	if t.waiting == nil {
		t.waiting = make(map[[16]byte]*relayCall)
	}
	t.count++
	t.waiting[token] = c
	return token, true
}

// take returns the call that waits under a token, once, and only to who is called.
func (t *relayTable) take(token [16]byte, holder string) *relayCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.waiting[token]
	if c == nil || c.holder != holder {
		return nil
	}
	delete(t.waiting, token)
	return c
}

func (t *relayTable) end(token [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, token)
	t.count--
}

// Relay joins two workers.
func (s *Server) Relay(stream relayStream) error {
	err := s.relay(stream)
	if err != nil {
		s.counters.relaysRefused.Add(1)
	}
	return err
}

func (s *Server) relay(stream relayStream) error {
	caller, err := identity.OfCall(stream.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	holder := ""
	if caller.Identity != (identity.Identity{}) {
		holder = caller.Identity.String()
	}
	first := make(chan *ernicv1.RelayRequest, 1)
	go func() {
		defer close(first)
		if m, err := stream.Recv(); err == nil {
			first <- m
		}
	}()
	patience := time.NewTimer(relayPatience)
	defer patience.Stop()
	select {
	case m := <-first:
		switch m := m.GetMessage().(type) {
		case *ernicv1.RelayRequest_Call:
			return s.relayCall(stream, holder, m.Call)
		case *ernicv1.RelayRequest_Answer:
			return s.relayAnswer(stream, holder, m.Answer)
		}
		return status.Error(codes.InvalidArgument, "the first message of a relay is neither a call nor an answer")
	case <-patience.C:
		return status.Errorf(codes.DeadlineExceeded, "nothing came for %s", relayPatience)
	case <-s.done:
		return errGoingDown
	}
}

// relayCall serves the worker that calls.
func (s *Server) relayCall(stream relayStream, holder string, m *ernicv1.RelayCall) error {
	from, to := core.NodeID(m.GetFrom()), core.NodeID(m.GetTo())
	s.mu.RLock()
	own, _, known := s.core.Speaker(from)
	theirs, session, there := s.core.Speaker(to)
	s.mu.RUnlock()
	switch {
	case !known || own != holder:
		return status.Errorf(codes.PermissionDenied, "node %d is not the worker that calls", from)
	case !there:
		return status.Errorf(codes.NotFound, "there is no node %d", to)
	case session == 0:
		return status.Errorf(codes.Unavailable, "node %d has no session with the manager either", to)
	}
	call := &relayCall{holder: theirs, answer: make(chan *relayAnswer, 1)}
	token, ok := s.relays.begin(call)
	if !ok {
		return status.Errorf(codes.ResourceExhausted, "%d connections go by way of the manager already", maxRelays)
	}
	defer s.relays.end(token)
	s.sessions.send(session, encodeRelayOffer(token, from))
	patience := time.NewTimer(relayPatience)
	defer patience.Stop()
	select {
	case a := <-call.answer:
		defer close(a.done)
		return s.join(stream, a.stream, from, to)
	case <-patience.C:
		if s.relays.take(token, theirs) == nil {
			// The answer has just come.
			close((<-call.answer).done)
		}
		return status.Errorf(codes.DeadlineExceeded, "node %d did not answer within %s", to, relayPatience)
	case <-stream.Context().Done():
		if s.relays.take(token, theirs) == nil {
			close((<-call.answer).done)
		}
		return status.FromContextError(stream.Context().Err()).Err()
	case <-s.done:
		return errGoingDown
	}
}

// relayAnswer serves the worker that is called: its stream is used by the call.
func (s *Server) relayAnswer(stream relayStream, holder string, token []byte) error {
	if len(token) != 16 {
		return status.Errorf(codes.InvalidArgument, "a token of %d bytes, want 16", len(token))
	}
	call := s.relays.take([16]byte(token), holder)
	if call == nil {
		return status.Error(codes.NotFound, "nobody calls under this token, or not any more")
	}
	a := &relayAnswer{stream: stream, done: make(chan struct{})}
	call.answer <- a
	select {
	case <-a.done:
		return nil
	case <-s.done:
		return errGoingDown
	}
}

// join carries bytes both ways until either side ends.
func (s *Server) join(a, b relayStream, from, to core.NodeID) error {
	s.counters.relays.Add(1)
	s.log.Info().Str("event", "relay_opened").Uint32("node", uint32(from)).Uint32("to", uint32(to)).
		Msg("two workers that cannot reach each other are joined")
	for _, end := range []relayStream{a, b} {
		if err := end.Send(&ernicv1.RelayResponse{}); err != nil {
			return err
		}
	}
	// A stream is read for as long as it is there, and it goes when this function and its caller return: what is still read
	// after that has nowhere to go.
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { cancel(s.carry(a, b)) }()
	go func() { cancel(s.carry(b, a)) }()
	select {
	case <-ctx.Done():
		if err := context.Cause(ctx); status.Code(err) == codes.InvalidArgument {
			return err
		}
		return nil
	case <-s.done:
		return errGoingDown
	}
}

// carry sends to one what another one says.
func (s *Server) carry(from, to relayStream) error {
	for {
		m, err := from.Recv()
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		data, ok := m.GetMessage().(*ernicv1.RelayRequest_Data)
		if !ok {
			return status.Error(codes.InvalidArgument, "a relay that is open carries data only")
		}
		if err := to.Send(&ernicv1.RelayResponse{Data: data.Data}); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		s.counters.relayedBytes.Add(uint64(len(data.Data)))
	}
}

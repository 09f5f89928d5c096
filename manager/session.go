// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// outbox is how many answers a session holds for a worker that does not read them. Answers are small and follow from
// what the worker sends, so that one which has so many open is not reading at all.
const outbox = 64

// session is one stream of a worker.
type session struct {
	id  core.SessionID
	out chan *ernicv1.SessionResponse
	// wake says that the mesh has a new revision.
	wake chan struct{}
	// ended receives the status with which the stream is to end; the first one counts.
	ended chan error
	// history and revision are the view that the worker holds. They belong to the reader until it has posted the
	// registration, then to the writer.
	history  core.History
	revision uint64
}

func (ss *session) end(err error) {
	select {
	case ss.ended <- err:
	default:
	}
}

// sessionTable holds the streams that are open.
type sessionTable struct {
	mu   sync.Mutex // guards what follows
	open map[core.SessionID]*session
	last core.SessionID
	// down is set once the manager goes down, to the status with which every later session ends at once.
	down error
}

func (t *sessionTable) init() { t.open = make(map[core.SessionID]*session) }

func (t *sessionTable) add() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	ss := &session{
		id:    t.last,
		out:   make(chan *ernicv1.SessionResponse, outbox),
		wake:  make(chan struct{}, 1),
		ended: make(chan error, 1),
	}
	t.open[ss.id] = ss
	if t.down != nil {
		ss.end(t.down)
	}
	return ss
}

func (t *sessionTable) remove(ss *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, ss.id)
}

// send queues a message for a session. It never waits.
func (t *sessionTable) send(id core.SessionID, m *ernicv1.SessionResponse) {
	t.mu.Lock()
	ss := t.open[id]
	t.mu.Unlock()
	if ss == nil {
		return
	}
	select {
	case ss.out <- m:
	default:
		ss.end(status.Errorf(codes.ResourceExhausted, "the worker does not read: %d answers are waiting", outbox))
	}
}

func (t *sessionTable) end(id core.SessionID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ss := t.open[id]; ss != nil {
		ss.end(err)
	}
}

func (t *sessionTable) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ss := range t.open {
		select {
		case ss.wake <- struct{}{}:
		default:
		}
	}
}

func (t *sessionTable) endAll(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = err
	for _, ss := range t.open {
		ss.end(err)
	}
}

// Session serves one worker. Three goroutines share the stream: the reader turns messages into events, the writer sends
// answers and updates, and this one waits for the end. It does not wait for the other two: a peer that has stopped
// reading or writing holds them until the stream is torn down, which happens when this function returns.
func (s *Server) Session(stream grpc.BidiStreamingServer[ernicv1.SessionRequest, ernicv1.SessionResponse]) error {
	s.counters.sessions.Add(1)
	ss := s.sessions.add()
	defer s.sessions.remove(ss)
	registered := make(chan struct{})
	go s.read(stream, ss, registered)
	go s.write(stream, ss)

	patience := time.NewTimer(s.cfg.Core.HealthInterval)
	defer patience.Stop()
	for {
		select {
		case err := <-ss.ended:
			return err
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-registered:
			registered = nil
			patience.Stop()
		case <-patience.C:
			s.counters.silent.Add(1)
			return status.Error(codes.DeadlineExceeded, "no registration came")
		}
	}
}

// read turns what a worker sends into events until the stream ends.
func (s *Server) read(stream grpc.BidiStreamingServer[ernicv1.SessionRequest, ernicv1.SessionResponse], ss *session, registered chan<- struct{}) {
	first := true
	caller, notKnown := identity.OfCall(stream.Context())
	for {
		m, err := stream.Recv()
		if err != nil {
			s.post(core.SessionEnded{Session: ss.id, Cause: endCause(err)})
			ss.end(nil)
			return
		}
		ev, err := decode(ss.id, m)
		if first && err == nil {
			ev, err = identify(ev, caller, notKnown)
		}
		if err != nil {
			ev = core.Malformed{Session: ss.id, Cause: fmt.Sprintf("%v (from %s)", err, caller)}
		} else if first {
			first = false
			have := m.GetRegister().GetHave()
			if h := have.GetHistory(); len(h) == len(core.History{}) {
				ss.history, ss.revision = core.History(h), have.GetRevision()
			}
			close(registered)
		}
		if ev != nil && !s.post(ev) {
			return
		}
		if err != nil {
			return
		}
	}
}

// endCause says in a few words how a stream ended.
func endCause(err error) string {
	if errors.Is(err, io.EOF) {
		return "the worker closed it"
	}
	st := status.Convert(err)
	if st.Code() == codes.Canceled {
		return "the connection was lost"
	}
	return fmt.Sprintf("%s (%s)", st.Message(), st.Code())
}

// identify binds the first event of a session, which must be a registration, to the holder of the certificate.
func identify(ev core.Event, caller identity.Caller, notKnown error) (core.Event, error) {
	r, ok := ev.(core.Register)
	if !ok {
		return nil, errors.New("the first message is no registration")
	}
	if notKnown != nil {
		return nil, notKnown
	}
	if caller.Identity != (identity.Identity{}) {
		r.Identity = caller.Identity.String()
	}
	return r, nil
}

// write sends answers as they come, and updates of the mesh from the moment that the worker is welcome.
func (s *Server) write(stream grpc.BidiStreamingServer[ernicv1.SessionRequest, ernicv1.SessionResponse], ss *session) {
	var wake <-chan struct{} // nil: no update may be sent now
	gap := time.NewTimer(0)
	<-gap.C
	defer gap.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return
		case m := <-ss.out:
			if err := stream.Send(m); err != nil {
				ss.end(err)
				return
			}
			if m.GetRegistered() == nil {
				continue
			}
		case <-gap.C:
			wake = ss.wake
			continue
		case <-wake:
		}
		sent, err := s.sendUpdate(stream, ss)
		if err != nil {
			ss.end(err)
			return
		}
		wake = ss.wake
		if sent {
			wake = nil
			gap.Reset(s.cfg.UpdateGap)
		}
	}
}

// sendUpdate sends what the worker of a session does not know yet, if anything.
func (s *Server) sendUpdate(stream grpc.BidiStreamingServer[ernicv1.SessionRequest, ernicv1.SessionResponse], ss *session) (bool, error) {
	u, to := s.updateSince(point{ss.history, ss.revision})
	if u == nil {
		return false, nil
	}
	for _, raw := range u.parts {
		if err := stream.SendMsg(raw); err != nil {
			return false, err
		}
	}
	s.counters.meshUpdates.Add(1)
	if u.snapshot {
		s.counters.meshSnapshots.Add(1)
	}
	ss.history, ss.revision = to.history, to.revision
	return true, nil
}

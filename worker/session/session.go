// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Session is a worker's membership of a mesh, with or without a connection to the manager at the moment.
type Session struct {
	cfg    Config
	mesh   atomic.Pointer[Mesh]
	base   atomic.Pointer[Mesh] // as the manager told it last
	claims claims
	// beatNow asks for a heartbeat before its time.
	beatNow chan struct{}
	reflect bool         // by ServeStatus
	rtt     atomic.Int64 // nanoseconds of the last answered heartbeat; zero: none yet

	publishing sync.Mutex // guards heard, and lets views be put in place one by one; taken before mu
	heard      hearsay
	// recordChanged says that Record may be another.
	recordChanged chan struct{}

	mu       sync.Mutex // guards what follows
	managers managers
	// node is the id that the manager gave, anyNode before.
	node uint32
	// addr is where peers reach the worker, as far as is known.
	addr          string
	state         ernicv1.SessionState
	since         time.Time // registered since
	err           error     // why there is no session
	registrations uint64
	interval      time.Duration // health interval of the manager
	// identity is the holder of the certificate that the manager knows the node by.
	identity string
	// told is what was said in the log of the state of the session last, so that nothing is said twice.
	told string
}

// New returns a session that does nothing until Run.
func New(cfg Config) (*Session, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	list, err := ManagerAddrs(cfg.Manager)
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg:      cfg,
		beatNow:  make(chan struct{}, 1),
		node:     anyNode,
		addr:     cfg.Addr,
		interval: defaultInterval,
		state:    ernicv1.SessionState_SESSION_STATE_CONNECTING,
		managers: managers{list: list},
	}
	s.mesh.Store(empty)
	s.base.Store(empty)
	s.recordChanged = make(chan struct{}, 1)
	s.claims.init(cfg.MaxClaims)
	return s, nil
}

// Mesh returns the view of the mesh as it is now.
func (s *Session) Mesh() *Mesh { return s.mesh.Load() }

// Resolve returns the node that owns a GID now. It takes no lock and does not allocate.
func (s *Session) Resolve(g [16]byte) (uint32, bool) { return s.mesh.Load().Resolve(g) }

// Node returns a member of the mesh. It takes no lock and does not allocate.
func (s *Session) Node(id uint32) (*Node, bool) { return s.mesh.Load().Node(id) }

// NodeID returns the id of the worker, and false before the manager first gave it one.
func (s *Session) NodeID() (uint32, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.node != anyNode
}

// Addr returns the host:port on which peers reach the worker, as far as is known.
func (s *Session) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// locate finds out where the worker is now. While that cannot be told it is taken to be where it was.
func (s *Session) locate(manager string) {
	if s.cfg.Locate == nil {
		return
	}
	now := s.cfg.Locate(manager)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now == "" || now == s.addr {
		return
	}
	if err := checkAddr(now); err != nil {
		s.cfg.Log.Warn().Err(err).Msg("the worker does not know where it is")
		return
	}
	if s.addr != "" {
		s.cfg.Log.Info().Str("was", s.addr).Str("address", now).Msg("peers reach this worker at another address now")
	}
	s.addr = now
}

// Instance returns the 16 bytes that name this process, and its incarnation.
func (s *Session) Instance() ([16]byte, uint64) { return s.cfg.Instance, s.cfg.Incarnation }

// ReportChanged lets the manager know soon that Config.Report has something new to say.
func (s *Session) ReportChanged() {
	select {
	case s.beatNow <- struct{}{}:
	default:
	}
}

// RefusedError says that the manager does not accept the worker, or ended its session.
type RefusedError struct {
	Manager string
	Reason  ernicv1.RefusalReason
	Text    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the manager at %s refuses this worker: %s", e.Manager, e.Text)
}

// Run keeps the worker registered until ctx ends, which takes its leave of the manager, and returns nil then. It returns
// an error only if the manager refuses the very first registration for a reason that time does not mend.
func (s *Session) Run(ctx context.Context) error {
	backoff := s.cfg.BackoffMin
	for {
		registered, err := s.attempt(ctx)
		if registered {
			backoff = s.cfg.BackoffMin
		}
		if ctx.Err() == nil {
			again, fatal := s.lost(err)
			if fatal {
				return err
			}
			s.publish()
			if again && !registered {
				continue
			}
		}
		wait := time.NewTimer(backoff - rand.N(backoff/2+1))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
		backoff = min(backoff*8/5, s.cfg.BackoffMax)
	}
}

// lost takes in why an attempt ended. again is set if the next one, as a new node, need not wait; fatal if there is no
// point in another one.
func (s *Session) lost(err error) (again, fatal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.err = ernicv1.SessionState_SESSION_STATE_CONNECTING, err
	at := s.managers.current()
	var standby *StandbyError
	if errors.As(err, &standby) {
		if s.managers.failed(standby.Leader) {
			return true, false
		}
		s.tell("no leader", fmt.Sprintf("no manager leads, trying until one does: %v", err))
		return false, false
	}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		if s.managers.failed("") {
			return true, false
		}
		s.tell("unreachable", fmt.Sprintf("the manager at %s cannot be reached, trying until it can: %v", at, err))
		return false, false
	}
	switch refused.Reason {
	case ernicv1.RefusalReason_REFUSAL_REASON_PROTOCOL, ernicv1.RefusalReason_REFUSAL_REASON_MALFORMED:
		if s.registrations == 0 {
			return false, true
		}
	case ernicv1.RefusalReason_REFUSAL_REASON_EVICTED, ernicv1.RefusalReason_REFUSAL_REASON_ID_TAKEN:
		s.tell("another node", fmt.Sprintf("this worker can no longer be node %d and registers as a new one: %s", s.node, refused.Text))
		s.node = anyNode
		return true, false
	}
	s.tell(refused.Reason.String(), err.Error()+"; trying again")
	return false, false
}

// tell writes a change of the session's state to the log, once.
func (s *Session) tell(what, text string) {
	if s.told != what {
		s.told = what
		s.cfg.Log.Warn().Str("manager", s.managers.current()).Msg(text)
	}
}

// accepted takes in a registration.
func (s *Session) accepted(m *ernicv1.Registered, interval time.Duration) {
	s.mu.Lock()
	s.managers.answered()
	at := s.managers.current()
	before := s.node
	s.node, s.interval = m.GetNodeId(), interval
	s.state, s.err, s.since = ernicv1.SessionState_SESSION_STATE_REGISTERED, nil, time.Now()
	s.registrations++
	s.identity = m.GetIdentity()
	s.told = ""
	text := "registered"
	if before == s.node {
		text = "registered again"
	}
	s.cfg.Log.Info().Str("manager", at).Str("manager_version", m.GetVersion()).Uint32("node", s.node).Msg(text)
	s.mu.Unlock()
	if h := s.cfg.Handlers.Registered; h != nil {
		h(m.GetNodeId())
	}
	s.publish()
	s.noteRecord()
	if h := s.cfg.Handlers.Gossip; h != nil && m.GetGossipAddress() != "" {
		h(onHost(m.GetGossipAddress(), at))
	}
}

// Cause says in a few words why a gRPC call failed: the message of its status, without the layers that gRPC wraps around
// the error of a connection.
func Cause(err error) string {
	text := err.Error()
	if st, ok := status.FromError(err); ok {
		text = st.Message()
	}
	if _, rest, ok := strings.Cut(text, `connection error: desc = "`); ok {
		text = strings.TrimSuffix(rest, `"`)
		if plain, err := strconv.Unquote(`"` + text + `"`); err == nil {
			text = plain
		}
	}
	text = strings.TrimPrefix(text, "transport: ")
	return strings.TrimPrefix(text, "Error while dialing: ")
}

// explain turns the error of a stream into what it means.
func (s *Session) explain(manager string, err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it closed the session")
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if standby := AsStandby(manager, err); standby != nil {
		return standby
	}
	for _, d := range st.Details() {
		refusal, ok := d.(*ernicv1.Refusal)
		if !ok {
			continue
		}
		switch refusal.GetReason() {
		case ernicv1.RefusalReason_REFUSAL_REASON_SHUTDOWN, ernicv1.RefusalReason_REFUSAL_REASON_SILENT,
			ernicv1.RefusalReason_REFUSAL_REASON_UNSPECIFIED:
			return errors.New(st.Message())
		}
		return &RefusedError{manager, refusal.GetReason(), st.Message()}
	}
	if st.Code() == codes.Unimplemented {
		return fmt.Errorf("what listens there is no manager: %s", st.Message())
	}
	return errors.New(Cause(err))
}

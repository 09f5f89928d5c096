// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

const (
	// maxBatch is how many events are stored in one commit at most.
	maxBatch = 1024
	// maxMessage is the longest message that a worker or an operator may send, in bytes.
	maxMessage = 1 << 20
	// storeRetry is how often storing is tried again while it fails and nothing else happens.
	storeRetry = time.Second
	// drainTime is how long calls that are under way may take when the manager ends.
	drainTime = 500 * time.Millisecond
)

// Server is a manager.
type Server struct {
	ernicv1.UnimplementedManagerServiceServer
	cfg     Config
	log     zerolog.Logger
	started time.Time

	events chan event
	// done is closed when the loop has ended and takes no more events.
	done chan struct{}

	// mu guards core: the loop writes, everybody else reads. While it is not locked for writing, core holds what is
	// stored (or what would be, if the store took it).
	mu   sync.RWMutex
	core *core.Core
	// storeDown is set while the store does not take changes, deposed once it never will again. Only the loop uses them.
	storeDown, deposed bool

	witnessed sync.Mutex // guards seen
	seen      map[[16]byte]struct{}

	sessions sessionTable
	history  eventLog
	updates  updateCache
	relays   relayTable
	changed  signal // whatever operators see may have changed
	counters counters
}

// event is an event of the core with the time at which it came in, or a request of an operator.
type event struct {
	at      time.Time
	core    core.Event
	request *request
}

// request is what an operator wants done to a node.
type request struct {
	do     func(c *core.Core, at time.Time, out []core.Effect) ([]core.Effect, error)
	answer chan<- error
}

// New returns a manager that goes on from what its store holds.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		cfg.Store = memory{}
	}
	if cfg.UpdateGap == 0 {
		cfg.UpdateGap = 5 * time.Millisecond
	}
	cfg.Core = cfg.Core.Defaults()
	state, err := cfg.Store.Load()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		started: now,
		events:  make(chan event, maxBatch),
		done:    make(chan struct{}),
		core:    core.New(cfg.Core, now, state),
	}
	s.sessions.init()
	s.history.init()
	s.changed.init()
	history, revision := s.core.Revision()
	s.log.Info().Int("nodes", len(state.Nodes)).Int("claims", len(state.Claims)).Stringer("history", history).
		Uint64("revision", revision).Msg("state loaded")
	return s, nil
}

// Serve answers on a listener until ctx ends, and then returns within about drainTime. It closes the listener. Options
// are added to those of the manager, credentials for example.
func (s *Server) Serve(ctx context.Context, l net.Listener, opts ...grpc.ServerOption) error {
	f := newFront(l, s, s.guard(), &s.cfg, opts)
	f.leads(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.loop(ctx)
	}()
	return f.serve(ctx, ended)
}

// loop feeds the core until ctx ends or the store says that another manager leads.
func (s *Server) loop(ctx context.Context) {
	defer func() { s.endAll(s.deposed || errors.Is(context.Cause(ctx), ErrDeposed)) }()
	tick := time.NewTicker(s.cfg.Core.TickPeriod)
	defer tick.Stop()
	retry := time.NewTicker(storeRetry)
	retry.Stop()
	defer retry.Stop()
	batch := make([]event, 0, maxBatch)
	var effects []core.Effect
	for {
		batch = batch[:0]
		select {
		case <-ctx.Done():
			return
		case ev := <-s.events:
			batch = s.drain(append(batch, ev))
		case <-tick.C:
			// What came in before the clock is read is judged before it is missed.
			batch = append(s.drain(batch), event{at: time.Now(), core: core.Tick{}})
		case <-retry.C:
		}
		wasDown := s.storeDown
		effects = s.process(batch, effects[:0])
		if s.deposed {
			return
		}
		s.dispatch(effects)
		if s.storeDown != wasDown {
			if s.storeDown {
				retry.Reset(storeRetry)
			} else {
				retry.Stop()
			}
		}
	}
}

// drain takes in what is waiting.
func (s *Server) drain(batch []event) []event {
	for len(batch) < maxBatch-1 {
		select {
		case ev := <-s.events:
			batch = append(batch, ev)
		default:
			return batch
		}
	}
	return batch
}

// process runs a batch through the core and stores what it changes.
func (s *Server) process(batch []event, effects []core.Effect) []core.Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.core.Revision()
	type answer struct {
		to  chan<- error
		err error
	}
	var answers []answer
	for i := range batch {
		ev := &batch[i]
		if r := ev.request; r != nil {
			var err error
			effects, err = r.do(s.core, ev.at, effects)
			answers = append(answers, answer{r.answer, err})
			continue
		}
		effects = s.core.Step(ev.at, ev.core, effects)
	}
	s.commit()
	if s.deposed {
		// Nothing of this batch came about.
		for _, a := range answers {
			a.to <- ErrDeposed
		}
		return nil
	}
	for _, a := range answers {
		a.to <- a.err
	}
	if _, after := s.core.Revision(); after != before {
		s.sessions.wakeAll()
	}
	return effects
}

// commit stores what has changed. If that fails the mesh goes on from memory, under a history of its own, and it is
// tried again with the next batch: workers keep what they have and send their claims again should the manager end
// before the store recovers.
func (s *Server) commit() {
	ch, ok := s.core.Changes()
	if !ok {
		return
	}
	err := s.cfg.Store.Commit(ch)
	s.counters.commits.Add(1)
	switch {
	case errors.Is(err, ErrDeposed):
		// Until the sessions are ended a worker may still be told of what was not stored. It must not take that for a
		// revision of the manager that leads now.
		s.core.StoreFailed(ch, NewHistory())
		s.deposed = true
	case err != nil:
		s.counters.storeFailures.Add(1)
		history := NewHistory()
		if s.storeDown {
			history, _ = s.core.Revision()
		} else {
			s.log.Error().Err(err).Msg("the state cannot be stored: the mesh goes on, and a restart of the manager would lose what changes from now on")
		}
		s.core.StoreFailed(ch, history)
		s.storeDown = true
	case s.storeDown:
		s.storeDown = false
		s.log.Info().Msg("the state is stored again")
	}
}

// dispatch carries out effects.
func (s *Server) dispatch(effects []core.Effect) {
	if len(effects) == 0 {
		return
	}
	for _, e := range effects {
		switch e := e.(type) {
		case core.Welcome:
			s.sessions.send(e.Session, encodeWelcome(e, &s.cfg))
		case core.HeartbeatAck:
			s.sessions.send(e.Session, encodeHeartbeatAck(e))
		case core.ClaimAck:
			s.sessions.send(e.Session, encodeClaimAck(e))
		case core.Ask:
			if s.cfg.Ask != nil {
				go s.ask(e.Instance)
			}
		case core.Drain:
			s.sessions.send(e.Session, encodeDrain(e))
		case core.SetLink:
			s.sessions.send(e.Session, encodeSetLink(e))
		case core.Probe:
			s.sessions.send(e.Session, encodeProbe(e))
		case core.End:
			s.sessions.end(e.Session, encodeEnd(e, s.cfg.Core))
		case core.Note:
			s.note(e)
		}
	}
	s.changed.raise()
}

// note writes one line of the audit trail.
func (s *Server) note(n core.Note) {
	if n.Kind < core.NoteKinds {
		s.counters.notes[n.Kind].Add(1)
	}
	level := zerolog.InfoLevel
	switch {
	case n.Kind.Grave():
		level = zerolog.WarnLevel
	case n.Kind == core.NoteClaimed, n.Kind == core.NoteReleased:
		level = zerolog.DebugLevel
	}
	line := s.log.WithLevel(level).Stringer("event", n.Kind).Uint32("node", uint32(n.Node))
	if n.GID != (core.GID{}) {
		line = line.Stringer("gid", n.GID)
	}
	line.Msg(n.Text)
	s.history.add(time.Now(), n)
}

// ask finds out through gossip whether a process is still there.
func (s *Server) ask(instance core.Instance) {
	s.post(core.Seen{Instance: instance, Alive: s.cfg.Ask(instance) == nil})
}

// Witness tells the manager which processes the gossip of the mesh sees. What it does not name is not seen any more.
func (s *Server) Witness(alive map[[16]byte]struct{}) {
	s.witnessed.Lock()
	defer s.witnessed.Unlock()
	for instance := range alive {
		if _, known := s.seen[instance]; !known && !s.post(core.Seen{Instance: instance, Alive: true}) {
			return
		}
	}
	for instance := range s.seen {
		if _, still := alive[instance]; !still && !s.post(core.Seen{Instance: instance}) {
			return
		}
	}
	s.seen = maps.Clone(alive)
}

// post hands an event to the loop and reports whether it will be taken.
func (s *Server) post(ev core.Event) bool {
	select {
	case s.events <- event{at: time.Now(), core: ev}:
		return true
	case <-s.done:
		return false
	}
}

// endAll tells all workers that the manager no longer serves them: it goes down, or another one leads.
func (s *Server) endAll(deposed bool) {
	text := "the manager is going down"
	if deposed {
		text = "another manager leads"
	}
	close(s.done)
	s.sessions.endAll(encodeEnd(core.End{Reason: core.ReasonShutdown, Text: text}, s.cfg.Core))
	s.changed.raise()
}

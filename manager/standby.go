// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// campaignPause is how long a manager that cannot take part in the election waits before it tries again.
const campaignPause = time.Second

// Standby is one of several managers that share a state. At any time one of them leads and the others refuse everybody
// with the address of that one.
//
//	            elected                      state loaded
//	standby ---------------> taking over ---------------------> leading
//	  ^  ^                        |                                |
//	  |  +--- state unreadable ---+                                |
//	  +------- lease lost, deposed: every session is ended --------+
type Standby struct {
	cfg      Config
	election Election
	started  time.Time

	leading atomic.Pointer[Server] // nil while this one does not lead
	seen    atomic.Pointer[map[[16]byte]struct{}]
	refused atomic.Uint64
	terms   atomic.Uint64
}

// NewStandby returns a manager that serves when it is elected. The store of cfg is not used: that of the term is.
func NewStandby(cfg Config, e Election) *Standby {
	return &Standby{cfg: cfg, election: e, started: time.Now()}
}

// Serve answers on a listener until ctx ends, like Server.Serve.
func (s *Standby) Serve(ctx context.Context, l net.Listener, opts ...grpc.ServerOption) error {
	f := newFront(l, &standbyService{s: s}, s.guard(), &s.cfg, opts)
	f.leads(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			s.campaign(ctx, f)
		}
	}()
	return f.serve(ctx, ended)
}

// Leading returns the manager of the term under way, nil if this one does not lead.
func (s *Standby) Leading() *Server { return s.leading.Load() }

// Witness tells the manager which processes the gossip of the mesh sees, also for a term that is still to come.
func (s *Standby) Witness(alive map[[16]byte]struct{}) {
	s.seen.Store(&alive)
	if m := s.leading.Load(); m != nil {
		m.Witness(alive)
	}
}

// campaign waits to be elected, and leads for a term.
func (s *Standby) campaign(ctx context.Context, f *front) {
	term, err := s.election.Campaign(ctx)
	if err == nil {
		err = s.lead(ctx, f, term)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	s.cfg.Log.Error().Err(err).Msg("this manager cannot lead, and tries again")
	select {
	case <-time.After(campaignPause):
	case <-ctx.Done():
	}
}

// lead serves for a term. It returns an error if the state cannot be read: another manager may fare better.
func (s *Standby) lead(ctx context.Context, f *front, term Term) error {
	defer term.End()
	cfg := s.cfg
	cfg.Store = term
	m, err := New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-term.Over():
			cancel(ErrDeposed)
		case <-ctx.Done():
		}
	}()
	s.terms.Add(1)
	s.leading.Store(m)
	if seen := s.seen.Load(); seen != nil {
		// The loop that takes it in starts below.
		go m.Witness(*seen)
	}
	f.leads(true)
	cfg.Log.Info().Str("event", "manager_leads").Msg("this manager leads")
	m.loop(ctx)
	f.leads(false)
	s.leading.Store(nil)
	cfg.Log.WithLevel(leaveLevel(ctx)).Str("event", "manager_stands_by").Msg("this manager no longer leads")
	return nil
}

// leaveLevel tells a term that was taken away from one that ends with the program.
func leaveLevel(ctx context.Context) zerolog.Level {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return zerolog.InfoLevel
	}
	return zerolog.WarnLevel
}

// Counters returns what was counted, under the names of Server.Counters and of its own: manager_leads (1 or 0),
// manager_terms_total and standby_refused_total.
func (s *Standby) Counters() map[string]uint64 {
	m := map[string]uint64{}
	leads := uint64(0)
	if server := s.leading.Load(); server != nil {
		m, leads = server.Counters(), 1
	}
	m["manager_leads"], m["manager_terms_total"], m["standby_refused_total"] = leads, s.terms.Load(), s.refused.Load()
	return m
}

func (s *Standby) guard() identity.Guard {
	return identity.Guard{Allow: calls, Refused: func(caller identity.Caller, method string, err error) {
		if m := s.leading.Load(); m != nil {
			m.counters.unauthorized.Add(1)
		}
		logRefused(&s.cfg.Log, caller, method, err)
	}}
}

// candidates returns the managers that take part, this one among them even while it is not known to.
func (s *Standby) candidates() []Candidate {
	all := s.election.Candidates()
	for i := range all {
		if all[i].Self {
			return all
		}
	}
	return append(all, Candidate{Name: s.cfg.Name, Address: s.cfg.Address, Version: s.cfg.Version, Started: s.started, Self: true})
}

// notLeading returns the status that sends a caller to the manager which leads.
func (s *Standby) notLeading() error {
	s.refused.Add(1)
	detail, text := &ernicv1.Standby{}, "this manager stands by, and none leads at the moment"
	if all := s.election.Candidates(); len(all) > 0 && all[0].Leads && !all[0].Self {
		detail.LeaderAddress, detail.LeaderName = all[0].Address, all[0].Name
		text = fmt.Sprintf("this manager stands by: the one that leads is %q at %s", all[0].Name, all[0].Address)
	}
	st := status.New(codes.Unavailable, text)
	with, err := st.WithDetails(detail)
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// server returns the manager that answers a call, or the status with which it ends.
func (s *Standby) server() (*Server, error) {
	if m := s.leading.Load(); m != nil {
		return m, nil
	}
	return nil, s.notLeading()
}

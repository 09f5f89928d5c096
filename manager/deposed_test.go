// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager/core"
)

// lostStore is the store of a manager that no longer leads.
type lostStore struct{}

func (lostStore) Load() (core.State, error) {
	return core.State{History: core.History{7}, Revision: 50}, nil
}
func (lostStore) Commit(core.Changes) error { return ErrDeposed }

// TestG8_WhatADeposedManagerDidNotStoreIsNoRevisionOfTheOneThatLeads looks at the view that a worker could be sent in the
// moment between the refusal of the store and the end of its session.
func TestG8_WhatADeposedManagerDidNotStoreIsNoRevisionOfTheOneThatLeads(t *testing.T) {
	s, err := New(Config{Store: lostStore{}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	effects := s.process([]event{
		{at: time.Now(), core: core.Register{
			Session: 1, Node: core.AnyNode, Instance: core.Instance{1}, Addr: "h:1", Protocol: core.Versions{Min: 1, Max: 1},
		}},
		{at: time.Now(), request: &request{answer: answer, do: func(c *core.Core, at time.Time, out []core.Effect) ([]core.Effect, error) {
			return c.Evict(at, 1, "", out)
		}}},
	}, nil)
	if len(effects) != 0 || <-answer == nil || !s.deposed {
		t.Errorf("effects %v, deposed %v", effects, s.deposed)
	}
	if _, to := s.updateSince(point{core.History{7}, 50}); to.history == (core.History{7}) {
		t.Errorf("a worker is led to revision %d of the history that another manager goes on with", to.revision)
	}
}

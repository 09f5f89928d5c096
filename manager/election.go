// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"time"
)

// ErrDeposed is what a store returns whose manager no longer leads: nothing was stored, and nothing ever will be.
var ErrDeposed = errors.New("this manager no longer leads")

// Election decides which of the managers that share a state leads. Its methods may run concurrently.
type Election interface {
	// Campaign returns when this manager leads. It ends with an error when ctx does, and when it cannot take part now.
	Campaign(ctx context.Context) (Term, error)
	// Candidates returns the managers that take part as far as is known, the one that leads first. It does not wait.
	Candidates() []Candidate
}

// Term is the time for which a manager leads, and the state of the mesh in its hands.
type Term interface {
	Store
	// Over is closed when the term is over. From then on Commit returns ErrDeposed.
	Over() <-chan struct{}
	// End ends the term so that another manager leads at once. It waits only briefly.
	End()
}

// Candidate is a manager that leads or stands by.
type Candidate struct {
	Name    string
	Address string // host:port for workers and operators
	Gossip  string // host:port to join its gossip at; empty: it has none
	Version string
	Started time.Time
	Leads   bool
	Self    bool // this process
}

// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/rand"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager/core"
)

// DefaultPort is the TCP port of a manager.
const DefaultPort = 6320

// Store keeps what has to survive the manager. Its methods are not called concurrently.
type Store interface {
	// Load returns what was committed last.
	Load() (core.State, error)
	// Commit stores changes, all or nothing, and returns when they are safe.
	Commit(core.Changes) error
}

// Config says how a manager works.
type Config struct {
	// Core holds the intervals and limits of the mesh.
	Core core.Config
	// Store is where the state survives; nil: nowhere.
	Store Store
	Log   zerolog.Logger
	// Name, Address and Version are what operators are shown of node 0.
	Name, Address, Version string
	// UpdateGap is the least time between two updates of the mesh to one worker; changes that fall into it are sent
	// together. Default 5 ms.
	UpdateGap time.Duration
	// GossipAddress is the host:port at which workers can join the gossip of the mesh; empty: there is none.
	GossipAddress string
	// Ask asks a process through gossip for a sign of life and returns an error if none comes; nil: there is no gossip.
	Ask func(instance [16]byte) error
	// Reflection lets those who may call anything at all ask which calls there are.
	Reflection bool
}

// memory is the store of a manager that has none.
type memory struct{}

func (memory) Load() (core.State, error) { return core.State{History: NewHistory()}, nil }
func (memory) Commit(core.Changes) error { return nil }

// NewHistory returns the name of a history that has not been used before.
func NewHistory() core.History {
	var h core.History
	// Read never fails; see its documentation.
	rand.Read(h[:])
	return h
}

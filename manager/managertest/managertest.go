// SPDX-License-Identifier: Apache-2.0

// Package managertest runs a manager inside a test: no port, no process. It can be ended, killed and started again at the
// address it had, and the connections to it can fall silent or be cut.
package managertest

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Addr is what a client in the same test calls the manager. Nothing listens there.
const Addr = "manager.test:6320"

// bufferSize is what a connection holds on the way, in bytes.
const bufferSize = 256 << 10

// Manager is a manager that may or may not run.
type Manager struct {
	t   testing.TB
	cfg manager.Config

	mu     sync.Mutex // guards what follows
	run    *run
	client *grpc.ClientConn
}

// run is one life of the manager.
type run struct {
	server   *manager.Server
	listener *bufconn.Listener
	cancel   context.CancelFunc
	done     chan error
}

// Start starts a manager that ends with the test. A store in cfg outlives its restarts; without one it forgets.
func Start(t testing.TB, cfg manager.Config) *Manager {
	t.Helper()
	m := &Manager{t: t, cfg: cfg}
	m.Start()
	t.Cleanup(m.Stop)
	return m
}

// Start starts the manager again after Stop.
func (m *Manager) Start() {
	m.t.Helper()
	server, err := manager.New(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{server: server, listener: bufconn.Listen(bufferSize), cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- server.Serve(ctx, r.listener) }()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run = r
}

// Stop ends the manager, in good order, and its Client.
func (m *Manager) Stop() {
	m.mu.Lock()
	client := m.client
	m.client = nil
	m.mu.Unlock()
	if client != nil {
		_ = client.Close()
	}
	m.StopServer()
}

// StopServer ends the manager in good order and leaves its Client to see it go.
func (m *Manager) StopServer() {
	m.mu.Lock()
	r := m.run
	m.run = nil
	m.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel()
	if err := <-r.done; err != nil {
		m.t.Errorf("manager: %v", err)
	}
}

// Server returns the manager that runs.
func (m *Manager) Server() *manager.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run.server
}

// Running returns the manager, nil while it does not run.
func (m *Manager) Running() *manager.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		return nil
	}
	return m.run.server
}

// errDown is what dialling a manager that does not run leads to.
var errDown = errors.New("connection refused")

func (m *Manager) dial(ctx context.Context) (net.Conn, error) {
	m.mu.Lock()
	r := m.run
	m.mu.Unlock()
	if r == nil {
		return nil, errDown
	}
	return r.listener.DialContext(ctx)
}

// DialOptions connects a client to the manager.
func (m *Manager) DialOptions() []grpc.DialOption { return m.Cable().DialOptions() }

// Client returns a client of the manager that runs.
func (m *Manager) Client() ernicv1.ManagerServiceClient {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == nil {
		conn, err := grpc.NewClient("passthrough:///"+Addr, m.DialOptions()...)
		if err != nil {
			m.t.Fatal(err)
		}
		m.client = conn
	}
	return ernicv1.NewManagerServiceClient(m.client)
}

// Store is a store in memory. It outlives the managers that use it, and can be made to fail.
type Store struct {
	mu     sync.Mutex // guards what follows
	state  core.State
	nodes  map[core.NodeID]core.NodeRecord
	claims map[core.ClaimKey]core.ClaimRecord
	fail   error
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		state:  core.State{History: manager.NewHistory()},
		nodes:  make(map[core.NodeID]core.NodeRecord),
		claims: make(map[core.ClaimKey]core.ClaimRecord),
	}
}

// Fail lets Commit fail with err until it is called with nil.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// Load returns what was committed.
func (s *Store) Load() (core.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Nodes = slices.Collect(maps.Values(s.nodes))
	state.Claims = slices.Collect(maps.Values(s.claims))
	return state, nil
}

// Commit takes changes in.
func (s *Store) Commit(ch core.Changes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.state.History, s.state.Revision = ch.History, ch.Revision
	for _, r := range ch.Nodes {
		s.nodes[r.ID] = r
	}
	for _, id := range ch.GoneNodes {
		delete(s.nodes, id)
	}
	for _, r := range ch.Claims {
		s.claims[core.ClaimKey{GID: r.GID, Node: r.Node}] = r
	}
	for _, k := range ch.GoneClaims {
		delete(s.claims, k)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/session"
)

// maxClaims is how many addresses a worker may claim by the manager's default.
const maxClaims = 4096

// fleet is all workers.
type fleet struct {
	manager string
	workers []*worker
	views   views
	tracer  tracer
}

// address is the i-th address that is claimed.
func address(i int) gid.GID {
	g := gid.GID{0: 0xfd}
	binary.BigEndian.PutUint64(g[8:], uint64(i))
	return g
}

// newFleet prepares workers that claim so many addresses together.
func newFleet(manager string, n, claims int) *fleet {
	f := &fleet{manager: manager}
	for i := range n {
		w := &worker{fleet: f, index: i}
		for j := i * claims / n; j < (i+1)*claims/n; j++ {
			w.gids = append(w.gids, address(j))
		}
		f.workers = append(f.workers, w)
	}
	return f
}

// start starts all workers at once.
func (f *fleet) start() {
	for _, w := range f.workers {
		w.start()
	}
}

// kill ends all workers without a word to the manager.
func (f *fleet) kill() {
	var wg sync.WaitGroup
	for _, w := range f.workers {
		wg.Go(w.kill)
	}
	wg.Wait()
}

// await waits until ok holds for every worker.
func (f *fleet) await(ctx context.Context, what string, ok func(*worker) bool) error {
	missing := f.workers
	for {
		var still []*worker
		for _, w := range missing {
			if !ok(w) {
				still = append(still, w)
			}
		}
		if missing = still; len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %d of %d workers are not there, worker %d for one: %w", what, len(missing), len(f.workers), missing[0].index,
				errors.Join(missing[0].trouble(), context.Cause(ctx)))
		case <-time.After(time.Millisecond):
		}
	}
}

// agree checks that all workers resolve all addresses to their owners.
func (f *fleet) agree() error {
	owners := make([]uint32, len(f.workers))
	all := 0
	for i, w := range f.workers {
		if owners[i] = w.node.Load(); owners[i] == anyNode {
			return fmt.Errorf("worker %d has no node id", i)
		}
		all += len(w.gids)
	}
	seen := make(map[*session.Mesh]bool)
	for i, w := range f.workers {
		now := w.view().mesh
		if seen[now] {
			continue // another worker holds the very same view
		}
		seen[now] = true
		if _, routes := now.Len(); routes != all {
			return fmt.Errorf("worker %d sees %d addresses, there are %d", i, routes, all)
		}
		for j, owner := range f.workers {
			for _, g := range owner.gids {
				if node, ok := now.Resolve(g); !ok || node != owners[j] {
					return fmt.Errorf("at worker %d address %s of node %d resolves to %d, %v", i, g, owners[j], node, ok)
				}
			}
		}
	}
	return nil
}

// tracer follows one change of one address round the mesh.
type tracer struct {
	on atomic.Bool

	mu      sync.Mutex // guards what follows
	gid     gid.GID
	done    func(node uint32, ok bool) bool // the change is there
	begin   time.Time
	missing map[int]bool
	took    []time.Duration
	all     chan struct{}
}

// seen takes in a view of a worker.
func (t *tracer) seen(i int, now *session.Mesh) {
	if !t.on.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.missing[i] || !t.done(now.Resolve(t.gid)) {
		return
	}
	t.took = append(t.took, time.Since(t.begin))
	if delete(t.missing, i); len(t.missing) == 0 {
		close(t.all)
	}
}

// follow does something and returns after which times each worker saw the change
// to an address that it makes.
func (f *fleet) follow(ctx context.Context, g gid.GID, done func(node uint32, ok bool) bool, do func()) ([]time.Duration, error) {
	t := &f.tracer
	all := make(chan struct{})
	t.mu.Lock()
	t.gid, t.done, t.all, t.took = g, done, all, nil
	t.missing = make(map[int]bool, len(f.workers))
	for i := range f.workers {
		t.missing[i] = true
	}
	t.begin = time.Now()
	t.mu.Unlock()
	t.on.Store(true)
	defer t.on.Store(false)
	do()
	select {
	case <-all:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return nil, fmt.Errorf("a change of address %s has not reached %d of %d workers: %w", g, len(t.missing), len(f.workers), context.Cause(ctx))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took, nil
}

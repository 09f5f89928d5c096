// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// run is a mesh under measurement.
type run struct {
	options
	manager *managerProcess
	fleet   *fleet
	report  *report
	next    int // number of the next address
}

// measure does everything once.
func measure(ctx context.Context, o options) (r *report, err error) {
	dir, err := os.MkdirTemp("", "ernic-meshbench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := newManager(o.bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	x := &run{options: o, manager: m, fleet: newFleet(m.address, o.workers, o.claims), report: newReport(o), next: o.claims}
	defer x.fleet.kill()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{fmt.Sprintf("%d workers with %d addresses start at once", o.workers, o.claims), x.storm},
		{fmt.Sprintf("%d addresses are claimed and released, one by one", o.rounds), x.propagation},
		{fmt.Sprintf("nothing happens for %s", o.rest), x.atRest},
		{fmt.Sprintf("%d workers are killed and started again", o.kills), x.restartWorkers},
		{"the manager is killed and started again", x.restartManager},
	} {
		progress("%s", step.name)
		ctx, cancel := context.WithTimeoutCause(ctx, o.patience, fmt.Errorf("not within %s", o.patience))
		err := step.do(ctx)
		cancel()
		if err == nil {
			err = x.fleet.agree()
		}
		if err = errors.Join(err, x.manager.alive()); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return x.report, nil
}

// whole waits until all workers are registered and know as many nodes and
// addresses as there are. nodes counts the dead.
func (x *run) whole(ctx context.Context, nodes int) error {
	return x.fleet.await(ctx, "the whole mesh", func(w *worker) bool {
		n, routes := w.view().mesh.Len()
		return n == nodes && routes == x.claims && w.isRegistered()
	})
}

// storm starts everything.
func (x *run) storm(ctx context.Context) error {
	if err := x.manager.start(); err != nil {
		return err
	}
	if err := x.manager.listening(ctx); err != nil {
		return err
	}
	begin := time.Now()
	x.fleet.start()
	if err := x.fleet.await(ctx, "registration", (*worker).isRegistered); err != nil {
		return err
	}
	x.report.Storm.Registered = milliseconds(time.Since(begin))
	if err := x.whole(ctx, x.workers); err != nil {
		return err
	}
	x.report.Storm.Whole = milliseconds(time.Since(begin))
	u, err := x.manager.usage()
	if err != nil {
		return err
	}
	x.report.Storm.ManagerCPU = u.cpu.Seconds()
	return nil
}

// propagation lets one address after the other appear at one worker and vanish
// again.
func (x *run) propagation(ctx context.Context) error {
	runtime.GC() // what the storm left is not the mesh's
	var claimed, released []time.Duration
	for i := range x.rounds {
		g := address(x.next)
		x.next++
		w := x.fleet.workers[i*x.workers/x.rounds]
		took, err := x.fleet.follow(ctx, g, func(_ uint32, ok bool) bool { return ok }, func() {
			w.change(&ernicv1.ClaimUpdate{Claim: []*ernicv1.Claim{{Gid: g[:], Source: ernicv1.ClaimSource_CLAIM_SOURCE_ARP}}})
		})
		if err != nil {
			return err
		}
		claimed = append(claimed, took...)
		if took, err = x.fleet.follow(ctx, g, func(_ uint32, ok bool) bool { return !ok }, func() {
			w.change(&ernicv1.ClaimUpdate{Release: [][]byte{g[:]}})
		}); err != nil {
			return err
		}
		released = append(released, took...)
	}
	x.report.Claim, x.report.Release = quantilesOf(claimed), quantilesOf(released)
	return nil
}

// atRest watches the manager while nothing happens.
func (x *run) atRest(ctx context.Context) error {
	before, err := x.manager.usage()
	if err != nil {
		return err
	}
	begin := time.Now()
	select {
	case <-time.After(x.rest):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := x.manager.usage()
	if err != nil {
		return err
	}
	stored, err := x.manager.stored()
	if err != nil {
		return err
	}
	x.report.Rest = atRest{
		CPU:      100 * (after.cpu - before.cpu).Seconds() / time.Since(begin).Seconds(),
		Resident: after.resident, Peak: after.peak, Stored: stored,
	}
	return nil
}

// restartWorkers kills workers and starts others in their place, one by one.
func (x *run) restartWorkers(ctx context.Context) error {
	var all []time.Duration
	for i := range x.kills {
		w := x.fleet.workers[(i*x.workers/x.kills+x.workers/2)%x.workers]
		old := w.node.Load()
		w.kill()
		took, err := x.fleet.follow(ctx, w.gids[0], func(node uint32, ok bool) bool { return ok && node != old }, w.start)
		if err != nil {
			return err
		}
		all = append(all, took...)
	}
	x.report.WorkerRestart = quantilesOf(all)
	// All addresses of all of them, and the nodes that they were.
	return x.whole(ctx, x.workers+x.kills)
}

// restartManager kills the manager and starts it again.
func (x *run) restartManager(ctx context.Context) error {
	x.manager.kill()
	if err := x.fleet.await(ctx, "the loss of the manager", func(w *worker) bool { return !w.isRegistered() }); err != nil {
		return err
	}
	before := make([]uint32, x.workers)
	for i, w := range x.fleet.workers {
		before[i] = w.node.Load()
	}
	begin := time.Now()
	if err := x.manager.start(); err != nil {
		return err
	}
	if err := x.manager.listening(ctx); err != nil {
		return err
	}
	x.report.ManagerRestart.Listening = milliseconds(time.Since(begin))
	if err := x.whole(ctx, x.workers+x.kills); err != nil {
		return err
	}
	x.report.ManagerRestart.Whole = milliseconds(time.Since(begin))
	for i, w := range x.fleet.workers {
		if now := w.node.Load(); now != before[i] {
			return fmt.Errorf("worker %d was node %d and is node %d", i, before[i], now)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/metrics"
	"time"

	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker"
)

// allocTime is how long each kind of message runs.
const allocTime = time.Second

// measureAllocations runs the workers inside this process, where the heap's
// counters can be read, and counts allocations per message of everything: two
// workers, the mesh between them, and the drivers.
func measureAllocations(ctx context.Context) (_ []allocs, err error) {
	progress("allocations per message, workers in process")
	s := &stack{}
	defer func() { err = errors.Join(err, s.stop()) }()
	if s.dir, err = os.MkdirTemp("", "ernic-bench"); err != nil {
		return nil, err
	}
	managerAddr, err := s.startManager()
	if err != nil {
		return nil, err
	}
	ends := make(chan error, len(s.ends))
	runCtx, cancel := context.WithCancel(ctx)
	started := 0
	// Workers end before the manager does.
	defer func() {
		for i, e := range s.ends {
			if e != nil {
				err = errors.Join(err, e.guest.Shutdown())
				s.ends[i] = nil
			}
		}
		cancel()
		for range started {
			err = errors.Join(err, <-ends)
		}
	}()
	for i := range s.ends {
		w, err := inProcess(i+1, managerAddr, s.socket(i))
		if err != nil {
			return nil, err
		}
		started++
		go func() { ends <- w.Run(runCtx) }()
		if s.ends[i], err = boot(ctx, i+1, s.socket(i)); err != nil {
			return nil, err
		}
	}
	p, err := newPair(s, bandwidthMemory, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	send := func(d time.Duration) (int, error) {
		n, _, err := p.stream(ctx, d)
		return n, err
	}
	write := func(d time.Duration) (int, error) {
		const size = 64 << 10
		rate, took, err := p.write(ctx, size, d)
		return int(rate * took.Seconds() / size), err
	}
	var out []allocs
	for _, m := range []struct {
		what string
		run  func(time.Duration) (int, error)
	}{{"64-byte SEND", send}, {"64 KiB WRITE", write}} {
		if _, err := m.run(allocTime / 2); err != nil { // pools fill
			return nil, err
		}
		before := heapAllocations()
		n, err := m.run(allocTime)
		if err != nil {
			return nil, err
		}
		made := heapAllocations() - before
		out = append(out, allocs{m.what, n, float64(made) / float64(max(n, 1))})
	}
	return out, nil
}

func inProcess(n int, managerAddr, socket string) (*worker.Worker, error) {
	set, err := profile.Load()
	if err != nil {
		return nil, err
	}
	return worker.New(worker.Config{
		Name: fmt.Sprintf("bench%d", n), Instance: [16]byte{0xbe, byte(n)}, Socket: filepath.Clean(socket),
		MAC: [6]byte(macOf(n)), GIDs: []gid.GID{addrOf(n).As16()}, Profile: set,
		Fabric: worker.FabricMesh, Manager: managerAddr, Listen: net.JoinHostPort("127.0.0.1", "0"),
	})
}

// heapAllocations returns how many objects were allocated so far.
func heapAllocations() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

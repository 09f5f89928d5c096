// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/site"
)

func TestLifecycle_UnloadAndLoadTheModules(t *testing.T) {
	n := two.Nodes[1]
	for range 3 {
		must(t, n.Guest, "modprobe -r rdma_ucm; modprobe -r ionic_rdma; modprobe -r ionic; ! ip link show eth0 2>/dev/null")
		if err := n.BringUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pingpong(t, pair(), "ibv_rc_pingpong", "-c")
	quietKernel(t, n.Guest)
}

func TestLifecycle_KilledQEMULeavesTheWorkerToANewGuest(t *testing.T) {
	n := two.Nodes[1]
	id := nodeID(t, n)
	// In the middle of traffic, so that DMA is under way.
	port := pair().Port()
	sv, err := two.Nodes[0].Guest.Start(t.Context(), shell("timeout 60 ib_write_bw -d ionic_0 -x %s -D 30 -p %d", gidIndex(t, two.Nodes[0].Guest, two.Nodes[0].IP), port))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := n.Guest.Start(t.Context(), shell("sleep 1; timeout 60 ib_write_bw -d ionic_0 -x %s -D 30 -p %d %s", gidIndex(t, n.Guest, n.IP), port, two.Nodes[0].IP))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	n.Guest.Kill()
	n.Guest = nil
	_, _ = cl.Wait()
	_ = sv.Signal(syscall.SIGKILL)
	_, _ = sv.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := site.Poll(ctx, func() error { return attached(ctx, id, false) }); err != nil {
		t.Error(err)
	}
	if err := two.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	pingpong(t, pair(), "ibv_rc_pingpong", "-c")
	quietKernel(t, two.Nodes[0].Guest)
	if err := attached(t.Context(), id, true); err != nil {
		t.Error(err)
	}
}

// attached reports whether ernictl says of a node what is wanted.
func attached(ctx context.Context, id int, want bool) error {
	nodes, err := two.ListNodes(ctx)
	if err != nil {
		return err
	}
	for _, l := range nodes {
		if l.ID == uint32(id) {
			if l.GuestAttached != want || l.State != "alive" {
				return fmt.Errorf("node %d is shown as %+v, want guest attached %v", id, l, want)
			}
			return nil
		}
	}
	return fmt.Errorf("node %d is not listed", id)
}

func TestLifecycle_WorkerEndsWithinTwoSecondsOfSIGTERM(t *testing.T) {
	n := two.Nodes[1]
	begun := time.Now()
	if err := n.Worker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("the worker took %v to end", d)
	}
	// The guest survives the loss of its card.
	must(t, n.Guest, "true")
	n.Guest.Kill()
	n.Guest = nil
	if err := two.StartWorker(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := two.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	pingpong(t, pair(), "ibv_rc_pingpong", "-c")
}

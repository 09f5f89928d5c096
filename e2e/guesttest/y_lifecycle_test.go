// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"
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
	sv, err := two.Nodes[0].Guest.Start(t.Context(), shell("exec ib_write_bw -F -d ionic_0 -x %s -D 500 -p %d", gidIndex(t, two.Nodes[0].Guest, two.Nodes[0].IP), port))
	if err != nil {
		t.Fatal(err)
	}
	must(t, two.Nodes[0].Guest, fmt.Sprintf("for i in $(seq 600); do ss -Hltn 'sport = :%d' | grep -q . && exit 0; sleep 0.1; done; exit 1", port))
	cl, err := n.Guest.Start(t.Context(), shell("exec ib_write_bw -F -d ionic_0 -x %s -D 500 -p %d %s", gidIndex(t, n.Guest, n.IP), port, two.Nodes[0].IP))
	if err != nil {
		t.Fatal(err)
	}
	must(t, n.Guest, `
f=/sys/class/infiniband/ionic_0/ports/1/hw_counters/tx_rdma_ucast_bytes
before=$(cat $f)
for i in $(seq 600); do [ $(cat $f) -gt $((before + 1000000)) ] && exit 0; sleep 0.1; done
echo 'no traffic' >&2
exit 1`)
	n.Guest.Kill()
	n.Guest = nil
	_, _ = cl.Wait()
	_ = sv.Signal(syscall.SIGKILL)
	_, _ = sv.Wait()

	eventually(t, func(ctx context.Context) error { return attached(ctx, id, false) })
	if err := two.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	pingpong(t, pair(), "ibv_rc_pingpong", "-c")
	quietKernel(t, two.Nodes[0].Guest)
	eventually(t, func(ctx context.Context) error { return attached(ctx, id, true) })
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
	late := lateness(t)
	begun := time.Now()
	if err := n.Worker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, l := time.Since(begun), late(); d-l > 2*time.Second {
		t.Errorf("the worker took %v to end, in which the machine had no time for %v", d, l)
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

// lateness adds up how much later than due this process gets a processor, until
// the returned function is called.
func lateness(t *testing.T) (stop func() time.Duration) {
	t.Helper()
	const pause = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	total := make(chan time.Duration, 1)
	go func() {
		var sum time.Duration
		for ctx.Err() == nil {
			begun := time.Now()
			time.Sleep(pause)
			sum += time.Since(begun) - pause
		}
		total <- sum
	}()
	return func() time.Duration {
		cancel()
		return <-total
	}
}

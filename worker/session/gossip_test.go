// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/fabric/gossip"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// village is a manager and workers that gossip, on loopback ports.
type village struct {
	t       *testing.T
	manager *managertest.Manager
	square  *gossip.Pool // the manager's
}

func startPool(t *testing.T, instance [16]byte, changed func(*gossip.Pool)) *gossip.Pool {
	t.Helper()
	var p *gossip.Pool
	ready := make(chan struct{})
	p, err := gossip.Start(gossip.Config{
		Listen: "127.0.0.1:0", Instance: instance, Fast: true, Log: zerolog.Nop(),
		Changed: func() {
			<-ready
			changed(p)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	t.Cleanup(func() { p.Close() })
	return p
}

func startVillage(t *testing.T) *village {
	v := &village{t: t}
	built := make(chan struct{})
	v.square = startPool(t, [16]byte{0xff}, func(p *gossip.Pool) {
		<-built
		if m := v.manager.Running(); m != nil {
			m.Witness(p.Alive())
		}
	})
	v.manager = managertest.Start(t, manager.Config{
		Log: zerolog.Nop(), Core: core.Config{HealthInterval: 200 * time.Millisecond},
		Store: managertest.NewStore(), Ask: v.square.Ask, GossipAddress: v.square.Addr(),
	})
	close(built)
	v.manager.Server().Witness(v.square.Alive())
	return v
}

// villager is a worker that gossips.
type villager struct {
	*session.Session
	pool  *gossip.Pool
	cable *managertest.Cable
	stop  func()
}

func (v *village) worker(n byte) *villager {
	v.t.Helper()
	w := &villager{cable: v.manager.Cable()}
	instance := [16]byte{n}
	built := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	var joins sync.WaitGroup
	w.pool = startPool(v.t, instance, func(p *gossip.Pool) {
		<-built
		w.Heard(p.Records(), p.Gone())
	})
	var err error
	w.Session, err = session.New(session.Config{
		Manager: managertest.Addr, Dial: w.cable.DialOptions(), Name: fmt.Sprint("w", n), Addr: fmt.Sprintf("h%d:7000", n),
		Log: zerolog.Nop(), Instance: instance,
		Handlers: session.Handlers{Gossip: func(address string) {
			joins.Go(func() {
				// On a machine that stands still a single attempt takes too long.
				for w.pool.Join(address) != nil && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			})
		}},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	close(built)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	said := make(chan struct{})
	go func() {
		defer close(said)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.RecordChanged():
				if r := w.Record(); r != nil {
					w.pool.Say(r)
				}
			}
		}
	}()
	w.stop = func() {
		cancel()
		<-done
		<-said
		joins.Wait()
	}
	v.t.Cleanup(w.stop)
	return w
}

func within(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		if ok() {
			return time.Since(begin)
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s did not come about", what)
	return 0
}

func villageGID(n byte) [16]byte { return [16]byte{0: 0xfd, 15: n} }

func owns(w *villager, g [16]byte) uint32 {
	id, ok := w.Resolve(g)
	if !ok {
		return 0
	}
	return id
}

func TestH7_WhileTheManagerIsAwayWorkersHearOfEachOther(t *testing.T) {
	v := startVillage(t)
	a, b, c := v.worker(1), v.worker(2), v.worker(3)
	claim := func(w *villager, n byte) {
		if err := w.Claim(villageGID(n), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
			t.Fatal(err)
		}
	}
	claim(a, 1)
	claim(b, 2)
	claim(c, 3)
	ids := make(map[*villager]uint32)
	within(t, "the mesh", func() bool {
		for _, w := range []*villager{a, b, c} {
			id, ok := w.NodeID()
			if ids[w] = id; !ok || owns(w, villageGID(1)) == 0 || owns(w, villageGID(2)) == 0 || owns(w, villageGID(3)) == 0 ||
				w.pool.Len() != 4 || len(w.pool.Records()) != 2 {
				return false
			}
		}
		return true
	})
	v.manager.StopServer()
	within(t, "the loss of the manager", func() bool {
		return a.Status().GetSessionError() != "" && b.Status().GetSessionError() != "" && c.Status().GetSessionError() != ""
	})
	within(t, "what worked before", func() bool { return owns(b, villageGID(1)) == ids[a] && owns(a, villageGID(2)) == ids[b] })
	claim(a, 11)
	took := within(t, "a new claim", func() bool { return owns(b, villageGID(11)) == ids[a] && owns(c, villageGID(11)) == ids[a] })
	t.Logf("a claim was heard of after %s", took)
	a.Release(villageGID(1))
	within(t, "a release", func() bool { return owns(b, villageGID(1)) == 0 })
	claim(b, 11)
	within(t, "a conflict", func() bool {
		return owns(a, villageGID(11)) == 0 && owns(b, villageGID(11)) == 0 && owns(c, villageGID(11)) == 0
	})
	a.Release(villageGID(11))
	within(t, "its end", func() bool { return owns(a, villageGID(11)) == ids[b] && owns(c, villageGID(11)) == ids[b] })
	if err := c.pool.Leave(time.Minute); err != nil {
		t.Fatal(err)
	}
	c.stop()
	within(t, "a farewell", func() bool { return owns(a, villageGID(3)) == 0 && owns(b, villageGID(3)) == 0 })

	// The manager comes back and has the last word again.
	v.manager.Start()
	v.manager.Server().Witness(v.square.Alive())
	within(t, "the manager's view", func() bool {
		s := a.Status()
		return s.GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED && owns(a, villageGID(11)) == ids[b] && owns(a, villageGID(1)) == 0
	})
}

func TestH8_ANodeThatOthersSeeIsPartitionedNotDead(t *testing.T) {
	v := startVillage(t)
	a, b := v.worker(1), v.worker(2)
	if err := a.Claim(villageGID(1), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
		t.Fatal(err)
	}
	within(t, "the mesh", func() bool { return owns(b, villageGID(1)) != 0 && v.square.Len() == 3 })
	id, _ := a.NodeID()
	state := func() ernicv1.NodeState {
		resp, err := v.manager.Client().ListNodes(t.Context(), &ernicv1.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range resp.GetNodes() {
			if n.GetNodeId() == id {
				return n.GetState()
			}
		}
		return 0
	}
	a.cable.Silence()
	within(t, "the partition", func() bool { return state() == ernicv1.NodeState_NODE_STATE_PARTITIONED })
	within(t, "its address, still,", func() bool {
		_, known := b.Node(id)
		return known && owns(b, villageGID(1)) == id
	})
	// It comes back as if nothing had been.
	a.cable.Restore()
	within(t, "the return", func() bool { return state() == ernicv1.NodeState_NODE_STATE_ALIVE })
	if again, _ := a.NodeID(); again != id {
		t.Errorf("it was node %d and is node %d", id, again)
	}
	a.cable.Silence()
	within(t, "the second partition", func() bool { return state() == ernicv1.NodeState_NODE_STATE_PARTITIONED })
	if err := a.pool.Close(); err != nil {
		t.Fatal(err)
	}
	took := within(t, "its death", func() bool { return state() == ernicv1.NodeState_NODE_STATE_DEAD })
	t.Logf("nobody saw it any more after %s", took)
	within(t, "the withdrawal", func() bool { return owns(b, villageGID(1)) == 0 })
	a.cable.Restore()
}

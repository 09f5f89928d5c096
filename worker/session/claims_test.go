// SPDX-License-Identifier: Apache-2.0

package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

func TestG1_ClaimsOfEverySourceAreShownWithIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		// Claims may come before there is a session.
		for s := ernicv1.ClaimSource_CLAIM_SOURCE_MAC; s <= ernicv1.ClaimSource_CLAIM_SOURCE_QP; s++ {
			if err := w.Claim(parse(t, fmt.Sprintf("fd00::%d", s)), s); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		resp, err := m.Client().ListGids(t.Context(), &ernicv1.ListGidsRequest{})
		if err != nil || len(resp.GetGids()) != 7 {
			t.Fatalf("%v, %v", resp, err)
		}
		for i, g := range resp.GetGids() {
			if g.GetSource() != ernicv1.ClaimSource(i+1) || g.GetState() != ernicv1.ClaimState_CLAIM_STATE_ACTIVE || g.GetNodeId() != 1 {
				t.Errorf("claim %d is shown as %v", i, g)
			}
		}
		for _, c := range w.Claims() {
			if !c.GetAcknowledged() {
				t.Errorf("the claim to %x is not acknowledged", c.GetGid())
			}
		}
	})
}

func TestG1_WhatNobodyCanOwnIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{Core: core.Config{MaxClaims: 3}})
		w := startWorker(t, m, "w1", func(c *session.Config) { c.MaxClaims = 4 })
		for _, g := range [][16]byte{{}, {0xff, 2, 15: 1}, {15: 1}} {
			if err := w.Claim(g, ernicv1.ClaimSource_CLAIM_SOURCE_IP); err == nil {
				t.Errorf("%x was claimed", g)
			}
		}
		w.claim("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
		if err := w.Claim(parse(t, "10.0.0.5"), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("a claim beyond the worker's limit: %v", err)
		}
		settle()
		acked, rejected := 0, 0
		for _, c := range w.Claims() {
			if c.GetAcknowledged() {
				acked++
			}
			if strings.Contains(c.GetRejected(), "limit") {
				rejected++
			}
		}
		if acked != 3 || rejected != 1 {
			t.Errorf("%d claims are acknowledged and %d rejected, want 3 and 1", acked, rejected)
		}
		w.wantNode(1)
	})
}

func TestG2_ALookupIsExact(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		w.claim("10.0.0.1", "fe80::1")
		settle()
		w.wantRoute("10.0.0.1", 1)
		w.wantRoute("fe80::1", 1)
		g := parse(t, "fe80::1")
		for bit := range 128 {
			near := g
			near[bit/8] ^= 1 << (bit % 8)
			if id, ok := w.Resolve(near); ok {
				t.Errorf("%s resolves to node %d", near, id)
			}
		}
	})
}

func TestG3_TwoLiveNodesWithOneAddressOwnItNeither(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, log := start(t, manager.Config{})
		var w []*worker
		for i := range 4 {
			w = append(w, startWorker(t, m, fmt.Sprint("w", i+1)))
			settle()
		}
		const shared = "10.0.0.7"
		w[0].claim(shared)
		settle()
		w[3].wantRoute(shared, 1)
		w[1].claim(shared)
		settle()
		w[3].wantRoute(shared, 0)
		if got := claimStates(t, m, shared); got != "1 conflict, 2 conflict" {
			t.Error(got)
		}
		if !strings.Contains(log.String(), "claimed by nodes 1 and 2") {
			t.Errorf("the log does not name both nodes:\n%s", log)
		}
		if n := m.Server().Counters()["gid_conflicts"]; n != 1 {
			t.Errorf("%d conflicts are counted", n)
		}
		w[2].claim(shared)
		settle()
		w[3].wantRoute(shared, 0)
		w[2].Release(parse(t, shared))
		settle()
		w[3].wantRoute(shared, 0)
		// Both answer the probe that the conflict led to.
		time.Sleep(2 * interval)
		if got := claimStates(t, m, shared); got != "1 conflict, 2 conflict" {
			t.Error(got)
		}
		w[0].Release(parse(t, shared))
		settle()
		w[3].wantRoute(shared, 2)
		if c := m.Server().Counters(); c["gid_conflicts"] != 0 || c["gid_conflict_total"] == 0 {
			t.Errorf("conflicts are counted as %d now and %d ever", c["gid_conflicts"], c["gid_conflict_total"])
		}
	})
}

func TestG4a_TheHealthCheckWithdrawsTheClaimsOfADeadNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1")
		settle()
		w.killReset()
		settle()
		other.wantRoute("10.0.0.1", 1)
		time.Sleep(3*interval + time.Second)
		settle()
		other.wantRoute("10.0.0.1", 0)
		if got := claimStates(t, m, "10.0.0.1"); got != "1 withdrawn" {
			t.Error(got)
		}
	})
}

func TestG4b_AWorkerRestartedInsideTheIntervalOwnsItsAddressesAsANewNode(t *testing.T) {
	for name, kill := range map[string]func(*worker){"reset": (*worker).killReset, "half open": (*worker).kill} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, _ := start(t, manager.Config{})
				w := startWorker(t, m, "w1")
				settle()
				other := startWorker(t, m, "w2")
				w.claim("10.0.0.1", "fe80::1")
				settle()
				other.wantRoute("10.0.0.1", 1)
				kill(w)
				again := startWorker(t, m, "w1")
				again.claim("10.0.0.1", "fe80::1")
				settle()
				again.wantNode(3)
				if name == "half open" {
					// The old session still looks well; it is asked and has one interval to answer.
					time.Sleep(interval + 2*time.Second)
					settle()
				}
				other.wantRoute("10.0.0.1", 3)
				other.wantRoute("fe80::1", 3)
				if got := claimStates(t, m, "10.0.0.1"); got != "1 withdrawn, 3 active" {
					t.Error(got)
				}
			})
		})
	}
}

func TestG5_ANodeThatWasSilentOwnsItsAddressesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1", "fe80::1")
		settle()
		w.cable.Silence()
		time.Sleep(5 * interval)
		other.wantRoute("10.0.0.1", 0)
		claimed := m.Server().Counters()["gid_claimed_total"]
		w.cable.Restore()
		time.Sleep(3 * time.Second)
		settle()
		w.wantNode(1)
		other.wantRoute("10.0.0.1", 1)
		other.wantRoute("fe80::1", 1)
		if n := m.Server().Counters()["gid_claimed_total"]; n != claimed {
			t.Errorf("the worker had to claim again: %d claims, %d before", n, claimed)
		}
	})
}

func TestG6_ANodeThatReturnsDoesNotTakeAnAddressFromALiveOwnerSilently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, log := start(t, manager.Config{})
		old := startWorker(t, m, "w1")
		settle()
		owner := startWorker(t, m, "w2")
		old.claim("10.0.0.1")
		settle()
		old.cable.Silence()
		time.Sleep(5 * interval)
		owner.claim("10.0.0.1")
		settle()
		owner.wantRoute("10.0.0.1", 2)
		if got := claimStates(t, m, "10.0.0.1"); got != "1 withdrawn, 2 active" {
			t.Error(got)
		}
		if strings.Contains(log.String(), "gid_conflict") {
			t.Error("a dead node was in conflict")
		}
		old.cable.Restore()
		time.Sleep(3 * time.Second)
		settle()
		if got := claimStates(t, m, "10.0.0.1"); got != "1 conflict, 2 conflict" {
			t.Error(got)
		}
		owner.wantRoute("10.0.0.1", 0)
		old.stop()
		settle()
		owner.wantRoute("10.0.0.1", 2)
	})
}

func TestG7_AClaimEndsWithTheNodeOrItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{Core: core.Config{ClaimTTL: time.Hour}})
		w := startWorker(t, m, "w1")
		settle()
		other := startWorker(t, m, "w2")
		w.claim("10.0.0.1", "10.0.0.2")
		settle()
		w.Release(parse(t, "10.0.0.2"))
		settle()
		if got := claimStates(t, m, "10.0.0.2"); got != "" {
			t.Errorf("after the release: %s", got)
		}
		// An address that is released while there is no manager is released when there is one again.
		w.claim("10.0.0.3")
		settle()
		m.Stop()
		w.Release(parse(t, "10.0.0.3"))
		m.Start()
		time.Sleep(3 * time.Second)
		settle()
		if got := claimStates(t, m, "10.0.0.3"); got != "" {
			t.Errorf("after the release without a manager: %s", got)
		}
		w.kill()
		time.Sleep(time.Hour)
		if got := claimStates(t, m, "10.0.0.1"); got != "1 withdrawn" {
			t.Errorf("before the time is over: %q", got)
		}
		time.Sleep(time.Minute)
		if got := claimStates(t, m, "10.0.0.1"); got != "" {
			t.Errorf("after the time is over: %s", got)
		}
		other.wantNode(2)
	})
}

// TestG8_AllWorkersAtOneRevisionSeeTheSameMesh moves addresses about while workers come and go, and compares what all of
// them saw.
func TestG8_AllWorkersAtOneRevisionSeeTheSameMesh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, _ := start(t, manager.Config{})
		var all, live []*worker
		add := func(i int) {
			w := startWorker(t, m, fmt.Sprint("w", i))
			all, live = append(all, w), append(live, w)
		}
		for i := range 6 {
			add(i)
		}
		settle()
		for round := range 200 {
			w := live[round%len(live)]
			address := fmt.Sprintf("10.0.0.%d", 1+round%7)
			switch round % 6 {
			case 0, 1, 2:
				w.claim(address)
			case 3:
				w.Release(parse(t, address))
			case 4:
				w.cable.Cut()
			case 5:
				live = append(live[:round%len(live)], live[round%len(live)+1:]...)
				w.killReset()
				add(100 + round)
			}
			time.Sleep(time.Duration(round*37%1500) * time.Millisecond)
		}
		time.Sleep(4 * interval)
		settle()
		seen := make(map[string]string)
		compared := 0
		for _, w := range all {
			w.mu.Lock()
			for _, v := range w.views {
				key, text := fmt.Sprint(v.History, v.Revision), describe(v)
				if other, ok := seen[key]; ok {
					compared++
					if other != text {
						t.Errorf("at revision %d one worker saw\n%s\nanother\n%s", v.Revision, other, text)
					}
				}
				seen[key] = text
				v.Routes(func(g [16]byte, id uint32) bool {
					if n, ok := v.Node(id); !ok || n.State == ernicv1.NodeState_NODE_STATE_DEAD {
						t.Errorf("at revision %d %x resolves to node %d, which is not live", v.Revision, g, id)
					}
					return true
				})
			}
			w.mu.Unlock()
		}
		if len(seen) < 50 || compared < 200 {
			t.Errorf("only %d revisions were seen and %d views compared", len(seen), compared)
		}
		want := live[0].Mesh()
		for _, w := range live {
			if describe(w.Mesh()) != describe(want) {
				t.Errorf("in the end one worker sees\n%s\nanother\n%s", describe(w.Mesh()), describe(want))
			}
		}
	})
}

func describe(m *session.Mesh) string {
	var b strings.Builder
	for _, n := range m.Nodes() {
		fmt.Fprintf(&b, "node %d %s %s %v %x\n", n.ID, n.Name, n.Addr, n.State, n.Instance)
	}
	for i := range byte(16) {
		g := [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: i}
		if id, ok := m.Resolve(g); ok {
			fmt.Fprintf(&b, "10.0.0.%d -> %d\n", i, id)
		}
	}
	return b.String()
}

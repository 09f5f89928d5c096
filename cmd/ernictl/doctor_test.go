// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// ward returns a manager and three workers that are well, for a test to make ill.
func ward() []*ernicv1.Node {
	nodes := []*ernicv1.Node{{Version: "v1", State: ernicv1.NodeState_NODE_STATE_ALIVE}}
	for id := uint32(1); id <= 3; id++ {
		nodes = append(nodes, &ernicv1.Node{
			NodeId: id, Version: "v1", State: ernicv1.NodeState_NODE_STATE_ALIVE, ClockSkew: durationpb.New(-20 * time.Millisecond),
			Report: &ernicv1.NodeReport{
				Rtt:       durationpb.New(time.Millisecond),
				Interface: &ernicv1.InterfaceReport{Name: "tap0", Present: true, Up: true, Mtu: 1500},
				LinkReports: []*ernicv1.LinkReport{
					{PeerId: id%3 + 1, State: ernicv1.LinkState_LINK_STATE_UP, LastError: "once"},
				},
			},
		})
	}
	return nodes
}

func TestDoctorFindsWhatIsWrongAndNothingElse(t *testing.T) {
	conflict := func(id uint32) *ernicv1.Gid {
		return &ernicv1.Gid{Gid: append(make([]byte, 10), 0xff, 0xff, 10, 0, 0, 7), NodeId: id, State: ernicv1.ClaimState_CLAIM_STATE_CONFLICT}
	}
	for _, tc := range []struct {
		name string
		ill  func([]*ernicv1.Node)
		gids []*ernicv1.Gid
		want string // severity, check, node and a part of the text; empty: nothing
	}{
		{name: "all is well", gids: []*ernicv1.Gid{{Gid: make([]byte, 16), State: ernicv1.ClaimState_CLAIM_STATE_ACTIVE}}},
		{"a dead node", func(n []*ernicv1.Node) {
			n[2].State, n[2].Reason = ernicv1.NodeState_NODE_STATE_DEAD, "nothing came for 15s"
		}, nil, "error state 2 nothing came for 15s"},
		{"a suspect", func(n []*ernicv1.Node) { n[2].State = ernicv1.NodeState_NODE_STATE_SUSPECT }, nil, "warning state 2 suspect"},
		{"an evicted node", func(n []*ernicv1.Node) {
			n[2].State, n[2].Version, n[2].Report = ernicv1.NodeState_NODE_STATE_EVICTED, "v0", nil
		}, nil, "warning link 1 to node 2, which"},
		{"a clock ahead", func(n []*ernicv1.Node) { n[3].ClockSkew = durationpb.New(90 * time.Second) }, nil, "warning clock 3 1m30s ahead"},
		{"a clock behind", func(n []*ernicv1.Node) { n[3].ClockSkew = durationpb.New(-2 * time.Second) }, nil, "warning clock 3 2s behind"},
		{"another version", func(n []*ernicv1.Node) { n[1].Version = "v0" }, nil, `warning version 1 "v0", the manager "v1"`},
		{"a TAP that is down", func(n []*ernicv1.Node) { n[1].Report.Interface.Up = false }, nil, "error interface 1 ip link set tap0 up"},
		{"a TAP that is gone", func(n []*ernicv1.Node) {
			n[1].Report.Interface = &ernicv1.InterfaceReport{Name: "tap0"}
		}, nil, "error interface 1 not there"},
		{"another MTU", func(n []*ernicv1.Node) { n[3].Report.Interface.Mtu = 9000 }, nil, "warning mtu 3 MTU of 9000, others of 1500"},
		{"no TAP at all", func(n []*ernicv1.Node) { n[3].Report.Interface = nil }, nil, ""},
		{"guest memory that is not shared", func(n []*ernicv1.Node) {
			n[2].Report.GuestAttached, n[2].Report.MemoryPrivate = true, 4<<30
		}, nil, "error memory 2 4096 MiB of its guest's memory are not shared"},
		{"guest memory that is shared", func(n []*ernicv1.Node) {
			n[2].Report.GuestAttached, n[2].Report.MemoryShared, n[2].Report.MemoryPrivate = true, 4<<30, 16<<20
		}, nil, ""},
		{"a peer out of reach", func(n []*ernicv1.Node) {
			n[1].Report.LinkReports[0] = &ernicv1.LinkReport{PeerId: 2, State: ernicv1.LinkState_LINK_STATE_BACKOFF, LastError: "no route to host"}
		}, nil, "error link 1 cannot reach node 2: no route to host"},
		{"a conflict", nil, []*ernicv1.Gid{conflict(1), conflict(3)}, "error conflict 1 10.0.0.7 is claimed by nodes 1, 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := ward()
			if tc.ill != nil {
				tc.ill(nodes)
			}
			if tc.name == "an evicted node" {
				nodes = append(nodes[:2:2], nodes[3:]...)
			}
			found := examine(nodes, tc.gids)
			if tc.want == "" {
				if len(found) != 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			want := strings.SplitN(tc.want, " ", 4)
			if len(found) != 1 || found[0].Severity != want[0] || found[0].Check != want[1] || string('0'+rune(found[0].Node)) != want[2] ||
				!strings.Contains(found[0].Text, want[3]) {
				t.Errorf("found %v, want %s", found, tc.want)
			}
		})
	}
}

func TestDoctorEndsWithAFailureIfThereAreErrors(t *testing.T) {
	m := startMesh(t)
	if status, out, errs := ernictl(t, "doctor", "--manager", m.address); status != 0 || !strings.Contains(out, "nothing is wrong with 1 nodes") {
		t.Errorf("a mesh of one: status %d, %s%s", status, out, errs)
	}
	m.worker("beta", "10.0.0.7")
	m.worker("gamma", "10.0.0.7")
	status, out, _ := ernictl(t, "doctor", "--manager", m.address, "-o", "json")
	var found []finding
	if err := json.Unmarshal([]byte(out), &found); err != nil || status != 1 {
		t.Fatalf("status %d, %v: %s", status, err, out)
	}
	// The workers run another version than the manager, and have links to peers that are not there.
	seen := make(map[string]int)
	for _, f := range found {
		seen[f.Severity+" "+f.Check]++
	}
	if seen["error conflict"] != 1 || seen["warning version"] != 2 || seen["warning link"] != 4 || len(found) != 7 || found[0].Severity != "error" {
		t.Errorf("found %v", found)
	}
}

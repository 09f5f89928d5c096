// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// node is a node as it is printed. The names of its fields are stable.
type node struct {
	ID           uint32     `json:"id" yaml:"id"`
	Role         string     `json:"role" yaml:"role"`
	Name         string     `json:"name" yaml:"name"`
	Address      string     `json:"address" yaml:"address"`
	State        string     `json:"state" yaml:"state"`
	Reason       string     `json:"reason,omitempty" yaml:"reason,omitempty"`
	Since        *time.Time `json:"since,omitempty" yaml:"since,omitempty"`
	SessionSince *time.Time `json:"session_since,omitempty" yaml:"session_since,omitempty"`
	LastHeard    *time.Time `json:"last_heard,omitempty" yaml:"last_heard,omitempty"`
	Incarnation  uint64     `json:"incarnation" yaml:"incarnation"`
	Instance     string     `json:"instance,omitempty" yaml:"instance,omitempty"`
	Claims       uint32     `json:"claims" yaml:"claims"`
	Version      string     `json:"version" yaml:"version"`
	Protocol     uint32     `json:"protocol" yaml:"protocol"`
	// What the node says of itself; absent before its first heartbeat.
	GuestAttached *bool    `json:"guest_attached,omitempty" yaml:"guest_attached,omitempty"`
	Links         *uint32  `json:"links,omitempty" yaml:"links,omitempty"`
	RelayedLinks  *uint32  `json:"relayed_links,omitempty" yaml:"relayed_links,omitempty"`
	RTTMicros     *float64 `json:"rtt_us,omitempty" yaml:"rtt_us,omitempty"`
	MeshRevision  *uint64  `json:"mesh_revision,omitempty" yaml:"mesh_revision,omitempty"`
}

func nodeState(s ernicv1.NodeState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "NODE_STATE_"))
}

func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	v := t.AsTime()
	return &v
}

func newNode(m *ernicv1.Node) node {
	n := node{
		ID:           m.GetNodeId(),
		Role:         strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "NODE_ROLE_")),
		Name:         m.GetName(),
		Address:      m.GetAddress(),
		State:        nodeState(m.GetState()),
		Reason:       m.GetReason(),
		Since:        timeOf(m.GetSince()),
		SessionSince: timeOf(m.GetSessionSince()),
		LastHeard:    timeOf(m.GetLastHeard()),
		Incarnation:  m.GetIncarnation(),
		Instance:     hex.EncodeToString(m.GetInstance()),
		Claims:       m.GetClaims(),
		Version:      m.GetVersion(),
		Protocol:     m.GetProtocol(),
	}
	if r := m.GetReport(); r != nil {
		attached, links, revision := r.GetGuestAttached(), r.GetLinks(), r.GetMeshRevision()
		n.GuestAttached, n.Links, n.MeshRevision = &attached, &links, &revision
		relayed := uint32(0)
		for _, l := range r.GetLinkReports() {
			if l.GetRelayed() {
				relayed++
			}
		}
		n.RelayedLinks = &relayed
		if r.GetRtt() != nil {
			rtt := float64(r.GetRtt().AsDuration().Nanoseconds()) / 1000
			n.RTTMicros = &rtt
		}
	}
	return n
}

// age is the time since t in two units at most, such as 3m12s or 4d2h.
func age(t *time.Time) string {
	if t == nil {
		return ""
	}
	d := max(0, time.Since(*t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

func clock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// optional prints what may be unknown.
func optional[T any](v *T, print func(T) string) string {
	if v == nil {
		return ""
	}
	return print(*v)
}

func guest(attached bool) string {
	if attached {
		return "attached"
	}
	return "none"
}

func micros(us float64) string {
	d := time.Duration(us * 1000)
	if d < 10*time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// linksCell is how many links are up, and how many of those go by way of the manager.
func linksCell(n node) string {
	if n.Links == nil {
		return ""
	}
	if n.RelayedLinks != nil && *n.RelayedLinks > 0 {
		return fmt.Sprintf("%d (%d relayed)", *n.Links, *n.RelayedLinks)
	}
	return fmt.Sprint(*n.Links)
}

var nodeColumns = []column[node]{
	{title: "ID", cell: func(n node) string { return fmt.Sprint(n.ID) }},
	{title: "NAME", cell: func(n node) string { return n.Name }},
	{title: "ROLE", wide: true, cell: func(n node) string { return n.Role }},
	{title: "ADDRESS", cell: func(n node) string { return n.Address }},
	{title: "STATE", cell: func(n node) string { return n.State }},
	{title: "SESSION", cell: func(n node) string { return age(n.SessionSince) }},
	{title: "INCARNATION", cell: func(n node) string { return fmt.Sprint(n.Incarnation) }},
	{title: "GUEST", cell: func(n node) string { return optional(n.GuestAttached, guest) }},
	{title: "LINKS", cell: linksCell},
	{title: "RTT", cell: func(n node) string { return optional(n.RTTMicros, micros) }},
	{title: "VERSION", cell: func(n node) string { return n.Version }},
	{title: "CLAIMS", wide: true, cell: func(n node) string { return fmt.Sprint(n.Claims) }},
	{title: "HEARD", wide: true, cell: func(n node) string { return age(n.LastHeard) }},
	{title: "SINCE", wide: true, cell: func(n node) string { return clock(n.Since) }},
	{title: "REVISION", wide: true, cell: func(n node) string {
		return optional(n.MeshRevision, func(v uint64) string { return fmt.Sprint(v) })
	}},
	{title: "INSTANCE", wide: true, cell: func(n node) string { return n.Instance }},
	{title: "REASON", wide: true, cell: func(n node) string { return n.Reason }},
}

func nodesCommand(o *options) *cobra.Command {
	var f format
	var watch bool
	c := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes of the mesh",
		Long: `nodes lists the manager, which is node 0, and all workers that it knows.

A node is alive; suspect, when its session ended or is quiet and it may still come back; dead, when it
did not: its claims are kept and do not count; or evicted. GUEST, LINKS and RTT are what the worker says
in its heartbeats: whether a guest uses it, how many peer links are up, and the time a heartbeat takes.`,
		RunE: func(c *cobra.Command, _ []string) error {
			p := &printer[node]{out: c.OutOrStdout(), format: f, columns: nodeColumns}
			if watch {
				client, done, err := o.client()
				if err != nil {
					return err
				}
				defer done()
				return o.watchNodes(c.Context(), client, p)
			}
			nodes, err := o.listNodes(c.Context())
			if err != nil {
				return err
			}
			return p.list(convert(nodes, newNode))
		},
	}
	addOutput(c, &f, &watch)
	return c
}

func convert[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

func (o *options) watchNodes(ctx context.Context, client ernicv1.ManagerServiceClient, p *printer[node]) error {
	stream, err := client.WatchNodes(ctx, &ernicv1.WatchNodesRequest{})
	if err != nil {
		return o.managerError(err)
	}
	what := "shown"
	known := make(map[uint32]node)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return o.watchError(ctx, err)
		}
		nodes := convert(resp.GetNodes(), newNode)
		for _, n := range nodes {
			known[n.ID] = n
		}
		if err := p.changes(what, nodes); err != nil {
			return err
		}
		var gone []node
		for _, id := range resp.GetRemovedNodeIds() {
			n := known[id]
			n.ID, n.State = id, "gone"
			delete(known, id)
			gone = append(gone, n)
		}
		if err := p.changes("removed", gone); err != nil {
			return err
		}
		if resp.GetSynced() {
			what = "changed"
		}
	}
}

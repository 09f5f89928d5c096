// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// claim is a claim as it is printed. The names of its fields are stable.
type claim struct {
	GID         string     `json:"gid" yaml:"gid"`
	IPv4        string     `json:"ipv4,omitempty" yaml:"ipv4,omitempty"`
	Node        uint32     `json:"node" yaml:"node"`
	Source      string     `json:"source" yaml:"source"`
	State       string     `json:"state" yaml:"state"`
	Since       *time.Time `json:"since,omitempty" yaml:"since,omitempty"`
	Incarnation uint64     `json:"incarnation" yaml:"incarnation"`
}

func newClaim(m *ernicv1.Gid) claim {
	c := claim{
		GID:         fmt.Sprintf("%x", m.GetGid()),
		Node:        m.GetNodeId(),
		Source:      strings.ToLower(strings.TrimPrefix(m.GetSource().String(), "CLAIM_SOURCE_")),
		State:       strings.ToLower(strings.TrimPrefix(m.GetState().String(), "CLAIM_STATE_")),
		Since:       timeOf(m.GetSince()),
		Incarnation: m.GetIncarnation(),
	}
	if g, err := gid.FromBytes(m.GetGid()); err == nil {
		c.GID, c.IPv4 = g.String(), g.IPv4()
	}
	return c
}

var claimColumns = []column[claim]{
	{title: "GID", cell: func(c claim) string { return c.GID }},
	{title: "IPV4", cell: func(c claim) string { return c.IPv4 }},
	{title: "NODE", cell: func(c claim) string { return fmt.Sprint(c.Node) }},
	{title: "SOURCE", cell: func(c claim) string { return c.Source }},
	{title: "STATE", cell: func(c claim) string { return c.State }},
	{title: "SINCE", cell: func(c claim) string { return clock(c.Since) }},
	{title: "INCARNATION", wide: true, cell: func(c claim) string { return fmt.Sprint(c.Incarnation) }},
}

func gidsCommand(o *options) *cobra.Command {
	var f format
	var watch bool
	c := &cobra.Command{
		Use:   "gids",
		Short: "List the addresses of the mesh and the nodes that claim them",
		Long: `gids lists every claim of a node to an address. An active one makes the address resolve to the node.
One that is withdrawn is kept, and counts again when its node, which is dead, comes back. Where live nodes
are in conflict over an address it resolves to none of them.

SOURCE says where the node learned that the address is its own: mac (default GID of the NIC), config,
arp, ndp, ip (seen in the guest's frames), ah, qp (used in an address handle or a queue pair).`,
		RunE: func(c *cobra.Command, _ []string) error {
			p := &printer[claim]{out: c.OutOrStdout(), format: f, columns: claimColumns}
			if watch {
				client, done, err := o.client()
				if err != nil {
					return err
				}
				defer done()
				return o.watchGids(c.Context(), client, p)
			}
			all, err := o.listGids(c.Context())
			if err != nil {
				return err
			}
			return p.list(convert(all, newClaim))
		},
	}
	addOutput(c, &f, &watch)
	return c
}

func (o *options) watchGids(ctx context.Context, client ernicv1.ManagerServiceClient, p *printer[claim]) error {
	stream, err := client.WatchGids(ctx, &ernicv1.WatchGidsRequest{})
	if err != nil {
		return o.managerError(err)
	}
	what := "shown"
	type key struct {
		gid  string
		node uint32
	}
	known := make(map[key]claim)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return o.watchError(ctx, err)
		}
		claims := convert(resp.GetGids(), newClaim)
		for _, c := range claims {
			known[key{c.GID, c.Node}] = c
		}
		if err := p.changes(what, claims); err != nil {
			return err
		}
		var gone []claim
		for _, m := range resp.GetRemoved() {
			c := newClaim(m)
			if old, ok := known[key{c.GID, c.Node}]; ok {
				delete(known, key{c.GID, c.Node})
				c = old
			}
			c.State = "gone"
			gone = append(gone, c)
		}
		if err := p.changes("removed", gone); err != nil {
			return err
		}
		if resp.GetSynced() {
			what = "changed"
		}
	}
}

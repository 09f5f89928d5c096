// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// link is one end of a link as it is printed. The names of its fields are stable.
type link struct {
	Node            uint32   `json:"node" yaml:"node"`
	Peer            uint32   `json:"peer" yaml:"peer"`
	State           string   `json:"state" yaml:"state"`
	Lanes           uint32   `json:"lanes" yaml:"lanes"`
	RTTMicros       *float64 `json:"rtt_us,omitempty" yaml:"rtt_us,omitempty"`
	QueuedBytes     uint64   `json:"queued_bytes" yaml:"queued_bytes"`
	Reconnects      uint64   `json:"reconnects" yaml:"reconnects"`
	ConnectFailures uint64   `json:"connect_failures" yaml:"connect_failures"`
	LastError       string   `json:"last_error,omitempty" yaml:"last_error,omitempty"`
	Relayed         bool     `json:"relayed" yaml:"relayed"`
}

func linkState(s ernicv1.LinkState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "LINK_STATE_"))
}

func newLink(node uint32, m *ernicv1.LinkReport) link {
	l := link{
		Node: node, Peer: m.GetPeerId(), State: linkState(m.GetState()), Lanes: m.GetLanes(), QueuedBytes: m.GetQueuedBytes(),
		Reconnects: m.GetReconnects(), ConnectFailures: m.GetConnectFailures(), LastError: m.GetLastError(),
		Relayed: m.GetRelayed(),
	}
	if m.GetRtt() != nil {
		rtt := float64(m.GetRtt().AsDuration().Nanoseconds()) / 1000
		l.RTTMicros = &rtt
	}
	return l
}

// linksOf returns what nodes say of their links.
func linksOf(nodes []*ernicv1.Node) []link {
	var links []link
	for _, n := range nodes {
		for _, l := range n.GetReport().GetLinkReports() {
			links = append(links, newLink(n.GetNodeId(), l))
		}
	}
	return links
}

var linkColumns = []column[link]{
	{title: "NODE", cell: func(l link) string { return fmt.Sprint(l.Node) }},
	{title: "PEER", cell: func(l link) string { return fmt.Sprint(l.Peer) }},
	{title: "STATE", cell: func(l link) string { return l.State }},
	{title: "LANES", cell: func(l link) string { return fmt.Sprint(l.Lanes) }},
	{title: "WAY", cell: func(l link) string {
		if l.Relayed {
			return "relay"
		}
		return "direct"
	}},
	{title: "RTT", cell: func(l link) string { return optional(l.RTTMicros, micros) }},
	{title: "QUEUED", cell: func(l link) string { return fmt.Sprint(l.QueuedBytes) }},
	{title: "RECONNECTS", cell: func(l link) string { return fmt.Sprint(l.Reconnects) }},
	{title: "FAILURES", cell: func(l link) string { return fmt.Sprint(l.ConnectFailures) }},
	{title: "ERROR", cell: func(l link) string { return l.LastError }},
}

func linksCommand(o *options) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "links [ID...]",
		Short: "List the links between workers",
		Long: `links lists the links between workers, each as its two ends told the manager with their last heartbeat.
Links are made when there is something to send; one that nothing ever needed is not listed.

A link is up; connecting; in backoff, when it cannot be made and is tried again after a pause, with the
reason as ERROR; or idle, when it was lost and nothing waits for it. One that cannot be made directly goes
by way of the manager, as a last resort: WAY is then relay.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := nodeIDs(args)
			if err != nil {
				return err
			}
			nodes, err := o.listNodes(c.Context())
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				if nodes, err = pick(nodes, ids); err != nil {
					return err
				}
			}
			p := &printer[link]{out: c.OutOrStdout(), format: f, columns: linkColumns}
			return p.list(linksOf(nodes))
		},
	}
	addOutput(c, &f, nil)
	return c
}

// listNodes asks the manager for all nodes.
func (o *options) listNodes(ctx context.Context) ([]*ernicv1.Node, error) {
	client, done, err := o.client()
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	resp, err := client.ListNodes(ctx, &ernicv1.ListNodesRequest{})
	if err != nil {
		return nil, o.managerError(err)
	}
	return resp.GetNodes(), nil
}

// listGids asks the manager for all claims.
func (o *options) listGids(ctx context.Context) ([]*ernicv1.Gid, error) {
	client, done, err := o.client()
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var all []*ernicv1.Gid
	for req := (&ernicv1.ListGidsRequest{}); ; {
		resp, err := client.ListGids(ctx, req)
		if err != nil {
			return nil, o.managerError(err)
		}
		all = append(all, resp.GetGids()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return all, nil
		}
	}
}

// pick returns the nodes with the ids named.
func pick(nodes []*ernicv1.Node, ids []uint32) ([]*ernicv1.Node, error) {
	byID := make(map[uint32]*ernicv1.Node, len(nodes))
	for _, n := range nodes {
		byID[n.GetNodeId()] = n
	}
	picked := make([]*ernicv1.Node, len(ids))
	for i, id := range ids {
		if picked[i] = byID[id]; picked[i] == nil {
			return nil, fmt.Errorf("there is no node %d", id)
		}
	}
	return picked, nil
}

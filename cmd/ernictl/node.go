// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

func nodeCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "node", Short: "Show or change nodes"}
	c.AddCommand(showCommand(o), linkCommand(o), drainCommand(o), evictCommand(o))
	return c
}

// change carries out a change of each node that args name.
func (o *options) change(c *cobra.Command, args []string, one func(context.Context, ernicv1.ManagerServiceClient, uint32) (string, error)) error {
	ids, err := nodeIDs(args)
	if err != nil {
		return err
	}
	client, done, err := o.client()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
	defer cancel()
	for _, id := range ids {
		text, err := one(ctx, client, id)
		if err != nil {
			return o.managerError(err)
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return nil
}

func evictCommand(o *options) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "evict ID...",
		Short: "Remove nodes and their claims from the mesh",
		Long: `evict removes nodes and their claims from the mesh. The ids are not given out again until the
manager's quarantine is over. A worker that is alive registers again as a new node.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			return o.change(c, args, func(ctx context.Context, m ernicv1.ManagerServiceClient, id uint32) (string, error) {
				resp, err := m.EvictNode(ctx, &ernicv1.EvictNodeRequest{NodeId: id, Reason: reason})
				return fmt.Sprintf("node %d is evicted; its id is out of use for %s", id, resp.GetQuarantine().AsDuration()), err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for the manager's log")
	return c
}

func linkCommand(o *options) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "link ID up|down",
		Short: "Take the Ethernet link of a worker's NIC down, or leave it to its wire again",
		Long: `link ID down takes the carrier away from the worker's guest, its RDMA port with it. link ID up leaves the
carrier to what the NIC is joined to: it comes back if a TAP is up or the mesh is there. The worker forgets it
when it is restarted.`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(c *cobra.Command, args []string, partial string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"up", "down"}, cobra.ShellCompDirectiveNoFileComp
			}
			return o.completeNodes(c, args, partial)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if args[1] != "up" && args[1] != "down" {
				return cli.Usagef("link state %q is neither up nor down", args[1])
			}
			up := args[1] == "up"
			return o.change(c, args[:1], func(ctx context.Context, m ernicv1.ManagerServiceClient, id uint32) (string, error) {
				_, err := m.SetNodeLink(ctx, &ernicv1.SetNodeLinkRequest{NodeId: id, Up: up, Reason: reason})
				if up {
					return fmt.Sprintf("node %d leaves its link to the wire", id), err
				}
				return fmt.Sprintf("node %d takes its link down", id), err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for the logs of the manager and of the worker")
	return c
}

func drainCommand(o *options) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "drain ID...",
		Short: "Ask workers to end when their guests leave",
		Long: `drain asks workers to take no new guest and to end when the one that they have leaves, at once if they
have none. A worker that ends so leaves the mesh: its addresses belong to nobody and its id is free. Its exit
status is 0. Only a worker that has a session with the manager can be asked.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			return o.change(c, args, func(ctx context.Context, m ernicv1.ManagerServiceClient, id uint32) (string, error) {
				resp, err := m.DrainNode(ctx, &ernicv1.DrainNodeRequest{NodeId: id, Reason: reason})
				if resp.GetGuestAttached() {
					return fmt.Sprintf("node %d ends when its guest leaves", id), err
				}
				return fmt.Sprintf("node %d has no guest and ends now", id), err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for the logs of the manager and of the worker")
	return c
}

// nodeDetail is all that is known of a node, as it is printed. The names of its fields are stable.
type nodeDetail struct {
	node        `yaml:",inline"`
	Identity    string         `json:"identity,omitempty" yaml:"identity,omitempty"`
	Draining    bool           `json:"draining" yaml:"draining"`
	Carrier     *bool          `json:"carrier,omitempty" yaml:"carrier,omitempty"`
	LinkDown    bool           `json:"link_down" yaml:"link_down"`
	ClockSkewMS *float64       `json:"clock_skew_ms,omitempty" yaml:"clock_skew_ms,omitempty"`
	Interface   *hostInterface `json:"interface,omitempty" yaml:"interface,omitempty"`
	LinkEnds    []link         `json:"link_ends" yaml:"link_ends"`
	ClaimedGIDs []claim        `json:"claimed_gids" yaml:"claimed_gids"`
}

// hostInterface is the interface that carries a guest's Ethernet frames.
type hostInterface struct {
	Name    string `json:"name" yaml:"name"`
	Present bool   `json:"present" yaml:"present"`
	Up      bool   `json:"up" yaml:"up"`
	MTU     uint32 `json:"mtu" yaml:"mtu"`
}

func (i *hostInterface) String() string {
	switch {
	case !i.Present:
		return i.Name + ", which is not there"
	case !i.Up:
		return i.Name + ", down"
	}
	return fmt.Sprintf("%s, up, MTU %d", i.Name, i.MTU)
}

func ethernet(carrier, down bool) string {
	switch {
	case down:
		return "link taken down by an operator"
	case !carrier:
		return "no carrier"
	}
	return "carrier up"
}

func newDetail(m *ernicv1.Node, gids []*ernicv1.Gid) nodeDetail {
	d := nodeDetail{
		node: newNode(m), Identity: m.GetIdentity(), Draining: m.GetReport().GetDraining(),
		LinkEnds: []link{}, ClaimedGIDs: []claim{},
	}
	if r := m.GetReport(); r != nil && m.GetRole() == ernicv1.NodeRole_NODE_ROLE_WORKER {
		carrier := r.GetCarrier()
		d.Carrier, d.LinkDown = &carrier, r.GetLinkDown()
	}
	if m.GetClockSkew() != nil {
		ms := float64(m.GetClockSkew().AsDuration().Microseconds()) / 1000
		d.ClockSkewMS = &ms
	}
	if i := m.GetReport().GetInterface(); i != nil {
		d.Interface = &hostInterface{i.GetName(), i.GetPresent(), i.GetUp(), i.GetMtu()}
	}
	d.LinkEnds = append(d.LinkEnds, linksOf([]*ernicv1.Node{m})...)
	for _, g := range gids {
		if g.GetNodeId() == m.GetNodeId() {
			d.ClaimedGIDs = append(d.ClaimedGIDs, newClaim(g))
		}
	}
	return d
}

// print writes a node as a list of what it is, followed by its addresses and links.
func (d *nodeDetail) print(out io.Writer, f format) error {
	var b strings.Builder
	row := func(title, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s %s\n", title, value)
		}
	}
	since := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return fmt.Sprintf("%s (%s)", clock(t), age(t))
	}
	row("node", fmt.Sprintf("%d (%s)", d.ID, d.Role))
	row("name", d.Name)
	row("address", d.Address)
	row("holder", d.Identity)
	row("state", d.State)
	row("reason", d.Reason)
	row("since", since(d.Since))
	row("session", since(d.SessionSince))
	row("heard", since(d.LastHeard))
	row("guest", optional(d.GuestAttached, guest))
	if d.Draining {
		row("draining", "ends when its guest leaves")
	}
	if d.Carrier != nil {
		row("ethernet", ethernet(*d.Carrier, d.LinkDown))
	}
	if d.Interface != nil {
		row("interface", d.Interface.String())
	}
	row("round trip", optional(d.RTTMicros, micros))
	row("clock", optional(d.ClockSkewMS, func(ms float64) string { return fmt.Sprintf("%+.1f ms to the manager's", ms) }))
	row("version", d.Version)
	row("incarnation", fmt.Sprint(d.Incarnation))
	row("instance", d.Instance)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if len(d.ClaimedGIDs) > 0 {
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
		if err := (&printer[claim]{out: out, format: f, columns: claimColumns}).list(d.ClaimedGIDs); err != nil {
			return err
		}
	}
	if len(d.LinkEnds) > 0 {
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
		return (&printer[link]{out: out, format: f, columns: linkColumns}).list(d.LinkEnds)
	}
	return nil
}

func showCommand(o *options) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:               "show ID...",
		Short:             "Show all that is known of nodes",
		Args:              cobra.MinimumNArgs(1),
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
			if nodes, err = pick(nodes, ids); err != nil {
				return err
			}
			gids, err := o.listGids(c.Context())
			if err != nil {
				return err
			}
			details := convert(nodes, func(n *ernicv1.Node) nodeDetail { return newDetail(n, gids) })
			if f == "json" || f == "yaml" {
				return (&printer[nodeDetail]{out: c.OutOrStdout(), format: f}).list(details)
			}
			for i := range details {
				if i > 0 {
					if _, err := fmt.Fprintln(c.OutOrStdout()); err != nil {
						return err
					}
				}
				if err := details[i].print(c.OutOrStdout(), f); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addOutput(c, &f, nil)
	return c
}

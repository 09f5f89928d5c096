// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

func statsCommand(o *options) *cobra.Command {
	var output string
	var qps uint32
	c := &cobra.Command{
		Use:   "stats NODE|ADDRESS",
		Short: "Show everything a worker counts",
		Long: `stats shows the counters of a worker: those of the LIF and the port as the guest reads them, RDMA, links to
other workers, the vfio-user server and the process. The worker must have been started with --status. A node is
asked at the address that the manager knows of it; a host:port is asked without the manager.`,
		Example:           "  ernictl stats 3\n  ernictl stats 10.0.0.7:6330 -o json --qps 100",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			form, err := section.ParseFormat(output)
			if err != nil {
				return cli.Usagef("--output %w", err)
			}
			ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
			defer cancel()
			address, err := o.statusAddress(ctx, args[0])
			if err != nil {
				return err
			}
			conn, done, err := o.connect(address, identity.Worker)
			if err != nil {
				return err
			}
			defer done()
			resp, err := ernicv1.NewWorkerServiceClient(conn).GetStats(ctx, &ernicv1.GetStatsRequest{MaxQueuePairs: qps})
			if err != nil {
				return o.explain("worker", address, err)
			}
			_, err = c.OutOrStdout().Write(section.Encode(nil, form, section.FromProto(resp.GetSections())))
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", string(section.Text), "`format`: text or json")
	c.Flags().Uint32Var(&qps, "qps", 0, "most queue `pairs` to show one by one")
	forms := []string{string(section.Text), string(section.JSON)}
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was added just now
	}
	return c
}

// statusAddress finds where the worker that a user names answers operators.
func (o *options) statusAddress(ctx context.Context, who string) (string, error) {
	if host, _, err := net.SplitHostPort(who); err == nil && host != "" {
		return who, nil
	}
	id, err := strconv.ParseUint(who, 10, 32)
	if err != nil {
		return "", cli.Usagef("%q is neither a node id nor host:port", who)
	}
	client, done, err := o.client()
	if err != nil {
		return "", err
	}
	defer done()
	resp, err := client.ListNodes(ctx, &ernicv1.ListNodesRequest{})
	if err != nil {
		return "", o.managerError(err)
	}
	for _, n := range resp.GetNodes() {
		switch {
		case uint64(n.GetNodeId()) != id:
		case n.GetRole() == ernicv1.NodeRole_NODE_ROLE_MANAGER:
			return "", cli.Usagef("node %d is the manager, which counts nothing of a guest", id)
		case n.GetReport().GetStatusAddress() == "":
			return "", fmt.Errorf("node %d does not say where it can be asked: its worker needs --status", id)
		default:
			return n.GetReport().GetStatusAddress(), nil
		}
	}
	return "", fmt.Errorf("there is no node %d", id)
}

// SPDX-License-Identifier: Apache-2.0

// Command ernictl shows and changes a mesh of RDMA workers.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

func main() { cli.Main(command()) }

// maxAnswer is the longest answer that is taken, in bytes: a page of claims, with room.
const maxAnswer = 64 << 20

// options are the flags that all commands have.
type options struct {
	tls     cli.TLS
	manager string
	timeout time.Duration
	// at is the address of the manager that is asked.
	at string
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "ernictl",
		Short: "Show and change a mesh of RDMA workers",
		Long: `ernictl asks the manager of a mesh.

Every flag can come from the environment: --manager from ERNIC_MANAGER.`,
	}
	fs := root.PersistentFlags()
	fs.StringVar(&o.manager, "manager", "127.0.0.1:6320", "`address` of the manager, host or host:port; of several that share a state, separated by commas")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "`time` within which the answer has to come")
	o.tls.AddFlags(fs, identity.Operator)
	root.AddCommand(nodesCommand(&o), gidsCommand(&o), linksCommand(&o), nodeCommand(&o), managersCommand(&o), eventsCommand(&o),
		doctorCommand(&o), statusCommand(&o), statsCommand(&o), pkiCommand())
	return root
}

// connect returns a connection to a server of a role at address, and what to call when it is done with.
func (o *options) connect(address string, server identity.Role) (*grpc.ClientConn, func(), error) {
	creds, err := o.tls.Client(server)
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = conn.Close() }, nil
}

// client returns a client of the manager.
func (o *options) client() (ernicv1.ManagerServiceClient, func(), error) {
	conn, done, err := o.managerConn()
	if err != nil {
		return nil, nil, err
	}
	return ernicv1.NewManagerServiceClient(conn), done, nil
}

// explain says in a sentence why a call failed.
func (o *options) explain(who, address string, err error) error {
	if standby := session.AsStandby(address, err); standby != nil {
		return standby
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("the %s at %s cannot be reached: %s", who, address, session.Cause(err))
	case codes.DeadlineExceeded:
		return fmt.Errorf("the %s at %s did not answer within %s", who, address, o.timeout)
	case codes.Unimplemented:
		return fmt.Errorf("what listens at %s is no %s of this version: %s", address, who, st.Message())
	}
	return fmt.Errorf("the %s at %s: %s", who, address, st.Message())
}

func (o *options) managerError(err error) error { return o.explain("manager", o.at, err) }

// watchError returns why a watch ended. That the user ended it is no error.
func (o *options) watchError(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return o.managerError(err)
	}
}

// completeNodes offers the ids of the nodes that there are.
func (o *options) completeNodes(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if cli.FromEnvironment(c) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	client, done, err := o.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	resp, err := client.ListNodes(ctx, &ernicv1.ListNodesRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, n := range resp.GetNodes() {
		if n.GetRole() == ernicv1.NodeRole_NODE_ROLE_WORKER {
			ids = append(ids, fmt.Sprintf("%d\t%s, %s", n.GetNodeId(), n.GetName(), nodeState(n.GetState())))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// lookTime bounds the search for the manager that leads at one address.
const lookTime = 3 * time.Second

// managerConn returns a connection to the manager: the one there is, or of several the one that leads.
func (o *options) managerConn() (*grpc.ClientConn, func(), error) {
	list, err := session.ManagerAddrs(o.manager)
	if err != nil {
		return nil, nil, cli.Usagef("--manager: %w", err)
	}
	if len(list) == 1 {
		o.at = list[0]
		return o.connect(o.at, identity.Manager)
	}
	var failed []error
	for _, address := range list {
		conn, done, leader, err := o.look(address)
		if err == nil && conn == nil && leader != "" {
			// Whom that one names in turn is of no interest: it leads, or nobody does.
			address = leader
			if conn, done, leader, err = o.look(address); err == nil && conn == nil {
				err = fmt.Errorf("the manager at %s does not lead any more, but %s", address, somebody(leader))
			}
		}
		switch {
		case err != nil:
			failed = append(failed, err)
		case conn == nil:
			failed = append(failed, fmt.Errorf("the manager at %s stands by, and none leads at the moment", address))
		default:
			o.at = address
			return conn, done, nil
		}
	}
	return nil, nil, fmt.Errorf("no manager that leads is found: %w", inOneSentence(failed))
}

// inOneSentence joins errors in one line.
func inOneSentence(errs []error) error {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

func somebody(leader string) string {
	if leader == "" {
		return "nobody"
	}
	return leader
}

// look asks a manager who leads. It returns a connection if that is the one that is asked, and its address otherwise.
func (o *options) look(address string) (*grpc.ClientConn, func(), string, error) {
	conn, done, err := o.connect(address, identity.Manager)
	if err != nil {
		return nil, nil, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(o.timeout, lookTime))
	defer cancel()
	resp, err := ernicv1.NewManagerServiceClient(conn).ListManagers(ctx, &ernicv1.ListManagersRequest{})
	if err != nil {
		done()
		return nil, nil, "", o.explain("manager", address, err)
	}
	for _, m := range resp.GetManagers() {
		switch {
		case m.GetLeads() && m.GetAnswers():
			return conn, done, "", nil
		case m.GetLeads():
			done()
			return nil, nil, m.GetAddress(), nil
		}
	}
	done()
	return nil, nil, "", nil
}

// managerInfo is a manager as it is printed. The names of its fields are stable.
type managerInfo struct {
	Name    string     `json:"name" yaml:"name"`
	Address string     `json:"address" yaml:"address"`
	Role    string     `json:"role" yaml:"role"` // leads or stands by
	Version string     `json:"version" yaml:"version"`
	Started *time.Time `json:"started,omitempty" yaml:"started,omitempty"`
	Asked   bool       `json:"asked" yaml:"asked"` // it is the one that answered
}

func newManagerInfo(m *ernicv1.ManagerInfo) managerInfo {
	role := "standby"
	if m.GetLeads() {
		role = "leader"
	}
	return managerInfo{m.GetName(), m.GetAddress(), role, m.GetVersion(), timeOf(m.GetStarted()), m.GetAnswers()}
}

var managerColumns = []column[managerInfo]{
	{title: "NAME", cell: func(m managerInfo) string { return m.Name }},
	{title: "ADDRESS", cell: func(m managerInfo) string { return m.Address }},
	{title: "ROLE", cell: func(m managerInfo) string { return m.Role }},
	{title: "UP", cell: func(m managerInfo) string { return age(m.Started) }},
	{title: "VERSION", cell: func(m managerInfo) string { return m.Version }},
}

func managersCommand(o *options) *cobra.Command {
	f := format("table")
	c := &cobra.Command{
		Use:   "managers",
		Short: "Show the managers that share the state of the mesh",
		Long: `managers shows which manager leads and which stand by to take over. It is answered by the first of the
managers named with --manager that can be reached, whether it leads or not. A manager that keeps its
state in a file is alone and leads.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := session.ManagerAddrs(o.manager)
			if err != nil {
				return cli.Usagef("--manager: %w", err)
			}
			var failed []error
			for _, address := range list {
				resp, err := o.listManagers(c.Context(), address)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				p := &printer[managerInfo]{out: c.OutOrStdout(), format: f, columns: managerColumns}
				return p.list(convert(resp.GetManagers(), newManagerInfo))
			}
			return inOneSentence(failed)
		},
	}
	addOutput(c, &f, nil)
	return c
}

func (o *options) listManagers(ctx context.Context, address string) (*ernicv1.ListManagersResponse, error) {
	conn, done, err := o.connect(address, identity.Manager)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	resp, err := ernicv1.NewManagerServiceClient(conn).ListManagers(ctx, &ernicv1.ListManagersRequest{})
	if err != nil {
		return nil, o.explain("manager", address, err)
	}
	return resp, nil
}

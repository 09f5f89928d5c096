// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// workerStatus is the status of a worker as it is printed. The names of its fields are stable.
type workerStatus struct {
	Node          uint32        `json:"node" yaml:"node"`
	Name          string        `json:"name" yaml:"name"`
	Version       string        `json:"version" yaml:"version"`
	Instance      string        `json:"instance" yaml:"instance"`
	Incarnation   uint64        `json:"incarnation" yaml:"incarnation"`
	Manager       string        `json:"manager" yaml:"manager"`
	Session       string        `json:"session" yaml:"session"`
	SessionSince  *time.Time    `json:"session_since,omitempty" yaml:"session_since,omitempty"`
	SessionError  string        `json:"session_error,omitempty" yaml:"session_error,omitempty"`
	Registrations uint64        `json:"registrations" yaml:"registrations"`
	MeshRevision  uint64        `json:"mesh_revision" yaml:"mesh_revision"`
	MeshNodes     uint32        `json:"mesh_nodes" yaml:"mesh_nodes"`
	MeshRoutes    uint32        `json:"mesh_routes" yaml:"mesh_routes"`
	GuestAttached bool          `json:"guest_attached" yaml:"guest_attached"`
	Links         uint32        `json:"links" yaml:"links"`
	Claims        []statusClaim `json:"claims" yaml:"claims"`
}

// statusClaim is an address that the worker claims.
type statusClaim struct {
	GID          string `json:"gid" yaml:"gid"`
	Source       string `json:"source" yaml:"source"`
	Acknowledged bool   `json:"acknowledged" yaml:"acknowledged"`
	Rejected     string `json:"rejected,omitempty" yaml:"rejected,omitempty"`
}

func newStatus(m *ernicv1.GetStatusResponse) workerStatus {
	s := workerStatus{
		Node:          m.GetNodeId(),
		Name:          m.GetName(),
		Version:       m.GetVersion(),
		Instance:      hex.EncodeToString(m.GetInstance()),
		Incarnation:   m.GetIncarnation(),
		Manager:       m.GetManager(),
		Session:       strings.ToLower(strings.TrimPrefix(m.GetSession().String(), "SESSION_STATE_")),
		SessionSince:  timeOf(m.GetSessionSince()),
		SessionError:  m.GetSessionError(),
		Registrations: m.GetRegistrations(),
		MeshRevision:  m.GetMesh().GetRevision(),
		MeshNodes:     m.GetMeshNodes(),
		MeshRoutes:    m.GetMeshRoutes(),
		GuestAttached: m.GetReport().GetGuestAttached(),
		Links:         m.GetReport().GetLinks(),
		Claims:        []statusClaim{},
	}
	for _, c := range m.GetClaims() {
		text := hex.EncodeToString(c.GetGid())
		if g, err := gid.FromBytes(c.GetGid()); err == nil {
			text = g.String()
		}
		s.Claims = append(s.Claims, statusClaim{
			GID: text, Source: strings.ToLower(strings.TrimPrefix(c.GetSource().String(), "CLAIM_SOURCE_")),
			Acknowledged: c.GetAcknowledged(), Rejected: c.GetRejected(),
		})
	}
	return s
}

var statusColumns = []column[workerStatus]{
	{title: "NODE", cell: func(s workerStatus) string {
		return optional(nonZero(s.Node), func(v uint32) string { return fmt.Sprint(v) })
	}},
	{title: "NAME", cell: func(s workerStatus) string { return s.Name }},
	{title: "MANAGER", cell: func(s workerStatus) string { return s.Manager }},
	{title: "SESSION", cell: func(s workerStatus) string { return s.Session }},
	{title: "SINCE", cell: func(s workerStatus) string { return clock(s.SessionSince) }},
	{title: "GUEST", cell: func(s workerStatus) string { return guest(s.GuestAttached) }},
	{title: "LINKS", cell: func(s workerStatus) string { return fmt.Sprint(s.Links) }},
	{title: "CLAIMS", cell: func(s workerStatus) string { return fmt.Sprint(len(s.Claims)) }},
	{title: "REVISION", cell: func(s workerStatus) string { return fmt.Sprint(s.MeshRevision) }},
	{title: "NODES", cell: func(s workerStatus) string { return fmt.Sprint(s.MeshNodes) }},
	{title: "ROUTES", cell: func(s workerStatus) string { return fmt.Sprint(s.MeshRoutes) }},
	{title: "VERSION", cell: func(s workerStatus) string { return s.Version }},
	{title: "REGISTRATIONS", wide: true, cell: func(s workerStatus) string { return fmt.Sprint(s.Registrations) }},
	{title: "INSTANCE", wide: true, cell: func(s workerStatus) string { return s.Instance }},
	{title: "ERROR", wide: true, cell: func(s workerStatus) string { return s.SessionError }},
}

func nonZero(v uint32) *uint32 {
	if v == 0 {
		return nil
	}
	return &v
}

func statusCommand(o *options) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "status ADDRESS",
		Short: "Ask a worker how it stands to the manager",
		Long: `status asks the worker that answers for its status at an address how it stands to the manager and the mesh.
It works also while the worker cannot reach the manager.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if host, _, err := net.SplitHostPort(args[0]); err != nil || host == "" {
				return cli.Usagef("worker address %q: not host:port", args[0])
			}
			conn, done, err := o.connect(args[0], identity.Worker)
			if err != nil {
				return err
			}
			defer done()
			ctx, cancel := context.WithTimeout(c.Context(), o.timeout)
			defer cancel()
			resp, err := ernicv1.NewWorkerServiceClient(conn).GetStatus(ctx, &ernicv1.GetStatusRequest{})
			if err != nil {
				return o.explain("worker", args[0], err)
			}
			p := &printer[workerStatus]{out: c.OutOrStdout(), format: f, columns: statusColumns}
			return p.list([]workerStatus{newStatus(resp)})
		},
	}
	addOutput(c, &f, nil)
	return c
}

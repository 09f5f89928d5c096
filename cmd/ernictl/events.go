// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// event is an event as it is printed. The names of its fields are stable.
type event struct {
	Sequence uint64     `json:"sequence" yaml:"sequence"`
	Time     *time.Time `json:"time" yaml:"time"`
	Event    string     `json:"event" yaml:"event"`
	Grave    bool       `json:"grave" yaml:"grave"`
	Node     uint32     `json:"node" yaml:"node"`
	GID      string     `json:"gid,omitempty" yaml:"gid,omitempty"`
	Text     string     `json:"text" yaml:"text"`
}

func newEvent(m *ernicv1.Event) event {
	e := event{
		Sequence: m.GetSequence(), Time: timeOf(m.GetTime()), Event: m.GetKind(), Grave: m.GetGrave(), Node: m.GetNodeId(), Text: m.GetText(),
	}
	if g, err := gid.FromBytes(m.GetGid()); err == nil {
		e.GID = g.String()
	}
	return e
}

var eventColumns = []column[event]{
	{title: "TIME", cell: func(e event) string { return clock(e.Time) }},
	{title: "EVENT", cell: func(e event) string { return fmt.Sprintf("%-17s", e.Event) }},
	{title: "NODE", cell: func(e event) string { return fmt.Sprint(e.Node) }},
	{title: "SEQUENCE", wide: true, cell: func(e event) string { return fmt.Sprint(e.Sequence) }},
	{title: "GID", wide: true, cell: func(e event) string { return e.GID }},
	{title: "TEXT", cell: func(e event) string { return e.Text }},
}

func eventsCommand(o *options) *cobra.Command {
	f := format("table")
	var follow bool
	var last uint32
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what has happened in the mesh",
		Long: `events shows what the manager did, saw and refused, oldest first: registrations, deaths, claims, owners
of addresses, conflicts, evictions and their reasons. The manager remembers the last 4096 events since it
started; its log has them all. With -o json or yaml each event is a document of its own.`,
		Example: `  ernictl events --follow
  ernictl events --last 20 -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			client, done, err := o.client()
			if err != nil {
				return err
			}
			defer done()
			stream, err := client.WatchEvents(c.Context(), &ernicv1.WatchEventsRequest{Follow: follow, Last: last})
			if err != nil {
				return o.managerError(err)
			}
			p := &printer[event]{out: c.OutOrStdout(), format: f, columns: eventColumns}
			for {
				resp, err := stream.Recv()
				switch {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil && follow:
					return o.watchError(c.Context(), err)
				case err != nil:
					return o.managerError(err)
				}
				if n := resp.GetMissed(); n > 0 {
					c.PrintErrf("%d events came faster than they could be shown\n", n)
				}
				if err := p.stream(convert(resp.GetEvents(), newEvent)); err != nil {
					return err
				}
			}
		},
	}
	addOutput(c, &f, nil)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on and show every event as it comes")
	c.Flags().Uint32Var(&last, "last", 0, "show only this `number` of past events (default: all that are remembered)")
	return c
}

// nodeIDs reads the ids of nodes.
func nodeIDs(args []string) ([]uint32, error) {
	ids := make([]uint32, len(args))
	for i, a := range args {
		if _, err := fmt.Sscanf(a, "%d", &ids[i]); err != nil || fmt.Sprint(ids[i]) != a {
			return nil, cli.Usagef("%q is no node id", a)
		}
	}
	return ids, nil
}

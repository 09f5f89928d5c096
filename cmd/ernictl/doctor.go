// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// maxSkew is the difference between two clocks that is worth a word.
const maxSkew = time.Second

// finding is something that a doctor would look at, as it is printed. The names of its fields are stable.
type finding struct {
	Severity string `json:"severity" yaml:"severity"` // error or warning
	Check    string `json:"check" yaml:"check"`
	Node     uint32 `json:"node" yaml:"node"`
	Text     string `json:"text" yaml:"text"`
}

// examination collects findings.
type examination struct {
	nodes    []*ernicv1.Node
	gids     []*ernicv1.Gid
	findings []finding
}

func (e *examination) add(severity, check string, node uint32, text string, args ...any) {
	e.findings = append(e.findings, finding{severity, check, node, fmt.Sprintf(text, args...)})
}

// checks are the names of all checks and what each looks at.
var checks = []struct {
	name string
	look func(*examination)
}{
	{"state", (*examination).state},
	{"clock", (*examination).clock},
	{"version", (*examination).version},
	{"interface", (*examination).iface},
	{"mtu", (*examination).mtu},
	{"memory", (*examination).memory},
	{"link", (*examination).links},
	{"conflict", (*examination).conflicts},
}

// examine looks at a mesh. The first node is the manager.
func examine(nodes []*ernicv1.Node, gids []*ernicv1.Gid) []finding {
	e := &examination{nodes: nodes, gids: gids}
	for _, c := range checks {
		c.look(e)
	}
	slices.SortStableFunc(e.findings, func(a, b finding) int { return cmp.Compare(a.Severity, b.Severity) })
	return e.findings
}

func (e *examination) state() {
	for _, n := range e.nodes {
		switch n.GetState() {
		case ernicv1.NodeState_NODE_STATE_ALIVE, ernicv1.NodeState_NODE_STATE_EVICTED:
		case ernicv1.NodeState_NODE_STATE_DEAD:
			e.add("error", "state", n.GetNodeId(), "it is dead: %s", n.GetReason())
		default:
			e.add("warning", "state", n.GetNodeId(), "it is %s: %s", nodeState(n.GetState()), n.GetReason())
		}
	}
}

func (e *examination) clock() {
	for _, n := range e.nodes {
		skew, way := n.GetClockSkew().AsDuration(), n.GetReport().GetRtt().AsDuration()
		if skew.Abs() > maxSkew+way {
			side := "ahead of"
			if skew < 0 {
				side = "behind"
			}
			e.add("warning", "clock", n.GetNodeId(), "its clock is %s %s the manager's: times in logs do not fit together, certificates may be refused",
				skew.Abs().Round(10*time.Millisecond), side)
		}
	}
}

func (e *examination) version() {
	if len(e.nodes) == 0 {
		return
	}
	manager := e.nodes[0].GetVersion()
	for _, n := range e.nodes[1:] {
		if v := n.GetVersion(); v != manager && n.GetState() != ernicv1.NodeState_NODE_STATE_EVICTED {
			e.add("warning", "version", n.GetNodeId(), "it runs version %q, the manager %q", v, manager)
		}
	}
}

func (e *examination) iface() {
	for _, n := range e.nodes {
		i := n.GetReport().GetInterface()
		switch {
		case i == nil:
		case !i.GetPresent():
			e.add("error", "interface", n.GetNodeId(), "its interface %s is not there: the guest has no carrier", i.GetName())
		case !i.GetUp():
			e.add("error", "interface", n.GetNodeId(), "its interface %s is down: ip link set %s up", i.GetName(), i.GetName())
		}
	}
}

// mtu looks for interfaces whose MTU is not that of most.
func (e *examination) mtu() {
	count := make(map[uint32]int)
	for _, n := range e.nodes {
		if i := n.GetReport().GetInterface(); i.GetUp() {
			count[i.GetMtu()]++
		}
	}
	var usual uint32
	for mtu, n := range count {
		if n > count[usual] || n == count[usual] && mtu > usual {
			usual = mtu
		}
	}
	for _, n := range e.nodes {
		if i := n.GetReport().GetInterface(); i.GetUp() && i.GetMtu() != usual {
			e.add("warning", "mtu", n.GetNodeId(), "its interface %s has an MTU of %d, others of %d: large frames get lost between them",
				i.GetName(), i.GetMtu(), usual)
		}
	}
}

// memory looks for guests whose RAM is not shared. ROMs and the like, which nobody shares, are small.
func (e *examination) memory() {
	for _, n := range e.nodes {
		r := n.GetReport()
		if private := r.GetMemoryPrivate(); r.GetGuestAttached() && private > r.GetMemoryShared() {
			e.add("error", "memory", n.GetNodeId(), "%d MiB of its guest's memory are not shared with the worker, and %d MiB are: "+
				"QEMU needs -object memory-backend-memfd,id=ram,share=on,size=... and -machine memory-backend=ram",
				private>>20, r.GetMemoryShared()>>20)
		}
	}
}

func (e *examination) links() {
	known := make(map[uint32]bool, len(e.nodes))
	for _, n := range e.nodes {
		known[n.GetNodeId()] = true
	}
	for _, n := range e.nodes {
		for _, l := range n.GetReport().GetLinkReports() {
			switch {
			case !known[l.GetPeerId()]:
				e.add("warning", "link", n.GetNodeId(), "it has a link to node %d, which is not there", l.GetPeerId())
			case l.GetState() == ernicv1.LinkState_LINK_STATE_BACKOFF:
				e.add("error", "link", n.GetNodeId(), "it cannot reach node %d: %s", l.GetPeerId(), l.GetLastError())
			}
		}
	}
}

func (e *examination) conflicts() {
	claimants := make(map[string][]string)
	var order []string
	first := make(map[string]uint32)
	for _, g := range e.gids {
		if g.GetState() != ernicv1.ClaimState_CLAIM_STATE_CONFLICT {
			continue
		}
		key := string(g.GetGid())
		if claimants[key] == nil {
			order = append(order, key)
			first[key] = g.GetNodeId()
		}
		claimants[key] = append(claimants[key], fmt.Sprint(g.GetNodeId()))
	}
	for _, key := range order {
		text := fmt.Sprintf("%x", key)
		if g, err := gid.FromBytes([]byte(key)); err == nil {
			text = g.String()
		}
		e.add("error", "conflict", first[key], "%s is claimed by nodes %s and belongs to none of them", text, strings.Join(claimants[key], ", "))
	}
}

var findingColumns = []column[finding]{
	{title: "SEVERITY", cell: func(f finding) string { return f.Severity }},
	{title: "CHECK", cell: func(f finding) string { return f.Check }},
	{title: "NODE", cell: func(f finding) string { return fmt.Sprint(f.Node) }},
	{title: "FINDING", cell: func(f finding) string { return f.Text }},
}

func doctorCommand(o *options) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the mesh",
		Long: `doctor asks the manager for all nodes and claims and says what is wrong, errors first:

  state       nodes that are dead, suspect or partitioned
  clock       clocks more than a second away from the manager's
  version     programs of another version than the manager's
  interface   TAPs that are down or gone
  mtu         TAPs whose MTU is not that of most
  memory      guests whose memory is not shared with their worker
  link        peers that cannot be reached, and why
  conflict    addresses that several live nodes claim

The exit status is 1 if there is an error among the findings.`,
		RunE: func(c *cobra.Command, _ []string) error {
			nodes, err := o.listNodes(c.Context())
			if err != nil {
				return err
			}
			gids, err := o.listGids(c.Context())
			if err != nil {
				return err
			}
			findings := examine(nodes, gids)
			if len(findings) == 0 && (f == "table" || f == "wide") {
				_, err := fmt.Fprintf(c.OutOrStdout(), "nothing is wrong with %d nodes and %d claims\n", len(nodes), len(gids))
				return err
			}
			p := &printer[finding]{out: c.OutOrStdout(), format: f, columns: findingColumns}
			if err := p.list(findings); err != nil {
				return err
			}
			if len(findings) > 0 && findings[0].Severity == "error" {
				return errors.New("there are errors in the mesh")
			}
			return nil
		},
	}
	addOutput(c, &f, nil)
	return c
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/fabric"
)

// Section is a group of fields under a title.
type Section struct {
	Title  string // of the text form
	Key    string // of the JSON form
	Fields []Field
	// Rows are things of one kind that have fields of their own, under the name
	// RowsKey and their number.
	RowsKey string
	Rows    []Row
}

// Row is one of several things in a section.
type Row struct {
	ID     uint32
	Fields []Field
}

// Field is a name with a text or a number.
type Field struct {
	Name   string
	IsText bool
	Text   string
	Number uint64
}

func text(name, s string) Field { return Field{Name: name, IsText: true, Text: s} }

func macString(m [6]byte) string { return net.HardwareAddr(m[:]).String() }

func number[T int | uint32 | uint64](name string, v T) Field {
	return Field{Name: name, Number: uint64(v)}
}

func yesNo(name string, v bool) Field {
	if v {
		return text(name, "yes")
	}
	return text(name, "no")
}

// Sections are the snapshot's fields in the order they are printed. A field
// that counts is there whether or not it is zero.
func (s *Snapshot) Sections() []Section {
	return []Section{
		{Title: "Instance", Key: "instance", Fields: s.instance()},
		{Title: "Device Statistics", Key: "device", Fields: s.device()},
		{Title: "LIF Statistics", Key: "lif", Fields: block(s.LIF[:], abi.LIFStatNames[:])},
		{Title: "Port Statistics", Key: "port", Fields: block(s.Port[:], abi.PortStatNames[:])},
		{Title: "RDMA Statistics", Key: "rdma", Fields: counters(s.RDMA)},
		s.perQP(),
		s.mesh(),
		{Title: "VFIO-User Statistics", Key: "vfio_user", Fields: s.vfioUser()},
		{Title: "Process Statistics", Key: "process", Fields: s.process()},
	}
}

func (s *Snapshot) instance() []Field {
	i := &s.Identity
	instance := ""
	if i.Instance != [16]byte{} {
		instance = hex.EncodeToString(i.Instance[:])
	}
	return []Field{
		text("name", i.Name), number("node", i.Node), text("instance", instance),
		number("incarnation", i.Incarnation), text("version", i.Version),
		text("time", s.Time.UTC().Format(time.RFC3339Nano)),
		text("socket", i.Socket), text("mac", macString(i.MAC)),
		text("lif", i.LIF), text("fabric", i.Fabric), text("manager", i.Manager), text("listen", i.Listen),
		text("nic_profile", i.Profile), text("nic_profile_hash", fmt.Sprintf("%016x", i.ProfileHash)),
		number("stats_interval_ms", uint64(i.Interval/time.Millisecond)),
	}
}

func (s *Snapshot) device() []Field {
	d := &s.Device
	return append([]Field{
		yesNo("guest_attached", d.Attached), yesNo("link_up", d.Link),
		number("event_queues", d.Objects.EQs), number("completion_queues", d.Objects.CQs),
		number("queue_pairs", d.Objects.QPs), number("memory_regions", d.Objects.MRs),
		number("address_handles", d.Objects.AHs),
	}, counters(d.Counters)...)
}

// block shows the words of a block that have a name.
func block(words []uint64, names []string) []Field {
	f := make([]Field, 0, len(words))
	for i, v := range words {
		if names[i] != "" {
			f = append(f, number(names[i], v))
		}
	}
	return f
}

func counters(list []Counter) []Field {
	f := make([]Field, len(list))
	for i, c := range list {
		f[i] = number(c.Name, c.Value)
	}
	return f
}

func (s *Snapshot) perQP() Section {
	r := Section{
		Title: "Per-QP Statistics", Key: "per_qp", RowsKey: "qp",
		Fields: []Field{number("alive", s.Device.Objects.QPs), number("shown", len(s.QPs))},
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		f := []Field{text("type", q.Type), text("state", q.State), number("peer_qp", q.Peer)}
		r.Rows = append(r.Rows, Row{q.ID, append(f, counters(q.Counters)...)})
	}
	return r
}

func (s *Snapshot) mesh() Section {
	states, total := s.Totals()
	r := Section{Title: "Mesh Statistics", Key: "mesh", RowsKey: "peer", Fields: counters(s.Carrier)}
	for st, n := range states {
		r.Fields = append(r.Fields, number("peers_"+fabric.PeerState(st).String(), n))
	}
	total.Each(func(name string, v uint64) {
		if name != "rtt_ns" { // of no use over all peers
			r.Fields = append(r.Fields, number(name, v))
		}
	})
	for i := range s.Peers {
		p := &s.Peers[i]
		f := []Field{text("state", p.State.String())}
		p.Each(func(name string, v uint64) { f = append(f, number(name, v)) })
		r.Rows = append(r.Rows, Row{p.Node, append(f, text("last_error", p.LastError))})
	}
	return r
}

// Totals adds up the links to other nodes: how many are in each state, and what
// they counted. The link to the own node is left out, as it crosses no wire.
func (s *Snapshot) Totals() (states [fabric.PeerStates]uint64, total fabric.PeerStats) {
	for i := range s.Peers {
		p := &s.Peers[i]
		if p.Node == s.Self {
			continue
		}
		if int(p.State) < len(states) {
			states[p.State]++
		}
		total.Add(p)
		total.Lanes += p.Lanes
	}
	return states, total
}

func (s *Snapshot) vfioUser() []Field {
	f := make([]Field, len(s.VFIOUser))
	for i, m := range s.VFIOUser {
		f[i] = number(m.Name, m.Value)
	}
	return f
}

func (s *Snapshot) process() []Field {
	p := &s.Process
	return []Field{
		number("pid", p.PID), text("started", p.Started.UTC().Format(time.RFC3339)),
		number("uptime_ms", uint64(max(s.Time.Sub(p.Started), 0)/time.Millisecond)),
		number("cpu_ms", uint64(p.CPU/time.Millisecond)), number("resident_bytes", p.Resident),
		number("open_files", p.OpenFiles), number("threads", p.Threads), number("goroutines", p.Goroutines),
		number("heap_bytes", p.Heap), number("gc_cycles", p.GCs),
	}
}

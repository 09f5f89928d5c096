// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

func macString(m [6]byte) string { return net.HardwareAddr(m[:]).String() }

// Sections are the snapshot's fields in the order they are printed. A field
// that counts is there whether or not it is zero.
func (s *Snapshot) Sections() []section.Section {
	return []section.Section{
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

func (s *Snapshot) instance() []section.Field {
	i := &s.Identity
	instance := ""
	if i.Instance != [16]byte{} {
		instance = hex.EncodeToString(i.Instance[:])
	}
	return []section.Field{
		section.TextField("name", i.Name), section.Number("node", i.Node), section.TextField("instance", instance),
		section.Number("incarnation", i.Incarnation), section.TextField("version", i.Version),
		section.TextField("time", s.Time.UTC().Format(time.RFC3339Nano)),
		section.TextField("socket", i.Socket), section.TextField("mac", macString(i.MAC)),
		section.TextField("lif", i.LIF), section.TextField("fabric", i.Fabric), section.TextField("manager", i.Manager), section.TextField("listen", i.Listen),
		section.TextField("nic_profile", i.Profile), section.TextField("nic_profile_hash", fmt.Sprintf("%016x", i.ProfileHash)),
		section.Number("stats_interval_ms", uint64(i.Interval/time.Millisecond)),
	}
}

func (s *Snapshot) device() []section.Field {
	d := &s.Device
	return append([]section.Field{
		section.YesNo("guest_attached", d.Attached), section.YesNo("link_up", d.Link),
		section.Number("event_queues", d.Objects.EQs), section.Number("completion_queues", d.Objects.CQs),
		section.Number("queue_pairs", d.Objects.QPs), section.Number("memory_regions", d.Objects.MRs),
		section.Number("address_handles", d.Objects.AHs),
	}, counters(d.Counters)...)
}

// block shows the words of a block that have a name.
func block(words []uint64, names []string) []section.Field {
	f := make([]section.Field, 0, len(words))
	for i, v := range words {
		if names[i] != "" {
			f = append(f, section.Number(names[i], v))
		}
	}
	return f
}

func counters(list []Counter) []section.Field {
	f := make([]section.Field, len(list))
	for i, c := range list {
		f[i] = section.Number(c.Name, c.Value)
	}
	return f
}

func (s *Snapshot) perQP() section.Section {
	r := section.Section{
		Title: "Per-QP Statistics", Key: "per_qp", RowsKey: "qp",
		Fields: []section.Field{section.Number("alive", s.Device.Objects.QPs), section.Number("shown", len(s.QPs))},
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		f := []section.Field{section.TextField("type", q.Type), section.TextField("state", q.State), section.Number("peer_qp", q.Peer)}
		r.Rows = append(r.Rows, section.Row{ID: q.ID, Fields: append(f, counters(q.Counters)...)})
	}
	return r
}

func (s *Snapshot) mesh() section.Section {
	states, total := s.Totals()
	r := section.Section{Title: "Mesh Statistics", Key: "mesh", RowsKey: "peer", Fields: counters(s.Carrier)}
	for st, n := range states {
		r.Fields = append(r.Fields, section.Number("peers_"+fabric.PeerState(st).String(), n))
	}
	total.Each(func(name string, v uint64) {
		if name != "rtt_ns" { // of no use over all peers
			r.Fields = append(r.Fields, section.Number(name, v))
		}
	})
	for i := range s.Peers {
		p := &s.Peers[i]
		f := []section.Field{section.TextField("state", p.State.String())}
		p.Each(func(name string, v uint64) { f = append(f, section.Number(name, v)) })
		r.Rows = append(r.Rows, section.Row{ID: p.Node, Fields: append(f, section.TextField("last_error", p.LastError))})
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

func (s *Snapshot) vfioUser() []section.Field {
	f := make([]section.Field, len(s.VFIOUser))
	for i, m := range s.VFIOUser {
		f[i] = section.Number(m.Name, m.Value)
	}
	return f
}

func (s *Snapshot) process() []section.Field {
	p := &s.Process
	return []section.Field{
		section.Number("pid", p.PID), section.TextField("started", p.Started.UTC().Format(time.RFC3339)),
		section.Number("uptime_ms", uint64(max(s.Time.Sub(p.Started), 0)/time.Millisecond)),
		section.Number("cpu_ms", uint64(p.CPU/time.Millisecond)), section.Number("resident_bytes", p.Resident),
		section.Number("open_files", p.OpenFiles), section.Number("threads", p.Threads), section.Number("goroutines", p.Goroutines),
		section.Number("heap_bytes", p.Heap), section.Number("gc_cycles", p.GCs),
	}
}

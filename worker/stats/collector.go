// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/fabric"
)

// Collector gives a Source to Prometheus. Counters of one kind are one metric
// with the counter's name as a label: that of a LIF or port counter is the one
// in ionic_if.h, that of an RDMA counter the one the guest's hw_counters have.
type Collector struct {
	Source *Source
	QPs    int // queue pairs to have series of their own
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ernic_"+name, help, labels, nil)
}

// Metrics. Those whose name ends in _total are counters, the others gauges.
var (
	workerInfo = desc("worker_info", "Which worker this is; always 1.",
		"name", "node", "mac", "lif", "fabric", "nic_profile", "nic_profile_hash", "version")
	guestAttached = desc("guest_attached", "Whether a guest is attached.")
	linkUp        = desc("lif_link_up", "Whether the LIF has a carrier.")
	deviceStats   = desc("device_stats_total", "Counters of the NIC beside its frames.", "counter")
	lifCounter    = desc("lif_counter_total", "Counters of struct ionic_lif_stats, as the guest reads them.", "counter")
	portStats     = desc("port_stats_total", "Counters of struct ionic_port_stats, as the guest reads them.", "counter")
	rdmaStats     = desc("rdma_stats_total", "RDMA counters over all queue pairs, those that are gone included.", "counter")
	rdmaObjects   = desc("rdma_objects", "RDMA objects the guest's driver has made.", "type")
	qpInfo        = desc("qp_info", "A living queue pair; always 1.", "qp", "type", "state", "peer_qp")
	qpStats       = desc("qp_stats_total", "RDMA counters of one queue pair.", "qp", "counter")

	carrierStats = desc("carrier_stats_total", "What became of packets and addresses between RDMA and the mesh.", "counter")
	meshPeers    = desc("mesh_peers", "Other nodes that a link was asked for, by its state.", "state")
	meshStats    = desc("mesh_stats_total", "Counters of the links to all other nodes.", "counter")
	meshLanes    = desc("mesh_lanes", "Connections to all other nodes.")
	meshQueued   = desc("mesh_queued_bytes", "What waits to be sent to all other nodes.")

	peerFrames     = desc("mesh_peer_frames_total", "Frames exchanged with a node; the own one is the loopback.", "peer", "direction")
	peerBytes      = desc("mesh_peer_bytes_total", "Transport bytes exchanged with a node.", "peer", "direction")
	peerDrops      = desc("mesh_peer_drops_total", "Frames to or from a node that were lost.", "peer")
	peerReconnects = desc("mesh_peer_reconnects_total", "Connections to a node that came up again.", "peer")
	peerLanes      = desc("mesh_peer_lanes", "Connections to a node.", "peer")
	peerQueued     = desc("mesh_peer_queued_bytes", "What waits to be sent to a node.", "peer")
	peerRTT        = desc("mesh_peer_rtt_seconds", "Last round trip to a node.", "peer")

	vfioUserStats = desc("vfio_user_stats_total", "Counters of the vfio-user server.", "counter")
	memoryWindows = desc("guest_memory_windows", "Ranges of guest memory the device can reach.")
	memoryFiles   = desc("guest_memory_files", "Files of guest memory that are mapped.")
	memoryBytes   = desc("guest_memory_bytes", "Size of the files of guest memory that are mapped.")
)

var all = []*prometheus.Desc{
	workerInfo, guestAttached, linkUp, deviceStats, lifCounter, portStats, rdmaStats, rdmaObjects, qpInfo, qpStats,
	carrierStats, meshPeers, meshStats, meshLanes, meshQueued,
	peerFrames, peerBytes, peerDrops, peerReconnects, peerLanes, peerQueued, peerRTT,
	vfioUserStats, memoryWindows, memoryFiles, memoryBytes,
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.Source.Take(c.QPs)
	e := emitter{ch}
	e.identity(&s.Identity)
	e.device(&s.Device)
	e.block(lifCounter, s.LIF[:], abi.LIFStatNames[:])
	e.block(portStats, s.Port[:], abi.PortStatNames[:])
	e.counters(rdmaStats, s.RDMA)
	e.qps(s.QPs)
	e.counters(carrierStats, s.Carrier)
	e.mesh(s)
	e.vfioUser(s)
}

type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counters(d *prometheus.Desc, list []Counter) {
	for _, c := range list {
		e.counter(d, c.Value, c.Name)
	}
}

func (e emitter) block(d *prometheus.Desc, words []uint64, names []string) {
	for i, v := range words {
		if names[i] != "" {
			e.counter(d, v, names[i])
		}
	}
}

func (e emitter) identity(i *Identity) {
	e.gauge(workerInfo, 1, strings.ToValidUTF8(i.Name, "?"), id(i.Node), macString(i.MAC), i.LIF, i.Fabric,
		strings.ToValidUTF8(i.Profile, "?"), fmt.Sprintf("%016x", i.ProfileHash), i.Version)
}

func (e emitter) device(d *Device) {
	e.gauge(guestAttached, truth(d.Attached))
	e.gauge(linkUp, truth(d.Link))
	e.counters(deviceStats, d.Counters)
	for _, o := range []struct {
		name string
		n    int
	}{
		{"event_queue", d.Objects.EQs}, {"completion_queue", d.Objects.CQs}, {"queue_pair", d.Objects.QPs},
		{"memory_region", d.Objects.MRs}, {"address_handle", d.Objects.AHs},
	} {
		e.gauge(rdmaObjects, float64(o.n), o.name)
	}
}

func (e emitter) qps(list []QP) {
	for i := range list {
		q := &list[i]
		name := id(q.ID)
		e.gauge(qpInfo, 1, name, q.Type, q.State, id(q.Peer))
		for _, c := range q.Counters {
			e.counter(qpStats, c.Value, name, c.Name)
		}
	}
}

// levels are the values of fabric.PeerStats that can go down.
var levels = map[string]bool{"lanes": true, "queued_frames": true, "queued_bytes": true, "rtt_ns": true}

func (e emitter) mesh(s *Snapshot) {
	states, total := s.Totals()
	for st, n := range states {
		e.gauge(meshPeers, float64(n), fabric.PeerState(st).String())
	}
	total.Each(func(name string, v uint64) {
		if !levels[name] {
			e.counter(meshStats, v, name)
		}
	})
	e.gauge(meshLanes, float64(total.Lanes))
	e.gauge(meshQueued, float64(total.QueuedBytes))
	for i := range s.Peers {
		p := &s.Peers[i]
		name := id(p.Node)
		e.counter(peerFrames, p.TxFrames, name, "tx")
		e.counter(peerFrames, p.RxFrames, name, "rx")
		e.counter(peerBytes, p.TxBytes, name, "tx")
		e.counter(peerBytes, p.RxBytes, name, "rx")
		drops := uint64(0)
		for _, n := range p.Drops {
			drops += n
		}
		e.counter(peerDrops, drops, name)
		e.counter(peerReconnects, p.Reconnects, name)
		e.gauge(peerLanes, float64(p.Lanes), name)
		e.gauge(peerQueued, float64(p.QueuedBytes), name)
		e.gauge(peerRTT, p.RTT.Seconds(), name)
	}
}

func (e emitter) vfioUser(s *Snapshot) {
	for _, m := range s.VFIOUser {
		switch m.Name {
		case "memory_windows":
			e.gauge(memoryWindows, float64(m.Value))
		case "memory_files":
			e.gauge(memoryFiles, float64(m.Value))
		case "memory_file_bytes":
			e.gauge(memoryBytes, float64(m.Value))
		default:
			e.counter(vfioUserStats, m.Value, m.Name)
		}
	}
}

func id(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

// Registry returns a registry with all that a worker is asked for: c, and the
// metrics of the process and the Go runtime.
func (c *Collector) Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return r
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"time"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/fabric"
)

// MaxQPs is the most queue pairs a snapshot shows one by one.
const MaxQPs = 4096

// Source is where a snapshot comes from. Functions may be nil, which leaves out
// what they would tell.
type Source struct {
	Identity func() Identity
	Attached func() bool // whether a guest is attached
	NIC      *ionic.NIC
	Engine   *rdma.Engine
	Server   *vfiouser.Server
	// Carrier calls f for the counters between the RDMA engine and the fabric.
	Carrier func(f func(name string, value uint64))
	// Self is the node id of the worker, 0 before it has one.
	Self func() uint32
	// Peers returns the counters of all links, that to the own node included.
	Peers func() []fabric.PeerStats
}

// Identity says which worker a snapshot is of.
type Identity struct {
	Name        string
	Node        uint32 // 0: none yet
	Instance    [16]byte
	Incarnation uint64
	Version     string
	Socket      string
	MAC         [6]byte
	LIF         string // none or what carries its frames
	Fabric      string
	Manager     string // "" without a mesh
	Listen      string // of the fabric; "" without a mesh
	Profile     string // chain of layers
	ProfileHash uint64
	Interval    time.Duration // of the statistics
}

// Counter is a named number that only grows, until a device reset takes it back
// to zero.
type Counter struct {
	Name  string
	Value uint64
}

// Device is the NIC beside its frame counters.
type Device struct {
	Attached bool // a guest is attached
	Link     bool // the LIF has a carrier
	Objects  rdma.Objects
	Counters []Counter
}

// QP is one queue pair.
type QP struct {
	ID       uint32
	Type     string
	State    string
	Peer     uint32 // QP number of the other side; 0 unless connected
	Counters []Counter
}

// Snapshot is every counter of a worker at one time.
type Snapshot struct {
	Time     time.Time
	Identity Identity
	Device   Device
	LIF      [abi.NumLIFStats]uint64  // struct ionic_lif_stats
	Port     [abi.NumPortStats]uint64 // struct ionic_port_stats
	RDMA     []Counter                // of all QPs, those that are gone included
	QPs      []QP                     // as many as were asked for
	Carrier  []Counter
	Self     uint32
	Peers    []fabric.PeerStats // links that were ever asked for
	VFIOUser []vfiouser.Metric
	Process  Process
}

// Take reads all counters now, and those of up to qps queue pairs one by one.
func (s *Source) Take(qps int) *Snapshot {
	v := &Snapshot{Time: time.Now()}
	if s.Identity != nil {
		v.Identity = s.Identity()
	}
	if s.Attached != nil {
		v.Device.Attached = s.Attached()
	}
	if s.NIC != nil {
		lif := s.NIC.LIF()
		v.LIF, v.Port = lif.Stats()
		v.Device.Link = lif.Link()
		v.Device.Counters = []Counter{
			{"interrupts", s.NIC.Bank().Asserts()},
			{"unknown_doorbells", s.NIC.StrangeDoorbells()},
			{"refused_commands", lif.CommandErrors()},
		}
	}
	if s.Engine != nil {
		v.Device.Objects = s.Engine.Objects()
		s.Engine.Counters(appender(&v.RDMA))
		v.QPs = takeQPs(s.Engine, min(qps, MaxQPs))
	}
	if s.Carrier != nil {
		s.Carrier(appender(&v.Carrier))
	}
	if s.Self != nil {
		v.Self = s.Self()
	}
	if s.Peers != nil {
		for _, p := range s.Peers() {
			if p.State != fabric.PeerIdle || p.TxFrames|p.RxFrames|p.ConnectFailures != 0 {
				v.Peers = append(v.Peers, p)
			}
		}
	}
	if s.Server != nil {
		v.VFIOUser = s.Server.Metrics()
	}
	v.Process.take()
	return v
}

func takeQPs(e *rdma.Engine, limit int) []QP {
	if limit <= 0 {
		return nil
	}
	var list []QP
	e.QueuePairs(func(q *rdma.QueuePair) bool {
		v := QP{ID: q.ID, Type: q.Type.String(), State: q.State.String(), Peer: q.Peer}
		q.Counters(appender(&v.Counters))
		list = append(list, v)
		return len(list) < limit
	})
	return list
}

func appender(list *[]Counter) func(string, uint64) {
	return func(name string, value uint64) { *list = append(*list, Counter{name, value}) }
}

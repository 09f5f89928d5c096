// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// Report is what a worker says of itself.
type Report struct {
	GuestAttached bool
	// Draining is set when the worker ends with its guest.
	Draining bool
	// Carrier is set when the guest's Ethernet has one, LinkDown when an operator has taken the link down.
	Carrier, LinkDown bool
	// MemoryShared and MemoryPrivate are bytes of the guest's memory that the worker does and does not share with it.
	MemoryShared, MemoryPrivate uint64
	// Status is the host:port on which the worker answers operators; "": nowhere.
	Status string
	// Interface carries the guest's Ethernet frames; nil: none.
	Interface *Interface
	// Links are those to peers that are up or wanted.
	Links []Link
}

// Interface is the state of an interface of the host.
type Interface struct {
	Name        string
	Present, Up bool
	MTU         int
}

// Link is a link to a peer.
type Link struct {
	Peer                        uint32
	State                       ernicv1.LinkState
	Lanes                       int
	RTT                         time.Duration // zero: not known
	QueuedBytes                 uint64
	Reconnects, ConnectFailures uint64
	LastError                   string
	Relayed                     bool // by way of the manager
}

// maxReportedLinks bounds a report.
const maxReportedLinks = 1024

// report asks the worker what to say of itself.
func (s *Session) report() *ernicv1.NodeReport {
	r := s.cfg.Report()
	m := &ernicv1.NodeReport{
		GuestAttached: r.GuestAttached,
		Draining:      r.Draining,
		Carrier:       r.Carrier,
		LinkDown:      r.LinkDown,
		MemoryShared:  r.MemoryShared,
		MemoryPrivate: r.MemoryPrivate,
		StatusAddress: r.Status,
		MeshRevision:  s.mesh.Load().Revision,
		Clock:         timestamppb.Now(),
		Rtt:           durationOf(time.Duration(s.rtt.Load())),
	}
	if i := r.Interface; i != nil {
		m.Interface = &ernicv1.InterfaceReport{Name: i.Name, Present: i.Present, Up: i.Up, Mtu: uint32(max(0, i.MTU))}
	}
	for i := range r.Links {
		l := &r.Links[i]
		if l.State == ernicv1.LinkState_LINK_STATE_UP {
			m.Links++
		}
		if len(m.LinkReports) < maxReportedLinks {
			m.LinkReports = append(m.LinkReports, &ernicv1.LinkReport{
				PeerId: l.Peer, State: l.State, Lanes: uint32(max(0, l.Lanes)), Rtt: durationOf(l.RTT), QueuedBytes: l.QueuedBytes,
				Reconnects: l.Reconnects, ConnectFailures: l.ConnectFailures, LastError: l.LastError, Relayed: l.Relayed,
			})
		}
	}
	return m
}

// durationOf leaves one that is not known unset.
func durationOf(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// drain hands on that the worker is to end with its guest.
func (s *Session) drain(reason string) {
	s.cfg.Log.Warn().Str("reason", reason).Msg("this worker was asked to end when its guest leaves")
	if h := s.cfg.Handlers.Drain; h != nil {
		h(reason)
	}
	s.ReportChanged()
}

// setLink hands on what the link of the NIC is to be.
func (s *Session) setLink(up bool, reason string) {
	text := "this worker was asked to take the guest's Ethernet link down"
	if up {
		text = "this worker was asked to leave the guest's Ethernet link to its wire"
	}
	s.cfg.Log.Warn().Str("reason", reason).Msg(text)
	if h := s.cfg.Handlers.SetLink; h != nil {
		h(up)
	}
	s.ReportChanged()
}

// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// maxUpdatePart is the most nodes, routes and removals in one message; larger updates are cut.
const maxUpdatePart = 4096

func encodeWelcome(w core.Welcome, cfg *Config) *ernicv1.SessionResponse {
	m := &ernicv1.Registered{
		NodeId:         uint32(w.Node),
		Protocol:       w.Protocol,
		HealthInterval: durationpb.New(cfg.Core.HealthInterval),
		Version:        cfg.Version,
		MaxClaims:      uint32(cfg.Core.MaxClaims),
		GossipAddress:  cfg.GossipAddress,
		Identity:       w.Identity,
	}
	for i := range w.Claims {
		c := &w.Claims[i]
		m.Claims = append(m.Claims, &ernicv1.Claim{Gid: c.GID[:], Source: ernicv1.ClaimSource(c.Source)})
	}
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_Registered{Registered: m}}
}

func encodeClaimAck(a core.ClaimAck) *ernicv1.SessionResponse {
	m := &ernicv1.ClaimAck{Sequence: a.Sequence}
	for i := range a.Rejected {
		r := &a.Rejected[i]
		m.Rejected = append(m.Rejected, &ernicv1.RejectedClaim{Gid: r.GID[:], Reason: r.Reason})
	}
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_ClaimAck{ClaimAck: m}}
}

func encodeRelayOffer(token [16]byte, from core.NodeID) *ernicv1.SessionResponse {
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_Relay{
		Relay: &ernicv1.RelayOffer{Token: token[:], From: uint32(from)},
	}}
}

func encodeProbe(p core.Probe) *ernicv1.SessionResponse {
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_Probe{Probe: &ernicv1.Probe{Sequence: p.Sequence}}}
}

func encodeDrain(d core.Drain) *ernicv1.SessionResponse {
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_Drain{Drain: &ernicv1.Drain{Reason: d.Reason}}}
}

func encodeSetLink(l core.SetLink) *ernicv1.SessionResponse {
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_SetLink{
		SetLink: &ernicv1.SetLink{Up: l.Up, Reason: l.Reason},
	}}
}

func encodeHeartbeatAck(a core.HeartbeatAck) *ernicv1.SessionResponse {
	return &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_HeartbeatAck{
		HeartbeatAck: &ernicv1.HeartbeatAck{Sequence: a.Sequence},
	}}
}

// statusCodes are the codes of refusals by reason.
var statusCodes = map[core.Reason]codes.Code{
	core.ReasonProtocol:     codes.FailedPrecondition,
	core.ReasonMalformed:    codes.InvalidArgument,
	core.ReasonIDTaken:      codes.AlreadyExists,
	core.ReasonEvicted:      codes.NotFound,
	core.ReasonSessionAlive: codes.AlreadyExists,
	core.ReasonIdentity:     codes.PermissionDenied,
	core.ReasonSilent:       codes.DeadlineExceeded,
	core.ReasonReplaced:     codes.Aborted,
	core.ReasonShutdown:     codes.Unavailable,
}

// encodeEnd returns the status that ends a session, nil for one that ended as it should.
func encodeEnd(e core.End, cfg core.Config) error {
	if e.Reason == 0 {
		return nil
	}
	st := status.New(statusCodes[e.Reason], e.Text)
	with, err := st.WithDetails(&ernicv1.Refusal{
		Reason:   ernicv1.RefusalReason(e.Reason),
		Protocol: &ernicv1.VersionRange{Min: cfg.Versions.Min, Max: cfg.Versions.Max},
		NodeId:   uint32(e.Node),
	})
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// encodeUpdate returns the messages that carry an update, of which all but the last have more set.
func encodeUpdate(u core.Update) []*ernicv1.SessionResponse {
	var parts []*ernicv1.SessionResponse
	var part *ernicv1.MeshUpdate
	left := 0
	// room returns the part to append one more item to.
	room := func() *ernicv1.MeshUpdate {
		if part == nil || left == 0 {
			if part != nil {
				part.More = true
			}
			history := u.History
			part = &ernicv1.MeshUpdate{
				To:       &ernicv1.MeshPoint{History: history[:], Revision: u.Revision},
				Snapshot: u.Snapshot,
			}
			left = maxUpdatePart
			parts = append(parts, &ernicv1.SessionResponse{Message: &ernicv1.SessionResponse_Mesh{Mesh: part}})
		}
		left--
		return part
	}
	for i := range u.Nodes {
		p := room()
		p.Nodes = append(p.Nodes, encodeViewNode(&u.Nodes[i]))
	}
	for _, id := range u.RemovedNodes {
		p := room()
		p.RemovedNodeIds = append(p.RemovedNodeIds, uint32(id))
	}
	for i := range u.Routes {
		p := room()
		p.Routes = append(p.Routes, &ernicv1.Route{Gid: u.Routes[i].GID[:], NodeId: uint32(u.Routes[i].Node)})
	}
	for i := range u.RemovedGIDs {
		p := room()
		p.RemovedGids = append(p.RemovedGids, u.RemovedGIDs[i][:])
	}
	if part == nil {
		room()
	}
	return parts
}

func encodeViewNode(n *core.ViewNode) *ernicv1.MeshNode {
	return &ernicv1.MeshNode{
		NodeId:      uint32(n.ID),
		Name:        n.Name,
		Address:     n.Addr,
		State:       ernicv1.NodeState(n.State),
		Instance:    n.Instance[:],
		Incarnation: n.Incarnation,
		Identity:    n.Identity,
	}
}

// encodeTime leaves a zero time unset.
func encodeTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func encodeNode(n *core.NodeInfo) *ernicv1.Node {
	m := &ernicv1.Node{
		NodeId:       uint32(n.ID),
		Role:         ernicv1.NodeRole_NODE_ROLE_WORKER,
		Name:         n.Name,
		Address:      n.Addr,
		State:        ernicv1.NodeState(n.State),
		SessionSince: encodeTime(n.SessionSince),
		LastHeard:    encodeTime(n.LastHeard),
		Incarnation:  n.Incarnation,
		Instance:     n.Instance[:],
		Version:      n.Version,
		Protocol:     n.Protocol,
		Reason:       n.Reason,
		Since:        encodeTime(n.Since),
		Claims:       uint32(n.Claims),
		Identity:     n.Identity,
	}
	if n.Reported {
		m.Report = encodeReport(&n.Report)
		if !n.Report.Clock.IsZero() {
			m.ClockSkew = durationpb.New(n.Skew)
		}
	}
	return m
}

func encodeReport(r *core.Report) *ernicv1.NodeReport {
	m := &ernicv1.NodeReport{
		GuestAttached: r.GuestAttached,
		Links:         r.LinksUp,
		MeshRevision:  r.MeshRevision,
		Draining:      r.Draining,
		Carrier:       r.Carrier,
		LinkDown:      r.LinkDown,
		MemoryShared:  r.MemoryShared,
		MemoryPrivate: r.MemoryPrivate,
		StatusAddress: r.Status,
		Clock:         encodeTime(r.Clock),
		Rtt:           encodeDuration(r.RTT),
	}
	if i := r.Interface; i.Name != "" {
		m.Interface = &ernicv1.InterfaceReport{Name: i.Name, Present: i.Present, Up: i.Up, Mtu: i.MTU}
	}
	for i := range r.Links {
		l := &r.Links[i]
		m.LinkReports = append(m.LinkReports, &ernicv1.LinkReport{
			PeerId: uint32(l.Peer), State: ernicv1.LinkState(l.State), Lanes: l.Lanes, Rtt: encodeDuration(l.RTT),
			QueuedBytes: l.QueuedBytes, Reconnects: l.Reconnects, ConnectFailures: l.ConnectFailures, LastError: l.LastError,
			Relayed: l.Relayed,
		})
	}
	return m
}

// encodeDuration leaves one that is zero unset.
func encodeDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func encodeCandidate(c Candidate) *ernicv1.ManagerInfo {
	return &ernicv1.ManagerInfo{
		Name: c.Name, Address: c.Address, Leads: c.Leads, Version: c.Version, Started: encodeTime(c.Started), Answers: c.Self,
	}
}

func encodeGid(c *core.ClaimRecord) *ernicv1.Gid {
	return &ernicv1.Gid{
		Gid:         c.GID[:],
		NodeId:      uint32(c.Node),
		Source:      ernicv1.ClaimSource(c.Source),
		State:       ernicv1.ClaimState(c.State),
		Since:       encodeTime(c.Since),
		Incarnation: c.Incarnation,
	}
}

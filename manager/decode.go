// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// Longest texts that a worker may send.
const (
	maxName    = 128
	maxAddress = 280 // a DNS name, a colon and a port
	maxVersion = 128
	// Longer ones are cut.
	maxInterface = 64
	maxLinks     = 1024
)

// decode turns a message of a worker into an event of its session. A nil event means that the message is of a kind this
// manager does not know, which newer workers may send and which is skipped.
func decode(session core.SessionID, m *ernicv1.SessionRequest) (core.Event, error) {
	switch m := m.GetMessage().(type) {
	case *ernicv1.SessionRequest_Register:
		return decodeRegister(session, m.Register)
	case *ernicv1.SessionRequest_Heartbeat:
		return decodeHeartbeat(session, m.Heartbeat), nil
	case *ernicv1.SessionRequest_Claims:
		return decodeClaims(session, m.Claims)
	case *ernicv1.SessionRequest_ProbeAnswer:
		return core.ProbeAnswer{Session: session, Sequence: m.ProbeAnswer.GetSequence()}, nil
	case *ernicv1.SessionRequest_Leave:
		return core.Leave{Session: session}, nil
	}
	return nil, nil
}

func decodeRegister(session core.SessionID, m *ernicv1.Register) (core.Event, error) {
	if len(m.GetInstance()) != 16 {
		return nil, fmt.Errorf("registration: the instance has %d bytes, want 16", len(m.GetInstance()))
	}
	ev := core.Register{
		Session:     session,
		Node:        core.NodeID(m.GetNodeId()),
		Instance:    core.Instance(m.GetInstance()),
		Incarnation: m.GetIncarnation(),
		Name:        m.GetName(),
		Addr:        m.GetAddress(),
		Version:     m.GetVersion(),
		Protocol:    core.Versions{Min: m.GetProtocol().GetMin(), Max: m.GetProtocol().GetMax()},
	}
	if ev.Instance == (core.Instance{}) {
		return nil, errors.New("registration: the instance is zero")
	}
	if err := checkText(ev.Name, maxName); err != nil {
		return nil, fmt.Errorf("registration: name: %w", err)
	}
	if err := checkText(ev.Version, maxVersion); err != nil {
		return nil, fmt.Errorf("registration: version: %w", err)
	}
	if err := checkAddress(ev.Addr); err != nil {
		return nil, fmt.Errorf("registration: address: %w", err)
	}
	return ev, nil
}

// checkText refuses what would garble a log or a terminal.
func checkText(s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(s), limit)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%q has a character that does not print", s)
		}
	}
	return nil
}

// checkAddress takes host:port as a peer can dial it, or nothing.
func checkAddress(s string) error {
	if s == "" {
		return nil
	}
	if err := checkText(s, maxAddress); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("%q is not host:port", s)
	}
	return nil
}

func decodeHeartbeat(session core.SessionID, m *ernicv1.Heartbeat) core.Event {
	return core.Heartbeat{
		Session:  session,
		Node:     core.NodeID(m.GetNodeId()),
		Sequence: m.GetSequence(),
		Report:   decodeReport(m.GetReport()),
	}
}

func decodeReport(r *ernicv1.NodeReport) core.Report {
	report := core.Report{
		GuestAttached: r.GetGuestAttached(),
		LinksUp:       r.GetLinks(),
		RTT:           max(0, r.GetRtt().AsDuration()),
		MeshRevision:  r.GetMeshRevision(),
		Draining:      r.GetDraining(),
		Carrier:       r.GetCarrier(),
		LinkDown:      r.GetLinkDown(),
		MemoryShared:  r.GetMemoryShared(),
		MemoryPrivate: r.GetMemoryPrivate(),
	}
	// An address that is none is no reason to lose a worker.
	if s := r.GetStatusAddress(); checkAddress(s) == nil {
		report.Status = s
	}
	if r.GetClock() != nil {
		report.Clock = r.GetClock().AsTime()
	}
	if i := r.GetInterface(); i != nil {
		report.Interface = core.Interface{
			Name: printable(i.GetName(), maxInterface), Present: i.GetPresent(), Up: i.GetUp(), MTU: i.GetMtu(),
		}
	}
	for _, l := range r.GetLinkReports()[:min(len(r.GetLinkReports()), maxLinks)] {
		report.Links = append(report.Links, core.Link{
			Peer: core.NodeID(l.GetPeerId()), State: uint8(min(max(l.GetState(), 0), 0xff)), Lanes: l.GetLanes(),
			RTT: max(0, l.GetRtt().AsDuration()), QueuedBytes: l.GetQueuedBytes(),
			Reconnects: l.GetReconnects(), ConnectFailures: l.GetConnectFailures(),
			LastError: printable(l.GetLastError(), maxReason), Relayed: l.GetRelayed(),
		})
	}
	return report
}

// printable makes a text of a worker fit for a terminal.
func printable(s string, limit int) string {
	s = strings.ToValidUTF8(s[:min(len(s), limit)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func decodeClaims(session core.SessionID, m *ernicv1.ClaimUpdate) (core.Event, error) {
	ev := core.ClaimUpdate{Session: session, Node: core.NodeID(m.GetNodeId()), Sequence: m.GetSequence()}
	for _, c := range m.GetClaim() {
		g, err := gid.FromBytes(c.GetGid())
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		// A source that this manager does not know becomes one that is not valid, and the claim is rejected by name.
		var source core.Source
		if s := c.GetSource(); s >= 0 && s <= 0xff {
			source = core.Source(s)
		}
		ev.Claims = append(ev.Claims, core.Claim{GID: g, Source: source})
	}
	for _, b := range m.GetRelease() {
		g, err := gid.FromBytes(b)
		if err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
		ev.Release = append(ev.Release, g)
	}
	return ev, nil
}

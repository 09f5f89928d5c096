// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ernic-dev/ernic/proto/gid"
)

// NodeID names a member of the mesh.
type NodeID uint32

const (
	// Manager is the node id of the manager.
	Manager NodeID = 0
	// AnyNode in a registration asks for the lowest free id.
	AnyNode NodeID = 0xFFFFFFFF
)

// SessionID names a session for as long as the shell lives; it is never used twice. Zero is no session.
type SessionID uint64

// Instance names a process of a worker: 16 bytes made when it starts.
type Instance [16]byte

func (i Instance) String() string { return hex.EncodeToString(i[:]) }

// History names a line of revisions. Revisions of different histories cannot be compared.
type History [16]byte

func (h History) String() string { return hex.EncodeToString(h[:]) }

// GID is a 16-byte address of an RDMA port.
type GID = gid.GID

// Versions is an inclusive range of protocol versions.
type Versions struct{ Min, Max uint32 }

func (v Versions) String() string { return fmt.Sprintf("%d to %d", v.Min, v.Max) }

// Common returns the highest version that both ranges have.
func (v Versions) Common(w Versions) (uint32, bool) {
	low, high := max(v.Min, w.Min), min(v.Max, w.Max)
	return high, low <= high
}

// Source says where a node learned that an address is its own. The values are those of ernic.v1.ClaimSource.
type Source uint8

// Sources of claims.
const (
	SourceMAC Source = iota + 1
	SourceConfig
	SourceARP
	SourceNDP
	SourceIP
	SourceAH
	SourceQP
)

var sourceNames = [...]string{"unknown", "mac", "config", "arp", "ndp", "ip", "ah", "qp"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source %d", uint8(s))
}

// Valid reports whether s is one of the sources above.
func (s Source) Valid() bool { return s >= SourceMAC && s <= SourceQP }

// NodeState is the manager's judgement of a node. The values are those of ernic.v1.NodeState.
type NodeState uint8

// States of a node.
const (
	Alive NodeState = iota + 1
	Suspect
	Partitioned
	Dead
	Evicted
)

var nodeStateNames = [...]string{"none", "alive", "suspect", "partitioned", "dead", "evicted"}

func (s NodeState) String() string {
	if int(s) < len(nodeStateNames) {
		return nodeStateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Counts reports whether the claims of a node in state s count.
func (s NodeState) Counts() bool { return s == Alive || s == Suspect || s == Partitioned }

// ClaimState says whether a claim counts. The values are those of ernic.v1.ClaimState.
type ClaimState uint8

// States of a claim.
const (
	Active ClaimState = iota + 1
	Withdrawn
	Conflict
)

var claimStateNames = [...]string{"none", "active", "withdrawn", "conflict"}

func (s ClaimState) String() string {
	if int(s) < len(claimStateNames) {
		return claimStateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Reason says why a session was refused or ended. The values are those of ernic.v1.RefusalReason.
type Reason uint8

// Reasons for the end of a session.
const (
	ReasonProtocol Reason = iota + 1
	ReasonMalformed
	ReasonIDTaken
	ReasonEvicted
	ReasonSessionAlive
	ReasonIdentity
	ReasonSilent
	ReasonReplaced
	ReasonShutdown
)

var reasonNames = [...]string{
	"none", "protocol", "malformed", "id-taken", "evicted", "session-alive", "identity", "silent", "replaced", "shutdown",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Report is what a worker says of itself with a heartbeat.
type Report struct {
	GuestAttached bool
	LinksUp       uint32
	RTT           time.Duration // zero before the first answered heartbeat
	MeshRevision  uint64
	// Clock is the worker's clock when it sent the report; zero: not told.
	Clock time.Time
	// Draining is set when the worker ends with its guest.
	Draining  bool
	Interface Interface
	// Carrier is set when the guest's Ethernet has one, LinkDown when an operator has taken the link down.
	Carrier, LinkDown bool
	// MemoryShared and MemoryPrivate are bytes of the guest's memory that the worker does and does not share with it.
	MemoryShared, MemoryPrivate uint64
	// Status is the host:port on which the worker answers operators; "": nowhere.
	Status string
	Links  []Link
}

// Interface is the state of the interface that carries a guest's Ethernet frames. Without a name there is none.
type Interface struct {
	Name        string
	Present, Up bool
	MTU         uint32
}

// Link is a link to a peer as one end sees it. States are those of ernic.v1.LinkState.
type Link struct {
	Peer                        NodeID
	State                       uint8
	Lanes                       uint32
	RTT                         time.Duration // zero: not known
	QueuedBytes                 uint64
	Reconnects, ConnectFailures uint64
	LastError                   string
	Relayed                     bool // by way of the manager
}

// Claim is one address that a node owns.
type Claim struct {
	GID    GID
	Source Source
}

// Rejected is a claim that was not entered, and why.
type Rejected struct {
	GID    GID
	Reason string
}

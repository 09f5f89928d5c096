// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"strings"
)

// Effect is something that the shell must do, after the changes of the same step are stored.
type Effect interface {
	effect()
	String() string
}

// Welcome accepts the registration of a session.
type Welcome struct {
	Session  SessionID
	Node     NodeID
	Protocol uint32
	Identity string  // holder of the certificate that the node belongs to
	Claims   []Claim // what the manager holds for the node, by GID
}

// End closes a session with a refusal. Events of the session that are still under way are ignored.
type End struct {
	Session SessionID
	Node    NodeID
	Reason  Reason
	Text    string
}

// Probe asks the worker of a session for a sign of life.
type Probe struct {
	Session  SessionID
	Sequence uint64
}

// HeartbeatAck answers a heartbeat.
type HeartbeatAck struct {
	Session  SessionID
	Sequence uint64
}

// Ask has the gossip of the mesh ask a process for a sign of life; the answer is an event Seen.
type Ask struct{ Instance Instance }

// Drain asks the worker of a session to end when its guest leaves.
type Drain struct {
	Session SessionID
	Reason  string
}

// SetLink asks the worker of a session to take the link of its NIC down, or to leave it to its wire again.
type SetLink struct {
	Session SessionID
	Up      bool
	Reason  string
}

// ClaimAck says that a ClaimUpdate was entered but for the claims it lists.
type ClaimAck struct {
	Session  SessionID
	Sequence uint64
	Rejected []Rejected
}

func (Welcome) effect()      {}
func (End) effect()          {}
func (Probe) effect()        {}
func (HeartbeatAck) effect() {}
func (ClaimAck) effect()     {}
func (Drain) effect()        {}
func (SetLink) effect()      {}
func (Ask) effect()          {}
func (Note) effect()         {}

func (e Welcome) String() string {
	held := make([]string, len(e.Claims))
	for i, c := range e.Claims {
		held[i] = c.GID.String()
	}
	s := fmt.Sprintf("s%d <- registered as node %d, protocol %d", e.Session, e.Node, e.Protocol)
	if len(held) > 0 {
		s += ", holds " + strings.Join(held, " ")
	}
	return s
}

func (e End) String() string { return fmt.Sprintf("s%d <- end (%s): %s", e.Session, e.Reason, e.Text) }

func (e Probe) String() string { return fmt.Sprintf("s%d <- probe %d", e.Session, e.Sequence) }

func (e Ask) String() string { return fmt.Sprintf("gossip <- is %s there?", e.Instance) }

func (e Drain) String() string { return fmt.Sprintf("s%d <- drain: %s", e.Session, e.Reason) }

func (e SetLink) String() string {
	return fmt.Sprintf("s%d <- %s: %s", e.Session, linkWish(e.Up), e.Reason)
}

func (e HeartbeatAck) String() string {
	return fmt.Sprintf("s%d <- heartbeat %d answered", e.Session, e.Sequence)
}

func (e ClaimAck) String() string {
	s := fmt.Sprintf("s%d <- claims %d stored", e.Session, e.Sequence)
	for _, r := range e.Rejected {
		s += fmt.Sprintf(", %s rejected: %s", r.GID, r.Reason)
	}
	return s
}

// NoteKind names what a note is about. The names are stable: logs and counters carry them.
type NoteKind uint8

// Kinds of notes.
const (
	NoteJoined NoteKind = iota
	NoteReturned
	NoteSuspect
	NoteRecovered
	NoteDead
	NotePartitioned
	NoteLeft
	NoteEvicted
	NoteForgotten
	NoteConflict
	NoteConflictOver
	NoteClaimed
	NoteReleased
	NoteOwner
	NoteDrain
	NoteLink
	NoteRejected
	NoteRefused
	NoteIdentity
	NoteStalled
	NoteKinds // how many there are
)

var noteNames = [NoteKinds]string{
	"node_joined", "node_returned", "node_suspect", "node_recovered", "node_dead", "node_partitioned", "node_left", "node_evicted",
	"node_forgotten", "gid_conflict", "gid_conflict_over", "gid_claimed", "gid_released", "gid_owner",
	"node_drain", "node_link", "gid_rejected", "session_refused", "identity_refused", "manager_stalled",
}

func (k NoteKind) String() string {
	if k < NoteKinds {
		return noteNames[k]
	}
	return fmt.Sprintf("note %d", uint8(k))
}

// Grave reports whether an operator should look at notes of this kind.
func (k NoteKind) Grave() bool {
	switch k {
	case NoteDead, NotePartitioned, NoteSuspect, NoteConflict, NoteRejected, NoteRefused, NoteIdentity, NoteStalled, NoteEvicted:
		return true
	}
	return false
}

// Note is one line of the audit trail: every change of ownership and every refusal makes one.
type Note struct {
	Kind NoteKind
	Node NodeID
	GID  GID // zero when the note is not about an address
	Text string
}

func (e Note) String() string { return fmt.Sprintf("%s: %s", e.Kind, e.Text) }

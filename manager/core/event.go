// SPDX-License-Identifier: Apache-2.0

package core

// Event is something that happened to the manager. Events of a session that has ended are ignored.
type Event interface{ event() }

// Register is the first message of a session.
type Register struct {
	Session     SessionID
	Node        NodeID // AnyNode, or the id that the worker already has
	Instance    Instance
	Incarnation uint64
	Name        string
	Addr        string // host:port of the node's FabricService; empty: cannot be dialled
	Version     string
	Protocol    Versions
	Identity    string // holder of the certificate of the connection; empty: the connection is plain
}

// Heartbeat shows that a node lives.
type Heartbeat struct {
	Session  SessionID
	Node     NodeID // as named in the message
	Sequence uint64
	Report   Report
}

// ClaimUpdate changes the set of addresses of a node.
type ClaimUpdate struct {
	Session  SessionID
	Node     NodeID // as named in the message
	Sequence uint64
	Claims   []Claim
	Release  []GID
}

// ProbeAnswer answers a Probe.
type ProbeAnswer struct {
	Session  SessionID
	Sequence uint64
}

// Leave ends the membership of a node that stops in good order.
type Leave struct{ Session SessionID }

// SessionEnded reports that the stream of a session is gone, from whichever side.
type SessionEnded struct {
	Session SessionID
	Cause   string
}

// Malformed reports a message that could not be decoded.
type Malformed struct {
	Session SessionID
	Cause   string
}

// Seen tells whether the gossip of the mesh sees a process.
type Seen struct {
	Instance Instance
	Alive    bool
}

// Tick lets the core judge the health of all nodes. It must come every Config.TickPeriod: a longer gap means that the
// manager itself stood still, and nobody is judged for the time it missed.
type Tick struct{}

func (Register) event()     {}
func (Heartbeat) event()    {}
func (ClaimUpdate) event()  {}
func (ProbeAnswer) event()  {}
func (Leave) event()        {}
func (SessionEnded) event() {}
func (Malformed) event()    {}
func (Seen) event()         {}
func (Tick) event()         {}

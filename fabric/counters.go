// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"time"
)

// DropReason says why a frame was lost. Names are stable: they appear as
// metric labels.
type DropReason uint8

// Drop reasons.
const (
	// DropQueueFull is a lossy frame that found no room.
	DropQueueFull DropReason = iota
	// DropInvalid is a frame outside the limits, refused by Send.
	DropInvalid
	// DropNoRoute is a frame for a node that is not known.
	DropNoRoute
	// DropLinkDown is a queued frame whose peer could not be reached.
	DropLinkDown
	// DropPeerGone is a queued frame whose peer left the directory.
	DropPeerGone
	// DropClosed is a frame met by a link that is closed.
	DropClosed
	// DropBadFrame is a received frame or message that does not decode.
	DropBadFrame
	// DropBadSource is a received frame whose source is not the peer.
	DropBadSource
	// DropBadDestination is a received frame for another node.
	DropBadDestination

	// DropReasons is the number of reasons.
	DropReasons = 9
)

var dropNames = [DropReasons]string{
	"queue_full", "invalid", "no_route", "link_down", "peer_gone", "closed",
	"bad_frame", "bad_source", "bad_destination",
}

// String is the stable name of the reason.
func (r DropReason) String() string {
	if int(r) < len(dropNames) {
		return dropNames[r]
	}
	return fmt.Sprintf("drop_reason(%d)", uint8(r))
}

// PeerState is the state of the link to one peer.
//
//	idle --demand--> connecting --hello--> up
//	                  ^     |              |
//	                  |     v failed       | last lane lost
//	                  +-- backoff <--------+
type PeerState uint8

// Peer states.
const (
	// PeerIdle means that nobody has asked for a link yet.
	PeerIdle PeerState = iota
	// PeerConnecting means that an attempt is under way.
	PeerConnecting
	// PeerUp means that at least one lane carries frames.
	PeerUp
	// PeerBackoff means that the last attempt failed and the next one waits.
	PeerBackoff

	// PeerStates is the number of states.
	PeerStates = 4
)

var peerStateNames = [PeerStates]string{"idle", "connecting", "up", "backoff"}

// String names the state in lower case.
func (s PeerState) String() string {
	if int(s) < len(peerStateNames) {
		return peerStateNames[s]
	}
	return fmt.Sprintf("peer_state(%d)", uint8(s))
}

// PeerStats is a snapshot of the counters of the link to one peer. Counters
// only grow during the life of the link object, over reconnects too.
type PeerStats struct {
	Node  uint32
	State PeerState
	// Lanes is the number of connections up now.
	Lanes int
	// TxFrames and TxBytes count frames handed to the connection; bytes are
	// transport bytes (header and payload).
	TxFrames, TxBytes uint64
	RxFrames, RxBytes uint64
	// TxMessages and RxMessages count wire messages: frames per message tells
	// how well batching works.
	TxMessages, RxMessages uint64
	// RxCopies counts received messages that had to be copied once more because
	// they did not arrive in adjacent memory.
	RxCopies uint64
	// QueuedFrames and QueuedBytes are what waits now.
	QueuedFrames, QueuedBytes uint64
	// Full counts refused sends of the reliable classes.
	Full uint64
	// Drops is indexed by DropReason.
	Drops [DropReasons]uint64
	// Reconnects counts lanes that came up again after the first time.
	Reconnects uint64
	// ConnectFailures counts attempts that did not bring a lane up.
	ConnectFailures uint64
	// RTT is the last measured round trip of a ping, 0 when unknown.
	RTT time.Duration
	// LastError is the text of the last failure, "" if there was none.
	LastError string
}

// Each calls fn for every numeric counter under its stable name.
func (s *PeerStats) Each(fn func(name string, value uint64)) {
	fn("lanes", uint64(s.Lanes))
	fn("tx_frames", s.TxFrames)
	fn("tx_bytes", s.TxBytes)
	fn("tx_messages", s.TxMessages)
	fn("rx_frames", s.RxFrames)
	fn("rx_bytes", s.RxBytes)
	fn("rx_messages", s.RxMessages)
	fn("rx_copies", s.RxCopies)
	fn("queued_frames", s.QueuedFrames)
	fn("queued_bytes", s.QueuedBytes)
	fn("full", s.Full)
	for r, n := range s.Drops {
		fn("drop_"+DropReason(r).String(), n)
	}
	fn("reconnects", s.Reconnects)
	fn("connect_failures", s.ConnectFailures)
	fn("rtt_ns", uint64(s.RTT))
}

// Add adds the counters of a part, such as one lane, to s. Identity, state and
// the number of lanes stay.
func (s *PeerStats) Add(p *PeerStats) {
	s.TxFrames += p.TxFrames
	s.TxBytes += p.TxBytes
	s.RxFrames += p.RxFrames
	s.RxBytes += p.RxBytes
	s.TxMessages += p.TxMessages
	s.RxMessages += p.RxMessages
	s.RxCopies += p.RxCopies
	s.QueuedFrames += p.QueuedFrames
	s.QueuedBytes += p.QueuedBytes
	s.Full += p.Full
	for r, n := range p.Drops {
		s.Drops[r] += n
	}
	s.Reconnects += p.Reconnects
	s.ConnectFailures += p.ConnectFailures
}

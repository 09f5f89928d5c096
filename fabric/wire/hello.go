// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HelloLen is the length of a hello in bytes.
const HelloLen = 64

// MaxLanes is the most connections between two nodes.
const MaxLanes = 16

const (
	helloMagic  = 0x45524e48 // "ERNH"
	helloFormat = 1
)

// Purpose says what the dialer of a connection wants.
type Purpose uint8

// Purposes.
const (
	// CarryLane makes the connection a lane of the link.
	CarryLane Purpose = 0
	// AskForLink asks the other node to dial: the speaker has frames for it but
	// is not the one who dials between the two. The connection carries nothing
	// else.
	AskForLink Purpose = 1

	purposes = 2
)

// Hello introduces a node. See the package comment for the layout.
type Hello struct {
	Purpose     Purpose
	Lane, Lanes uint8
	// VersionMin and VersionMax are the protocol versions the speaker can use.
	VersionMin, VersionMax uint16
	// Node is the speaker, To the node it believes to speak to.
	Node, To    uint32
	Instance    [16]byte
	Incarnation uint64
	Epoch       uint64
}

// Append appends the encoded hello to b.
func (h *Hello) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, helloMagic)
	b = append(b, helloFormat, byte(h.Purpose), h.Lane, h.Lanes)
	b = be.AppendUint16(b, h.VersionMin)
	b = be.AppendUint16(b, h.VersionMax)
	b = be.AppendUint32(b, h.Node)
	b = append(b, h.Instance[:]...)
	b = be.AppendUint64(b, h.Incarnation)
	b = be.AppendUint64(b, h.Epoch)
	b = be.AppendUint32(b, h.To)
	return append(b, make([]byte, 12)...)
}

// Decode fills in h from b, which a peer sent.
func (h *Hello) Decode(b []byte) error {
	if len(b) < HelloLen {
		return fmt.Errorf("wire: hello from the peer: %d bytes, need %d", len(b), HelloLen)
	}
	be := binary.BigEndian
	if be.Uint32(b) != helloMagic || b[4] != helloFormat {
		return fmt.Errorf("wire: hello from the peer: magic %#08x format %d: not an ernic worker", be.Uint32(b), b[4])
	}
	v := Hello{
		Purpose: Purpose(b[5]), Lane: b[6], Lanes: b[7],
		VersionMin: be.Uint16(b[8:]), VersionMax: be.Uint16(b[10:]),
		Node: be.Uint32(b[12:]), Instance: [16]byte(b[16:32]),
		Incarnation: be.Uint64(b[32:]), Epoch: be.Uint64(b[40:]), To: be.Uint32(b[48:]),
	}
	switch {
	case v.Purpose >= purposes:
		return fmt.Errorf("wire: hello from node %d: unknown purpose %d", v.Node, v.Purpose)
	case v.VersionMin > v.VersionMax:
		return fmt.Errorf("wire: hello from node %d: version range %d-%d is empty", v.Node, v.VersionMin, v.VersionMax)
	case v.Lanes == 0 || v.Lanes > MaxLanes || v.Lane >= v.Lanes:
		return fmt.Errorf("wire: hello from node %d: lane %d of %d, at most %d", v.Node, v.Lane, v.Lanes, MaxLanes)
	}
	*h = v
	return nil
}

// ErrVersion is in the chain of the error of a failed Negotiate.
var ErrVersion = errors.New("no common protocol version")

// Negotiate returns the highest version that both sides speak. The error names
// both ranges.
func Negotiate(own, peer *Hello) (uint8, error) {
	v := min(own.VersionMax, peer.VersionMax)
	if v < max(own.VersionMin, peer.VersionMin) {
		return 0, fmt.Errorf("wire: node %d speaks fabric protocol %d-%d, node %d speaks %d-%d: %w",
			own.Node, own.VersionMin, own.VersionMax, peer.Node, peer.VersionMin, peer.VersionMax, ErrVersion)
	}
	return uint8(v), nil
}

// SPDX-License-Identifier: Apache-2.0

// Package record turns what survives a manager into bytes and back. A value is JSON, so that an operator can read a state
// with the tools of the store that holds it.
//
//	node   {"instance": 32 hex digits, "incarnation": 5, "name": "host7", "addr": "10.0.0.7:7000", ..., "state": "alive"}
//	claim  {"source": "mac", "incarnation": 5, "made": RFC 3339, "state": "active", "since": RFC 3339}
package record

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ernic-dev/ernic/manager/core"
)

// nodeJSON is the value of a node. Names are part of the schema.
type nodeJSON struct {
	Instance    string    `json:"instance"`
	Incarnation uint64    `json:"incarnation"`
	Name        string    `json:"name,omitempty"`
	Addr        string    `json:"addr,omitempty"`
	Version     string    `json:"version,omitempty"`
	Protocol    uint32    `json:"protocol,omitempty"`
	Identity    string    `json:"identity,omitempty"`
	State       string    `json:"state"`
	Partitioned bool      `json:"partitioned,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Since       time.Time `json:"since"`
	Joined      time.Time `json:"joined"`
	Until       time.Time `json:"until,omitzero"`
}

// claimJSON is the value of a claim.
type claimJSON struct {
	Source      string    `json:"source"`
	Incarnation uint64    `json:"incarnation"`
	Made        time.Time `json:"made"`
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
}

// named finds the value that prints as a name.
func named[T fmt.Stringer](name string, values ...T) (T, bool) {
	for _, v := range values {
		if v.String() == name {
			return v, true
		}
	}
	var none T
	return none, false
}

// encode returns the JSON form of a value that is made of plain fields and always has one.
func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// EncodeNode returns the value of a node, which its id is no part of.
func EncodeNode(r *core.NodeRecord) []byte {
	return encode(nodeJSON{
		Instance: r.Instance.String(), Incarnation: r.Incarnation, Name: r.Name, Addr: r.Addr, Version: r.Version,
		Protocol: r.Protocol, Identity: r.Identity, State: r.State.String(), Partitioned: r.Partitioned, Reason: r.Reason,
		Since: r.Since.Round(0), Joined: r.Joined.Round(0), Until: r.Until.Round(0),
	})
}

// DecodeNode returns the node that a value belongs to, or says what is wrong with it.
func DecodeNode(id core.NodeID, value []byte) (core.NodeRecord, error) {
	if id == core.Manager || id == core.AnyNode {
		return core.NodeRecord{}, fmt.Errorf("a node has the id %d", id)
	}
	var j nodeJSON
	if err := json.Unmarshal(value, &j); err != nil {
		return core.NodeRecord{}, fmt.Errorf("node %d: %w", id, err)
	}
	instance, err := hex.DecodeString(j.Instance)
	if err != nil || len(instance) != 16 {
		return core.NodeRecord{}, fmt.Errorf("node %d: %q is no instance", id, j.Instance)
	}
	state, ok := named(j.State, core.Alive, core.Dead, core.Evicted)
	if !ok {
		return core.NodeRecord{}, fmt.Errorf("node %d: %q is no state", id, j.State)
	}
	return core.NodeRecord{
		ID: id, Instance: core.Instance(instance), Incarnation: j.Incarnation, Name: j.Name, Addr: j.Addr,
		Version: j.Version, Protocol: j.Protocol, Identity: j.Identity, State: state, Partitioned: j.Partitioned, Reason: j.Reason,
		Since: j.Since, Joined: j.Joined, Until: j.Until,
	}, nil
}

// EncodeClaim returns the value of a claim, which node and GID are no part of.
func EncodeClaim(r *core.ClaimRecord) []byte {
	return encode(claimJSON{
		Source: r.Source.String(), Incarnation: r.Incarnation, Made: r.Made.Round(0),
		State: r.State.String(), Since: r.Since.Round(0),
	})
}

// DecodeClaim returns the claim that a value belongs to, or says what is wrong with it.
func DecodeClaim(id core.NodeID, g core.GID, value []byte) (core.ClaimRecord, error) {
	var j claimJSON
	if err := json.Unmarshal(value, &j); err != nil {
		return core.ClaimRecord{}, fmt.Errorf("claim of node %d to %s: %w", id, g, err)
	}
	source, ok := named(j.Source, core.SourceMAC, core.SourceConfig, core.SourceARP, core.SourceNDP, core.SourceIP,
		core.SourceAH, core.SourceQP)
	if !ok {
		return core.ClaimRecord{}, fmt.Errorf("claim of node %d to %s: %q is no source", id, g, j.Source)
	}
	state, ok := named(j.State, core.Active, core.Withdrawn, core.Conflict)
	if !ok {
		return core.ClaimRecord{}, fmt.Errorf("claim of node %d to %s: %q is no state", id, g, j.State)
	}
	return core.ClaimRecord{
		Node: id, GID: g, Source: source, Incarnation: j.Incarnation, Made: j.Made, State: state, Since: j.Since,
	}, nil
}

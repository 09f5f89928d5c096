// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

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

func nodeKey(id core.NodeID) []byte { return binary.BigEndian.AppendUint32(nil, uint32(id)) }

func claimKey(id core.NodeID, g core.GID) []byte { return append(nodeKey(id), g[:]...) }

// put stores a value that is made of plain fields and always has a JSON form.
func put(b *bbolt.Bucket, key []byte, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

func encodeNode(r *core.NodeRecord) nodeJSON {
	return nodeJSON{
		Instance: r.Instance.String(), Incarnation: r.Incarnation, Name: r.Name, Addr: r.Addr, Version: r.Version,
		Protocol: r.Protocol, Identity: r.Identity, State: r.State.String(), Partitioned: r.Partitioned, Reason: r.Reason,
		Since: r.Since.Round(0), Joined: r.Joined.Round(0), Until: r.Until.Round(0),
	}
}

func decodeNode(key, value []byte) (core.NodeRecord, error) {
	if len(key) != 4 {
		return core.NodeRecord{}, fmt.Errorf("a node has the key %x", key)
	}
	id := core.NodeID(binary.BigEndian.Uint32(key))
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

func encodeClaim(r *core.ClaimRecord) claimJSON {
	return claimJSON{
		Source: r.Source.String(), Incarnation: r.Incarnation, Made: r.Made.Round(0),
		State: r.State.String(), Since: r.Since.Round(0),
	}
}

func decodeClaim(key, value []byte) (core.ClaimRecord, error) {
	if len(key) != 20 {
		return core.ClaimRecord{}, fmt.Errorf("a claim has the key %x", key)
	}
	id, g := core.NodeID(binary.BigEndian.Uint32(key)), core.GID(key[4:])
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

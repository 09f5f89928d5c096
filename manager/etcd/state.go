// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/record"
)

// Schema is the layout that this package writes. It reads no other.
const Schema = 1

// metaJSON is the value of meta.
type metaJSON struct {
	Schema   int    `json:"schema"`
	History  string `json:"history"`
	Revision uint64 `json:"revision"`
	Torn     bool   `json:"torn,omitempty"`
}

// DamagedError reports a state that is not what it should be. It is left as it is.
type DamagedError struct {
	Target Target
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the state at %s is damaged: %v; nothing was changed: restore it from a snapshot of etcd, or delete the keys "+
		"under %s to start with an empty mesh (workers that are running keep their ids and addresses)", e.Target, e.Err, e.Target.Prefix)
}

func (e *DamagedError) Unwrap() error { return e.Err }

func (c *Cluster) metaKey() string      { return c.cfg.Target.Prefix + "/meta" }
func (c *Cluster) nodesPrefix() string  { return c.cfg.Target.Prefix + "/nodes/" }
func (c *Cluster) claimsPrefix() string { return c.cfg.Target.Prefix + "/claims/" }

func (c *Cluster) nodeKey(id core.NodeID) string {
	return fmt.Sprintf("%s%08x", c.nodesPrefix(), uint32(id))
}

func (c *Cluster) claimKey(id core.NodeID, g core.GID) string {
	return fmt.Sprintf("%s%08x/%x", c.claimsPrefix(), uint32(id), g[:])
}

// parseNodeID reads 8 hexadecimal digits.
func parseNodeID(s string) (core.NodeID, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 8 {
		return 0, fmt.Errorf("%q is no node id of 8 hexadecimal digits", s)
	}
	return core.NodeID(n), nil
}

// decodeNode reads a key without its prefix, and its value.
func decodeNode(key string, value []byte) (core.NodeRecord, error) {
	id, err := parseNodeID(key)
	if err != nil {
		return core.NodeRecord{}, err
	}
	return record.DecodeNode(id, value)
}

// decodeClaim reads a key without its prefix, and its value.
func decodeClaim(key string, value []byte) (core.ClaimRecord, error) {
	first, second, _ := strings.Cut(key, "/")
	id, err := parseNodeID(first)
	if err != nil {
		return core.ClaimRecord{}, err
	}
	g, err := hex.DecodeString(second)
	if err != nil || len(g) != 16 {
		return core.ClaimRecord{}, fmt.Errorf("%q is no GID of 32 hexadecimal digits", second)
	}
	return record.DecodeClaim(id, core.GID(g), value)
}

// decodeMeta reads the value of meta.
func decodeMeta(raw []byte) (metaJSON, core.History, error) {
	var m metaJSON
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, core.History{}, fmt.Errorf("meta: %w", err)
	}
	h, err := hex.DecodeString(m.History)
	if err != nil || len(h) != 16 {
		return m, core.History{}, fmt.Errorf("meta: %q is no history of 32 hexadecimal digits", m.History)
	}
	return m, core.History(h), nil
}

func encodeMeta(h core.History, revision uint64, torn bool) string {
	// Plain fields always have a JSON form.
	raw, _ := json.Marshal(metaJSON{Schema: Schema, History: h.String(), Revision: revision, Torn: torn})
	return string(raw)
}

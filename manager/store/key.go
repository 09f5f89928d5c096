// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"fmt"

	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/record"
)

func nodeKey(id core.NodeID) []byte { return binary.BigEndian.AppendUint32(nil, uint32(id)) }

func claimKey(id core.NodeID, g core.GID) []byte { return append(nodeKey(id), g[:]...) }

func decodeNode(key, value []byte) (core.NodeRecord, error) {
	if len(key) != 4 {
		return core.NodeRecord{}, fmt.Errorf("a node has the key %x", key)
	}
	return record.DecodeNode(core.NodeID(binary.BigEndian.Uint32(key)), value)
}

func decodeClaim(key, value []byte) (core.ClaimRecord, error) {
	if len(key) != 20 {
		return core.ClaimRecord{}, fmt.Errorf("a claim has the key %x", key)
	}
	return record.DecodeClaim(core.NodeID(binary.BigEndian.Uint32(key)), core.GID(key[4:]), value)
}

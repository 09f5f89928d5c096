// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// point is a revision of a history.
type point struct {
	history  core.History
	revision uint64
}

// update leads from one point to another. A thousand workers that are told the same are sent the same bytes: making them
// for each would cost more than all else together.
type update struct {
	collect  sync.Once
	core     core.Update // what encode makes parts of; empty afterwards
	encode   sync.Once
	snapshot bool
	parts    []wireMessage // SessionResponses
}

// wireMessage is a message as it goes over the wire. It must not be changed.
type wireMessage []byte

// codec is that of protobuf, and takes wire messages as they are.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(wireMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// updateCache holds the updates that lead to one point by the point they start from. Most workers are at the same
// revision, and all that come anew start from none.
type updateCache struct {
	mu   sync.Mutex // guards what follows
	to   point
	from map[point]*update
}

// maxCachedUpdates bounds the starting points that are remembered.
const maxCachedUpdates = 64

// get returns the one update between two points, which nobody may have made yet.
func (c *updateCache) get(from, to point) *update {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.to != to || c.from == nil {
		c.to, c.from = to, make(map[point]*update)
	}
	u := c.from[from]
	if u == nil {
		if len(c.from) >= maxCachedUpdates {
			clear(c.from)
		}
		u = &update{}
		c.from[from] = u
	}
	return u
}

// updateSince returns the update that leads from a point to the current one, nil if that is where it is, and the current
// point. Updates are shared.
func (s *Server) updateSince(from point) (*update, point) {
	s.mu.RLock()
	var to point
	to.history, to.revision = s.core.Revision()
	if from == to {
		s.mu.RUnlock()
		return nil, to
	}
	u := s.updates.get(from, to)
	u.collect.Do(func() { u.core = s.core.Since(from.history, from.revision) })
	s.mu.RUnlock()
	u.encode.Do(func() {
		parts := encodeUpdate(u.core)
		u.core, u.snapshot = core.Update{}, u.core.Snapshot
		for _, p := range parts {
			u.parts = append(u.parts, marshal(p))
		}
	})
	return u, to
}

// marshal serializes a message of the manager's own, which has no field that could keep it from that.
func marshal(m proto.Message) wireMessage {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// decodeUpdate returns a part of an update as a message.
func decodeUpdate(raw wireMessage) (*ernicv1.MeshUpdate, error) {
	var m ernicv1.SessionResponse
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("an update that the manager has made: %w", err)
	}
	return m.GetMesh(), nil
}

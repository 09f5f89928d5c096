// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// point is a revision of a history.
type point struct {
	history  core.History
	revision uint64
}

// updateCache holds the updates that lead to one point by the point they start from. Most workers are at the same
// revision, and all that come anew start from none.
type updateCache struct {
	mu   sync.Mutex // guards what follows
	to   point
	from map[point][]*ernicv1.SessionResponse
}

// maxCachedUpdates bounds the starting points that are remembered.
const maxCachedUpdates = 64

func (c *updateCache) get(from, to point) ([]*ernicv1.SessionResponse, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.to != to {
		return nil, false
	}
	parts, ok := c.from[from]
	return parts, ok
}

func (c *updateCache) put(from, to point, parts []*ernicv1.SessionResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.to != to || c.from == nil || len(c.from) >= maxCachedUpdates {
		c.to, c.from = to, make(map[point][]*ernicv1.SessionResponse)
	}
	c.from[from] = parts
}

// updatesSince returns the messages that lead from a point to the current one, none if that is where it is, and the
// current point. The messages are shared and must not be changed.
func (s *Server) updatesSince(history core.History, revision uint64) ([]*ernicv1.SessionResponse, core.History, uint64) {
	from := point{history, revision}
	s.mu.RLock()
	var to point
	to.history, to.revision = s.core.Revision()
	if from == to {
		s.mu.RUnlock()
		return nil, to.history, to.revision
	}
	parts, ok := s.updates.get(from, to)
	if ok {
		s.mu.RUnlock()
		return parts, to.history, to.revision
	}
	update := s.core.Since(history, revision)
	s.mu.RUnlock()
	parts = encodeUpdate(update)
	s.updates.put(from, to, parts)
	return parts, to.history, to.revision
}

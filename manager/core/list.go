// SPDX-License-Identifier: Apache-2.0

package core

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// NodeInfo is a node as operators see it.
type NodeInfo struct {
	NodeRecord
	// State, Reason and Since of the record are replaced by what is true now, which the store does not know of suspects.
	SessionSince time.Time // zero: no session
	LastHeard    time.Time // zero: not since the manager started
	Report       Report
	Reported     bool
	Skew         time.Duration // how far the node's clock is ahead, as of the last report
	Claims       int
}

// Nodes returns all nodes by id.
func (c *Core) Nodes() []NodeInfo {
	infos := make([]NodeInfo, 0, len(c.order))
	for _, id := range c.order {
		n := c.nodes[id]
		info := NodeInfo{
			NodeRecord: n.NodeRecord,
			LastHeard:  n.lastHeard,
			Report:     n.report,
			Reported:   n.reported,
			Skew:       n.skew,
			Claims:     len(n.claims),
		}
		if n.session != 0 {
			info.SessionSince = n.sessionSince
		}
		if state := n.state(); state == Suspect || state == Partitioned {
			info.State, info.Reason, info.Since = state, n.suspectReason, n.suspectSince
		}
		infos = append(infos, info)
	}
	return infos
}

// GuestAttached reports whether a node said that a guest uses it.
func (c *Core) GuestAttached(id NodeID) bool {
	n := c.nodes[id]
	return n != nil && n.reported && n.report.GuestAttached
}

// Speaker returns the holder of the certificate that alone may speak for a node, empty if connections are plain, and the
// session that the node has, zero if none. It returns false if there is no such node.
func (c *Core) Speaker(id NodeID) (holder string, session SessionID, ok bool) {
	n := c.nodes[id]
	if n == nil || n.State == Evicted {
		return "", 0, false
	}
	return n.Identity, n.session, true
}

// ClaimKey names a claim. Its order is that of the GID's bytes, then of the node.
type ClaimKey struct {
	GID  GID
	Node NodeID
}

// Compare orders keys.
func (k ClaimKey) Compare(l ClaimKey) int {
	if d := compareGIDs(k.GID, l.GID); d != 0 {
		return d
	}
	return cmp.Compare(k.Node, l.Node)
}

// Claims returns up to limit claims whose keys come after a key, in order; all that are left if limit is 0. The zero key
// comes before every claim.
func (c *Core) Claims(after ClaimKey, limit int) []ClaimRecord {
	var found []ClaimRecord
	for _, claims := range c.claims {
		for _, cl := range claims {
			if cl.key().Compare(after) > 0 {
				found = append(found, cl.ClaimRecord)
			}
		}
	}
	slices.SortFunc(found, func(a, b ClaimRecord) int { return a.key().Compare(b.key()) })
	if limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	return found
}

func (r *ClaimRecord) key() ClaimKey { return ClaimKey{r.GID, r.Node} }

func compareGIDs(a, b GID) int { return bytes.Compare(a[:], b[:]) }

// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// maxClaimUpdate is the most claims and releases in one message.
const maxClaimUpdate = 1024

// claims are the addresses of a worker and what the manager holds of them.
type claims struct {
	// changed says that there may be something to send.
	changed chan struct{}

	mu    sync.RWMutex // guards what follows
	limit int
	own   map[gid.GID]*ownClaim
	// held is what the manager will hold once it has taken in what was sent.
	held map[gid.GID]struct{}
	// dirty are the addresses that own and held may differ in.
	dirty    map[gid.GID]struct{}
	sequence uint64
	// sent are the claims of updates that are not acknowledged yet.
	sent map[uint64][]gid.GID
}

// ownClaim is an address that the worker claims.
type ownClaim struct {
	source   ernicv1.ClaimSource
	acked    bool
	rejected string // why the manager did not take it
}

func (c *claims) init(limit int) {
	c.changed = make(chan struct{}, 1)
	c.limit = limit
	c.own = make(map[gid.GID]*ownClaim)
	c.held = make(map[gid.GID]struct{})
	c.dirty = make(map[gid.GID]struct{})
	c.sent = make(map[uint64][]gid.GID)
}

// wake lets the sender look. It is called with mu held or not.
func (c *claims) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Claim makes the worker the owner of an address, until Release. To claim an address again, from whatever source, changes
// nothing and costs next to nothing. The claim is sent to the manager now or as soon as there is one. It is an error to
// claim what no single node can own, or too much.
func (s *Session) Claim(g [16]byte, source ernicv1.ClaimSource) error {
	c := &s.claims
	c.mu.RLock()
	_, known := c.own[g]
	c.mu.RUnlock()
	if known {
		return nil
	}
	if err := gid.GID(g).Check(); err != nil {
		return fmt.Errorf("claim to %s: %w", gid.GID(g), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[g] != nil {
		return nil
	}
	if len(c.own) >= c.limit {
		return fmt.Errorf("claim to %s: the worker holds %d claims, which is its limit", gid.GID(g), len(c.own))
	}
	c.own[g] = &ownClaim{source: source}
	c.dirty[g] = struct{}{}
	c.wake()
	s.noteRecord()
	return nil
}

// Release gives an address up.
func (s *Session) Release(g [16]byte) {
	c := &s.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[g] != nil {
		delete(c.own, g)
		c.dirty[g] = struct{}{}
		c.wake()
		s.noteRecord()
	}
}

// Claims returns the addresses that the worker claims, and what became of each, by GID.
func (s *Session) Claims() []*ernicv1.ClaimStatus {
	c := &s.claims
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]*ernicv1.ClaimStatus, 0, len(c.own))
	for g, own := range c.own {
		list = append(list, &ernicv1.ClaimStatus{Gid: g[:], Source: own.source, Acknowledged: own.acked, Rejected: own.rejected})
	}
	slices.SortFunc(list, func(a, b *ernicv1.ClaimStatus) int { return bytes.Compare(a.GetGid(), b.GetGid()) })
	return list
}

// registered starts over from what the manager holds.
func (c *claims) registered(list []*ernicv1.Claim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = make(map[gid.GID]struct{}, len(list))
	c.dirty = make(map[gid.GID]struct{})
	c.sent = make(map[uint64][]gid.GID)
	for _, m := range list {
		g, err := gid.FromBytes(m.GetGid())
		if err != nil {
			return fmt.Errorf("the manager holds a claim to a %w", err)
		}
		c.held[g] = struct{}{}
		if c.own[g] == nil {
			c.dirty[g] = struct{}{}
		}
	}
	for g, own := range c.own {
		_, own.acked = c.held[g]
		own.rejected = ""
		if !own.acked {
			c.dirty[g] = struct{}{}
		}
	}
	c.wake()
	return nil
}

// next returns the next update to send, nil if there is none.
func (c *claims) next() *ernicv1.ClaimUpdate {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &ernicv1.ClaimUpdate{}
	var claimed []gid.GID
	for _, g := range slices.SortedFunc(maps.Keys(c.dirty), func(a, b gid.GID) int { return bytes.Compare(a[:], b[:]) }) {
		if len(m.Claim)+len(m.Release) == maxClaimUpdate {
			break
		}
		delete(c.dirty, g)
		own := c.own[g]
		_, held := c.held[g]
		switch {
		case own != nil && !held:
			m.Claim = append(m.Claim, &ernicv1.Claim{Gid: g[:], Source: own.source})
			claimed = append(claimed, g)
			c.held[g] = struct{}{}
		case own == nil && held:
			m.Release = append(m.Release, g[:])
			delete(c.held, g)
		}
	}
	if len(m.Claim)+len(m.Release) == 0 {
		return nil
	}
	c.sequence++
	m.Sequence = c.sequence
	c.sent[m.Sequence] = claimed
	return m
}

// takeClaimAck marks what the manager has stored.
func (s *Session) takeClaimAck(m *ernicv1.ClaimAck) {
	c := &s.claims
	c.mu.Lock()
	defer c.mu.Unlock()
	claimed, ok := c.sent[m.GetSequence()]
	if !ok {
		return
	}
	delete(c.sent, m.GetSequence())
	for _, g := range claimed {
		if own := c.own[g]; own != nil {
			own.acked = true
		}
	}
	for _, r := range m.GetRejected() {
		g, err := gid.FromBytes(r.GetGid())
		if err != nil {
			continue
		}
		delete(c.held, g)
		if own := c.own[g]; own != nil {
			own.acked, own.rejected = false, r.GetReason()
			s.cfg.Log.Warn().Stringer("gid", g).Str("reason", r.GetReason()).Msg("the manager did not take a claim")
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// watchGap is the least time between two looks for a watcher.
const watchGap = 200 * time.Millisecond

// signal wakes everybody who waits for a change.
type signal struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

func (s *signal) init() { s.ch = make(chan struct{}) }

// raise wakes those who hold the channel.
func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}

// next returns a channel that is closed with the next change.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

// watch calls look now and after every change, until it fails or ctx ends.
func (s *Server) watch(ctx context.Context, look func() error) error {
	return s.follow(ctx, watchGap, look)
}

// follow is watch with a least time between two looks.
func (s *Server) follow(ctx context.Context, gap time.Duration, look func() error) error {
	for {
		change := s.changed.next()
		if err := look(); err != nil {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil
		case <-s.done:
			return errGoingDown
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
			return nil
		}
	}
}

// WatchNodes sends all nodes and then those that change. That a node was heard, or that its round trip is another, is no
// change.
func (s *Server) WatchNodes(_ *ernicv1.WatchNodesRequest, stream grpc.ServerStreamingServer[ernicv1.WatchNodesResponse]) error {
	seen := make(map[uint32]*ernicv1.Node)
	first := true
	return s.watch(stream.Context(), func() error {
		resp := &ernicv1.WatchNodesResponse{Synced: first}
		gone := make(map[uint32]struct{}, len(seen))
		for id := range seen {
			gone[id] = struct{}{}
		}
		for _, n := range s.nodes() {
			delete(gone, n.GetNodeId())
			steady := steadyNode(n)
			if old := seen[n.GetNodeId()]; old == nil || !proto.Equal(old, steady) {
				seen[n.GetNodeId()] = steady
				resp.Nodes = append(resp.Nodes, n)
			}
		}
		for id := range gone {
			delete(seen, id)
			resp.RemovedNodeIds = append(resp.RemovedNodeIds, id)
		}
		slices.Sort(resp.RemovedNodeIds)
		if !first && len(resp.Nodes)+len(resp.RemovedNodeIds) == 0 {
			return nil
		}
		first = false
		return stream.Send(resp)
	})
}

// WatchMesh sends the view that workers are sent, and what changes in it.
func (s *Server) WatchMesh(r *ernicv1.WatchMeshRequest, stream grpc.ServerStreamingServer[ernicv1.WatchMeshResponse]) error {
	var at point
	if h := r.GetHave().GetHistory(); len(h) == len(at.history) {
		at = point{core.History(h), r.GetHave().GetRevision()}
	}
	return s.follow(stream.Context(), s.cfg.UpdateGap, func() error {
		u, to := s.updateSince(at)
		if u == nil {
			return nil
		}
		for _, raw := range u.parts {
			m, err := decodeUpdate(raw)
			if err != nil {
				return err
			}
			if err := stream.Send(&ernicv1.WatchMeshResponse{Update: m}); err != nil {
				return err
			}
		}
		at = to
		return nil
	})
}

// steadyNode returns n without what changes all the time.
func steadyNode(n *ernicv1.Node) *ernicv1.Node {
	steady := proto.CloneOf(n)
	steady.LastHeard = nil
	if r := steady.GetReport(); r != nil {
		r.Rtt, r.MeshRevision, r.Clock = nil, 0, nil
		for _, l := range r.GetLinkReports() {
			l.Rtt, l.QueuedBytes = nil, 0
		}
	}
	steady.ClockSkew = nil
	return steady
}

// WatchGids sends all claims and then those that change.
func (s *Server) WatchGids(_ *ernicv1.WatchGidsRequest, stream grpc.ServerStreamingServer[ernicv1.WatchGidsResponse]) error {
	var seen []core.ClaimRecord
	first := true
	return s.watch(stream.Context(), func() error {
		s.mu.RLock()
		now := s.core.Claims(core.ClaimKey{}, 0)
		s.mu.RUnlock()
		changed, removed := diffClaims(seen, now)
		seen = now
		for len(changed) > maxPage {
			if err := stream.Send(&ernicv1.WatchGidsResponse{Gids: changed[:maxPage]}); err != nil {
				return err
			}
			changed = changed[maxPage:]
		}
		for len(removed) > maxPage {
			if err := stream.Send(&ernicv1.WatchGidsResponse{Removed: removed[:maxPage]}); err != nil {
				return err
			}
			removed = removed[maxPage:]
		}
		if !first && len(changed)+len(removed) == 0 {
			return nil
		}
		resp := &ernicv1.WatchGidsResponse{Gids: changed, Removed: removed, Synced: first}
		first = false
		return stream.Send(resp)
	})
}

// diffClaims compares two sorted lists of claims.
func diffClaims(old, now []core.ClaimRecord) (changed, removed []*ernicv1.Gid) {
	key := func(r *core.ClaimRecord) core.ClaimKey { return core.ClaimKey{GID: r.GID, Node: r.Node} }
	for len(old) > 0 || len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = key(&old[0]).Compare(key(&now[0]))
		}
		if order < 0 {
			r := &old[0]
			removed = append(removed, &ernicv1.Gid{Gid: r.GID[:], NodeId: uint32(r.Node)})
			old = old[1:]
			continue
		}
		if order > 0 || old[0] != now[0] {
			changed = append(changed, encodeGid(&now[0]))
		}
		if order == 0 {
			old = old[1:]
		}
		now = now[1:]
	}
	return changed, removed
}

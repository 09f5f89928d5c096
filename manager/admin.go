// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// maxPage is the most claims in one answer.
const maxPage = 10000

// maxReason is the longest reason for an eviction, in bytes.
const maxReason = 256

// ListNodes returns node 0, which is the manager, and all others.
func (s *Server) ListNodes(context.Context, *ernicv1.ListNodesRequest) (*ernicv1.ListNodesResponse, error) {
	return &ernicv1.ListNodesResponse{Nodes: s.nodes()}, nil
}

func (s *Server) nodes() []*ernicv1.Node {
	s.mu.RLock()
	infos := s.core.Nodes()
	s.mu.RUnlock()
	nodes := make([]*ernicv1.Node, 0, len(infos)+1)
	nodes = append(nodes, &ernicv1.Node{
		NodeId:      uint32(core.Manager),
		Role:        ernicv1.NodeRole_NODE_ROLE_MANAGER,
		Name:        s.cfg.Name,
		Address:     s.cfg.Address,
		State:       ernicv1.NodeState_NODE_STATE_ALIVE,
		Incarnation: uint64(s.started.UnixNano()),
		Version:     s.cfg.Version,
		Protocol:    s.cfg.Core.Versions.Max,
		Since:       encodeTime(s.started),
	})
	for i := range infos {
		nodes = append(nodes, encodeNode(&infos[i]))
	}
	return nodes
}

// ListManagers returns this manager, which shares its state with no other.
func (s *Server) ListManagers(context.Context, *ernicv1.ListManagersRequest) (*ernicv1.ListManagersResponse, error) {
	return &ernicv1.ListManagersResponse{Managers: []*ernicv1.ManagerInfo{encodeCandidate(Candidate{
		Name: s.cfg.Name, Address: s.cfg.Address, Version: s.cfg.Version, Started: s.started, Leads: true, Self: true,
	})}}, nil
}

// ListGids returns a page of claims.
func (s *Server) ListGids(_ context.Context, r *ernicv1.ListGidsRequest) (*ernicv1.ListGidsResponse, error) {
	after, err := decodeToken(r.GetPageToken())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	limit := int(min(r.GetPageSize(), maxPage))
	if limit == 0 {
		limit = maxPage
	}
	s.mu.RLock()
	claims := s.core.Claims(after, limit+1)
	s.mu.RUnlock()
	resp := &ernicv1.ListGidsResponse{}
	if len(claims) > limit {
		claims = claims[:limit]
		last := &claims[limit-1]
		resp.NextPageToken = encodeToken(core.ClaimKey{GID: last.GID, Node: last.Node})
	}
	for i := range claims {
		resp.Gids = append(resp.Gids, encodeGid(&claims[i]))
	}
	return resp, nil
}

func encodeToken(k core.ClaimKey) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(k.GID[:], uint32(k.Node)))
}

func decodeToken(token string) (core.ClaimKey, error) {
	if token == "" {
		return core.ClaimKey{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 20 {
		return core.ClaimKey{}, errors.New("the page token is not one of this manager's")
	}
	return core.ClaimKey{GID: core.GID(raw[:16]), Node: core.NodeID(binary.BigEndian.Uint32(raw[16:]))}, nil
}

// EvictNode removes a node.
func (s *Server) EvictNode(ctx context.Context, r *ernicv1.EvictNodeRequest) (*ernicv1.EvictNodeResponse, error) {
	if err := checkText(r.GetReason(), maxReason); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "reason: %v", err)
	}
	reason := because(ctx, r.GetReason())
	err := s.request(ctx, func(c *core.Core, at time.Time, out []core.Effect) ([]core.Effect, error) {
		return c.Evict(at, core.NodeID(r.GetNodeId()), reason, out)
	})
	if err != nil {
		return nil, err
	}
	return &ernicv1.EvictNodeResponse{Quarantine: durationpb.New(max(0, s.cfg.Core.Quarantine))}, nil
}

// DrainNode asks a worker to end when its guest leaves.
func (s *Server) DrainNode(ctx context.Context, r *ernicv1.DrainNodeRequest) (*ernicv1.DrainNodeResponse, error) {
	if err := checkText(r.GetReason(), maxReason); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "reason: %v", err)
	}
	reason := because(ctx, r.GetReason())
	resp := &ernicv1.DrainNodeResponse{}
	err := s.request(ctx, func(c *core.Core, at time.Time, out []core.Effect) ([]core.Effect, error) {
		id := core.NodeID(r.GetNodeId())
		resp.GuestAttached = c.GuestAttached(id)
		return c.Drain(at, id, reason, out)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// SetNodeLink takes the Ethernet link of a worker's NIC down, or leaves it to its wire again.
func (s *Server) SetNodeLink(ctx context.Context, r *ernicv1.SetNodeLinkRequest) (*ernicv1.SetNodeLinkResponse, error) {
	if err := checkText(r.GetReason(), maxReason); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "reason: %v", err)
	}
	reason := because(ctx, r.GetReason())
	err := s.request(ctx, func(c *core.Core, at time.Time, out []core.Effect) ([]core.Effect, error) {
		return c.SetLink(at, core.NodeID(r.GetNodeId()), r.GetUp(), reason, out)
	})
	if err != nil {
		return nil, err
	}
	return &ernicv1.SetNodeLinkResponse{}, nil
}

// because adds to the reason of an operator who that is.
func because(ctx context.Context, reason string) string {
	caller, err := identity.OfCall(ctx)
	switch {
	case err != nil:
		return reason
	case reason == "":
		return "by " + caller.String()
	}
	return reason + " (by " + caller.String() + ")"
}

var errGoingDown = status.Error(codes.Unavailable, "the manager is going down")

// request has the loop carry out what an operator wants, and returns when it is stored.
func (s *Server) request(ctx context.Context, do func(*core.Core, time.Time, []core.Effect) ([]core.Effect, error)) error {
	answer := make(chan error, 1)
	select {
	case s.events <- event{at: time.Now(), request: &request{do, answer}}:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.done:
		return errGoingDown
	}
	select {
	case err := <-answer:
		var unknown *core.NoSuchNode
		var absent *core.NotConnected
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrDeposed):
			return errGoingDown
		case errors.As(err, &unknown):
			return status.Error(codes.NotFound, err.Error())
		case errors.As(err, &absent):
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		return status.Error(codes.InvalidArgument, err.Error())
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.done:
		return errGoingDown
	}
}

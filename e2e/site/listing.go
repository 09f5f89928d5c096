// SPDX-License-Identifier: Apache-2.0

package site

import "context"

// ListedNode is a row of ernictl nodes.
type ListedNode struct {
	ID            uint32 `json:"id"`
	Name          string `json:"name"`
	Address       string `json:"address"`
	State         string `json:"state"`
	GuestAttached bool   `json:"guest_attached"`
	Links         uint32 `json:"links"`
	Incarnation   uint64 `json:"incarnation"`
	Version       string `json:"version"`
}

// ListedGID is a row of ernictl gids.
type ListedGID struct {
	GID    string `json:"gid"`
	IPv4   string `json:"ipv4"`
	Node   uint32 `json:"node"`
	Source string `json:"source"`
	State  string `json:"state"`
}

// ListNodes is ernictl nodes.
func (s *Site) ListNodes(ctx context.Context) ([]ListedNode, error) {
	var l []ListedNode
	err := s.ErnictlJSON(ctx, &l, "nodes")
	return l, err
}

// ListGIDs is ernictl gids.
func (s *Site) ListGIDs(ctx context.Context) ([]ListedGID, error) {
	var l []ListedGID
	err := s.ErnictlJSON(ctx, &l, "gids")
	return l, err
}

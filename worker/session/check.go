// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// checkPart returns what is wrong with a part of an update. have is the mesh that it will be applied to, and before the
// part before it, or nil.
func checkPart(have *Mesh, before, p *ernicv1.MeshUpdate) error {
	to := p.GetTo()
	if len(to.GetHistory()) != 16 {
		return fmt.Errorf("a history of %d bytes, want 16", len(to.GetHistory()))
	}
	if before != nil && (before.GetTo().GetRevision() != to.GetRevision() || before.GetSnapshot() != p.GetSnapshot() ||
		[16]byte(before.GetTo().GetHistory()) != [16]byte(to.GetHistory())) {
		return errors.New("parts of different updates")
	}
	if !p.GetSnapshot() {
		if [16]byte(to.GetHistory()) != have.History {
			return errors.New("a difference within another history")
		}
		if to.GetRevision() < have.Revision {
			return fmt.Errorf("a difference back to revision %d from %d", to.GetRevision(), have.Revision)
		}
	}
	for _, n := range p.GetNodes() {
		if len(n.GetInstance()) != 16 {
			return fmt.Errorf("node %d has an instance of %d bytes, want 16", n.GetNodeId(), len(n.GetInstance()))
		}
		if n.GetNodeId() == 0 || n.GetNodeId() == anyNode {
			return fmt.Errorf("a worker has the node id %d", n.GetNodeId())
		}
	}
	for _, r := range p.GetRoutes() {
		if len(r.GetGid()) != 16 {
			return fmt.Errorf("a route of a GID of %d bytes, want 16", len(r.GetGid()))
		}
	}
	for _, g := range p.GetRemovedGids() {
		if len(g) != 16 {
			return fmt.Errorf("a removed GID of %d bytes, want 16", len(g))
		}
	}
	return nil
}

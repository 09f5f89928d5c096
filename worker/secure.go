// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/worker/session"
)

// verifier returns what says whether a connection may speak for a node: its
// certificate must be a worker's, and that of the holder who registered the
// node with the manager. Nil for a mesh in the clear.
func (m *mesh) verifier() func(uint32, credentials.AuthInfo) error {
	if m.worker.config.Server == nil {
		return nil
	}
	return func(node uint32, auth credentials.AuthInfo) error { return verify(m.session.Mesh(), node, auth) }
}

// nodes knows the members of the mesh.
type nodes interface {
	Node(id uint32) (*session.Node, bool)
}

func verify(mesh nodes, node uint32, auth credentials.AuthInfo) error {
	id, protected, err := identity.OfConnection(auth)
	n, known := mesh.Node(node)
	switch {
	case !protected:
		return fmt.Errorf("node %d: the connection is in the clear", node)
	case err != nil:
		return fmt.Errorf("node %d: %w", node, err)
	case id.Role != identity.Worker:
		return fmt.Errorf("node %d: the certificate is that of %s, not of a worker", node, id)
	case !known:
		return fmt.Errorf("node %d is not in the mesh", node)
	case n.Identity != id.String():
		return fmt.Errorf("node %d belongs to %q, and the certificate is that of %s", node, n.Identity, id)
	}
	return nil
}

// serveStatus answers operators.
func (m *mesh) serveStatus(ctx context.Context) error {
	c := &m.worker.config
	var o []grpc.ServerOption
	if c.Reflection {
		m.session.Reflect()
	}
	if c.Server != nil {
		o = append(o, grpc.Creds(c.Server))
	}
	return m.session.ServeStatus(ctx, c.Status, o...)
}

// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"net"

	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/worker/relay"
)

// newRelay returns what reaches peers by way of the manager.
func (m *mesh) newRelay() *relay.Relay {
	return relay.New(relay.Config{
		// Asked when there is something to send, which there is not before the
		// session is made.
		Self:     func() (uint32, bool) { return m.session.NodeID() },
		Manager:  func() (*grpc.ClientConn, error) { return m.session.DialManager() },
		Peer:     m.peerAt,
		Listener: reachable(m.listen),
		Log:      m.worker.config.Log,
	})
}

// peerAt returns the node at an address.
func (m *mesh) peerAt(address string) (uint32, bool) {
	for _, id := range m.directory.Nodes() {
		if n, ok := m.directory.Node(id); ok && n.Address == address {
			return id, true
		}
	}
	return 0, false
}

// reachable returns where this host reaches a listener of its own.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return listen
	}
	return net.JoinHostPort("localhost", port)
}

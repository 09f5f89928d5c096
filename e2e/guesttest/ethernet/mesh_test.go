// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

// Two guests on two workers are on one segment with no bridge, no TAP and nothing
// else of the host's network.
func TestMesh_GuestsTalkWithNothingOnTheHost(t *testing.T) {
	s := start(t, site.Options{Name: "lan", OverMesh: true})
	traffic(t, s)
	dhcpOfGuest(t, s)
	for _, n := range s.Nodes {
		must(t, n.Guest, "ip link set eth0 mtu 9000")
		poll(t, n.Guest, "1", "cat /sys/class/net/eth0/carrier")
	}
	for i, n := range s.Nodes {
		ping(t, n, s.Nodes[1-i].IP, "-M do -s 8972")
	}
	iperf(t, s, "")
	// An operator takes the link down and leaves it to the mesh again.
	n, peer := s.Nodes[1], s.Nodes[0]
	id, err := s.NodeID(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{false, true} {
		if out, err := s.Ernictl(t.Context(), "node", "link", fmt.Sprint(id), map[bool]string{true: "up", false: "down"}[up]); err != nil {
			t.Fatal(err, out)
		}
		carrier(t, n, up)
		carrier(t, peer, true)
	}
	ping(t, n, peer.IP, "")
	for _, n := range s.Nodes {
		quiet(t, n.Guest)
	}
}

// dhcpOfGuest lets a guest take an address from a server in the other one, which
// has never heard of it.
func dhcpOfGuest(t *testing.T, s *site.Site) {
	t.Helper()
	server, err := s.Nodes[0].Guest.Start(t.Context(), shell(
		"exec dnsmasq --no-daemon --port=0 --interface=eth0 --dhcp-range=192.168.200.100,192.168.200.150 --dhcp-authoritative --leasefile-ro"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Signal(syscall.SIGTERM)
		_, _ = server.Wait()
	}()
	n := s.Nodes[1]
	leased := lease(t, n)
	ping(t, s.Nodes[0], leased, "")
	must(t, n.Guest, "ip addr del %s/24 dev eth0", leased)
}

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

// Two guests on two workers are on one segment with no bridge, no TAP and nothing
// else of the host's network.
func TestMesh_GuestsTalkWithNothingOnTheHost(t *testing.T) {
	s := start(t, site.Options{Name: "lan", OverMesh: true})
	for i, n := range s.Nodes {
		peer := s.Nodes[1-i]
		for _, size := range []int{0, 56, 1472, 1473, 8000, 65000} {
			ping(t, n, peer.IP, fmt.Sprintf("-s %d", size))
		}
		ping(t, n, must(t, peer.Guest, "ip -6 -br addr show dev eth0 scope link | awk '{sub(\"/.*\",\"\",$3); print $3}'")+"%eth0", "-6")
		ping(t, n, "ff02::1%eth0", "-6 -L") // neighbours and multicast groups
	}
	for _, options := range []string{"", "-R", "-P 4", "-u -b 20M"} {
		iperf(t, s, options)
	}
	// DHCP: the server has never heard of the client.
	dhcp, err := s.Nodes[0].Guest.Start(t.Context(), shell(
		"exec dnsmasq --no-daemon --port=0 --interface=eth0 --dhcp-range=192.168.200.100,192.168.200.150 --dhcp-authoritative --leasefile-ro"))
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, s.Nodes[1].Guest, "udhcpc -i eth0 -n -q -f -t 20 -T 1 -s /bin/true 2>&1"); !strings.Contains(out, "lease of 192.168.200.1") {
		t.Errorf("DHCP gave no lease: %s", out)
	}
	_ = dhcp.Signal(syscall.SIGTERM)
	_, _ = dhcp.Wait()
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
	for _, up := range []bool{false, true} {
		if out, err := s.Ernictl(t.Context(), "node", "link", fmt.Sprint(n.NodeID()), map[bool]string{true: "up", false: "down"}[up]); err != nil {
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

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

func ipLink(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	works := works(peer.IP)
	check(t, n.Guest, []says{
		{command: "ip -d link show dev eth0", want: []string{"minmtu 68 maxmtu 9198", "state UP", "parentdev 0000:01:00.0"}},
		{command: "ip link set eth0 mtu 9198", want: nil},
		{command: "ip link set eth0 mtu 9199", refusal: "mtu greater than device maximum"},
		{command: "ip link set eth0 mtu 67", refusal: "mtu less than device minimum"},
		{command: "ip link set eth0 mtu 68"},
		{command: "ip link set eth0 mtu 1500"}, works,
		// A new address is followed by the filters, the old one is given up.
		{command: "ip link set eth0 address 02:aa:bb:cc:dd:77", want: nil}, works,
		{command: "ip link set eth0 address " + n.MAC}, works,
		{command: "ip link set eth0 address 01:00:5e:00:00:01", refusal: "Cannot assign requested address"},
		{command: "ip link set eth0 alias 'the only card'; ip link show eth0", want: []string{"alias the only card"}},
		{command: "ip link set eth0 txqueuelen 77; ip link show eth0", want: []string{"qlen 77"}},
		{command: "ip link set eth0 txqueuelen 1000"},
		{command: "ip link set eth0 allmulticast on multicast off"}, works,
		{command: "ip link set eth0 allmulticast off multicast on"}, works,
		{command: "ip link set eth0 promisc on"}, works,
		{command: "ip link set eth0 promisc off"}, works,
		{command: "ip link set eth0 down; ip link set eth0 name lan0; ip link set lan0 up; ethtool -i lan0", want: []string{"driver: ionic"}},
		{command: "ip link set lan0 down; ip link set lan0 name eth0; ip link set eth0 up"},
	})
	carrier(t, n, true)
	check(t, n.Guest, []says{
		works,
		// Far more addresses than the NIC has filters for: it becomes promiscuous.
		{command: "sysctl -q net.ipv6.conf.default.disable_ipv6=1; for i in $(seq 0 139); do ip link add link eth0 name mv$i type macvlan mode bridge; ip link set mv$i up; done"},
		{command: "ip addr add 192.168.207.1/24 dev mv139"},
	})
	must(t, peer.Guest, "ip addr add 192.168.207.2/24 dev eth0")
	ping(t, peer, "192.168.207.1", "-s 1400")
	must(t, n.Guest, "for i in $(seq 0 139); do ip link del mv$i; done; sysctl -q net.ipv6.conf.default.disable_ipv6=0")
	must(t, peer.Guest, "ip addr del 192.168.207.2/24 dev eth0")
	ping(t, peer, n.IP, "")
}

// Devices on VLANs, also on VLANs in VLANs, and of either kind of tag.
func vlans(t *testing.T, s *site.Site) {
	for _, n := range s.Nodes {
		must(t, n.Guest, `
ip link add link eth0 name v100 type vlan id 100
ip link add link eth0 name v4094 type vlan id 4094
ip link add link eth0 name s200 type vlan protocol 802.1ad id 200
ip link add link s200 name c300 mtu 1496 type vlan id 300
for d in v100 v4094 s200 c300; do ip link set $d up; done
ip addr add 192.168.208.%[1]d/24 dev v100
ip addr add 192.168.209.%[1]d/24 dev v4094
ip addr add 192.168.210.%[1]d/24 dev c300`, n.Index+1)
	}
	for _, net := range []int{208, 209, 210} {
		for i, n := range s.Nodes {
			for _, size := range []int{0, 4000} {
				ping(t, n, fmt.Sprintf("192.168.%d.%d", net, 2-i), fmt.Sprintf("-s %d", size))
			}
		}
	}
	transfer(t, s, "192.168.208.1")
	transfer(t, s, "192.168.210.1")
	for _, n := range s.Nodes {
		must(t, n.Guest, "for d in c300 s200 v100 v4094; do ip link del $d; done")
	}
}

// A bridge in a guest: what sits behind it has an address of its own, from which
// the NIC sends and for which it takes frames.
func bridge(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	must(t, n.Guest, `
ip netns add inner
ip link add br0 type bridge forward_delay 0 mcast_snooping 0
ip link add veth0 type veth peer name eth0 netns inner
ip addr del %[1]s/24 dev eth0
ip link set eth0 master br0
ip link set veth0 master br0
ip link set veth0 up
ip link set br0 up
ip addr add %[1]s/24 dev br0
ip -n inner addr add 192.168.200.77/24 dev eth0
ip -n inner link set eth0 up`, n.IP)
	must(t, peer.Guest, "ping -c 1 -w 60 192.168.200.77")
	for _, size := range []int{0, 1472, 8000} {
		ping(t, peer, "192.168.200.77", fmt.Sprintf("-s %d", size))
		ping(t, peer, n.IP, fmt.Sprintf("-s %d", size))
	}
	port := (&site.Pair{}).Port()
	server, err := n.Guest.Start(t.Context(), shell("ip netns exec inner iperf3 -s -1 -p %d", port))
	if err != nil {
		t.Fatal(err)
	}
	must(t, peer.Guest, "for i in $(seq 300); do iperf3 -c 192.168.200.77 -p %d -t 2 && exit 0; sleep 0.1; done; exit 1", port)
	if r, err := server.Wait(); err != nil {
		t.Errorf("iperf3 behind the bridge: %v\n%s", err, r.Stdout)
	}
	must(t, n.Guest, "ip link del br0; ip netns del inner; ip addr add %s/24 dev eth0; ip link set eth0 promisc off", n.IP)
	must(t, peer.Guest, "ip neigh flush dev eth0; ping -c 1 -w 60 %s", n.IP)
}

// A capture sees what is for others when the interface is promiscuous, and only
// then.
func promiscuous(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	// Nobody has the address, so the frames go everywhere.
	must(t, peer.Guest, "ip neigh replace 192.168.200.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
	noise, err := peer.Guest.Start(t.Context(), shell("exec ping -q -i 0.05 192.168.200.99"))
	if err != nil {
		t.Fatal(err)
	}
	const (
		others = "ether dst 02:00:00:00:00:99"
		// A while from when the capture has begun.
		modest = "tcpdump -n -p -i eth0 " + others + ` >/tmp/modest 2>&1 & P=$!
until grep -q 'listening on' /tmp/modest; do sleep 0.1; done
sleep 2; kill -TERM $P; wait $P; cat /tmp/modest`
	)
	if out := must(t, n.Guest, "%s", modest); !strings.Contains(out, "\n0 packets captured") {
		t.Errorf("an interface that is not promiscuous takes what is for others\n%s", out)
	}
	if out := must(t, n.Guest, "timeout -s INT 60 tcpdump -n -i eth0 -c 5 "+others+" 2>&1 || true"); !strings.Contains(out, "5 packets captured") {
		t.Errorf("a promiscuous interface does not see what is for others\n%s", out)
	}
	// And out of it again, which the driver does after the capture.
	again(t, func() error {
		if out := must(t, n.Guest, "%s", modest); !strings.Contains(out, "\n0 packets captured") {
			return fmt.Errorf("the interface stays promiscuous\n%s", out)
		}
		return nil
	})
	_ = noise.Signal(syscall.SIGINT)
	_, _ = noise.Wait()
	must(t, peer.Guest, "ip neigh del 192.168.200.99 dev eth0")
}

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

// features are what the guest's kernel must use when the profile has offloads.
var features = []string{
	"rx-checksumming", "tx-checksum-ip-generic", "scatter-gather", "tx-tcp-segmentation", "tx-tcp6-segmentation",
	"rx-vlan-offload", "tx-vlan-offload", "receive-hashing",
}

// With offloads, over the mesh and over TAPs: the guest uses them, large packets
// cross whole, each can be switched off and on in the middle of traffic, and no
// checksum is ever wrong.
// The same over the mesh is a part of TestNIC.
func TestOffloads_OverTAPs(t *testing.T) {
	s := start(t, site.Options{Name: "oft", WorkerArgs: []string{"--nic-profile", "generic-100g"}})
	offloads(t, s)
	// The host saw packets far larger than the wire's.
	read := func(counter string) float64 {
		out, err := s.Lab.Run(t.Context(), "cat", "/sys/class/net/"+s.Nodes[1].TAP+"/statistics/"+counter)
		if err != nil {
			t.Fatal(err)
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	bytes, packets := read("rx_bytes"), read("rx_packets")
	iperf(t, s, "")
	size := (read("rx_bytes") - bytes) / (read("rx_packets") - packets)
	if size < 3000 {
		t.Errorf("packets have %.0f bytes on average: they are cut before the host sees them", size)
	}
	t.Logf("the host saw packets of %.0f bytes on average", size)
}

func offloads(t *testing.T, s *site.Site) {
	t.Helper()
	for _, n := range s.Nodes {
		out := must(t, n.Guest, "ethtool -k eth0")
		for _, f := range features {
			if !strings.Contains(out, f+": on") {
				t.Errorf("%s: %s is not on:\n%s", n.Name, f, out)
			}
		}
		// A device on a VLAN, so that tags are inserted and taken off.
		must(t, n.Guest, "ip link add link eth0 name v5 type vlan id 5; ip addr add 192.168.205.%d/24 dev v5; ip link set v5 up", n.Index+1)
	}
	for i, n := range s.Nodes {
		peer := s.Nodes[1-i]
		for _, size := range []int{0, 1472, 8000} {
			ping(t, n, peer.IP, fmt.Sprintf("-s %d", size))
			ping(t, n, fmt.Sprintf("192.168.205.%d", peer.Index+1), fmt.Sprintf("-s %d", size))
		}
	}
	for _, options := range []string{"", "-R", "-u -b 20M"} {
		iperf(t, s, options)
	}
	transfer(t, s, s.Nodes[0].IP)
	transfer(t, s, "192.168.205.1")

	// Off and on again, one by one, while data flows.
	for _, n := range s.Nodes {
		job, err := n.Guest.Start(t.Context(), shell(
			"for f in rx tx sg tso rxvlan txvlan rxhash; do ethtool -K eth0 $f off; sleep 0.3; ethtool -K eth0 $f on; done"))
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, s, s.Nodes[0].IP)
		if r, err := job.Wait(); err != nil {
			t.Errorf("%s: %v %s", n.Name, err, r.Stderr)
		}
	}
	for _, n := range s.Nodes {
		quiet(t, n.Guest)
		must(t, n.Guest, "ip link del v5")
		if bad := must(t, n.Guest, "nstat -az TcpInCsumErrors UdpInCsumErrors | awk '/Csum/{n+=$2} END{print n+0}'"); bad != "0" {
			t.Errorf("%s: %s packets with a wrong checksum", n.Name, bad)
		}
	}
}

// transfer sends 16 MiB of noise from the second guest to the first and compares
// what arrived.
func transfer(t *testing.T, s *site.Site, to string) {
	t.Helper()
	p := &site.Pair{Server: s.Nodes[0].Guest, Client: s.Nodes[1].Guest}
	port := p.Port()
	const receive = `python3 -c '
import socket,hashlib
l=socket.create_server(("",%d)); c,_=l.accept(); h=hashlib.sha256(); n=0
while b:=c.recv(1<<20): h.update(b); n+=len(b)
print(n,h.hexdigest())'`
	const send = `python3 -c '
import socket,hashlib,os
b=os.urandom(16<<20); c=socket.create_connection(("%s",%d)); c.sendall(b); c.close()
print(len(b),hashlib.sha256(b).hexdigest())'`
	o, err := p.Run(t.Context(), port, fmt.Sprintf(receive, port), fmt.Sprintf(send, to, port))
	if err != nil {
		t.Fatal(err)
	}
	if o.Server.Stdout != o.Client.Stdout || !strings.HasPrefix(o.Client.Stdout, "16777216 ") {
		t.Errorf("sent %s, received %s", o.Client.Stdout, o.Server.Stdout)
	}
}

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/site"
)

// host runs ip in the network of the TAPs.
func host(t *testing.T, s *site.Site, format string, args ...any) {
	t.Helper()
	if _, err := s.Lab.Run(t.Context(), append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...)...); err != nil {
		t.Fatal(err)
	}
}

// carrier waits until the guest of a node has a carrier or none, for its netdev
// and its RDMA port alike.
func carrier(t *testing.T, n *site.Node, up bool) {
	t.Helper()
	netdev, port := "0", "1: DOWN"
	if up {
		netdev, port = "1", "4: ACTIVE"
	}
	poll(t, n.Guest, netdev, "cat /sys/class/net/eth0/carrier")
	// After a reset the RDMA device is made anew.
	poll(t, n.Guest, port, "cat /sys/class/infiniband/ionic_0/ports/1/state 2>/dev/null || true")
}

// Two guests on TAPs that are joined by a bridge.
func TestTAP(t *testing.T) {
	s := start(t, site.Options{Name: "tap"})
	for _, c := range []struct {
		name string
		test func(*testing.T, *site.Site)
	}{
		{"carrier follows the interface", carrierFollows},
		{"traffic", traffic},
		{"DHCP from the host", dhcp},
		{"ssh", secureShell},
		{"captures agree", captures},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, s)
			for _, n := range s.Nodes {
				quiet(t, n.Guest)
			}
		})
	}
}

// The carrier of the guest, and with it the state of its RDMA port, is that of the
// TAP; traffic goes on when it is back.
func carrierFollows(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	works := func() {
		t.Helper()
		carrier(t, n, true)
		// Neighbours are looked for again, and the bridge lets its port wait a bit.
		must(t, peer.Guest, "ping -c 1 -w 60 %s", n.IP)
		ping(t, peer, n.IP, "")
		ping(t, n, peer.IP, "-s 1400")
	}
	works()
	// In the middle of traffic of both directions.
	flood, err := peer.Guest.Start(t.Context(), shell("ping -f -w 600 -s 1400 %s >/dev/null", n.IP))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ away, back []string }{
		{[]string{"link set %s down"}, []string{"link set %s up"}},
		{[]string{"link set %s carrier off"}, []string{"link set %s carrier on"}},
		{[]string{"link del %s"}, []string{"tuntap add dev %s mode tap", "link set %s master " + lab.Bridge, "link set %s up"}},
	} {
		for _, c := range step.away {
			host(t, s, c, n.TAP)
		}
		carrier(t, n, false)
		if out := must(t, n.Guest, "ping -c 1 -W 1 %s || true", peer.IP); strings.Contains(out, "1 received") {
			t.Errorf("after %q the guest still reaches its peer", step.away)
		}
		for _, c := range step.back {
			host(t, s, c, n.TAP)
		}
		works()
	}
	_ = flood.Signal(syscall.SIGTERM)
	_, _ = flood.Wait()
	if down := must(t, n.Guest, "cat /sys/class/net/eth0/carrier_down_count"); down != "3" {
		t.Errorf("the carrier was lost %s times, want 3", down)
	}
}

// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

func TestDevice_LspciShowsIdentityBARsAndCapabilities(t *testing.T) {
	for _, n := range two.Nodes {
		out := must(t, n.Guest, "lspci -nnvv -d 1dd8:1002")
		wantContains(t, "lspci", out, "[1dd8:1002]", "[1dd8:5400]", "[size=64K]", "[size=4M]",
			"MSI-X: Enable+ Count=128", "Kernel driver in use: ionic", "Express (v2) Endpoint")
		if strings.Count(out, "Region ") != 2 {
			t.Errorf("want two memory regions:\n%s", out)
		}
	}
}

func TestDevice_EthtoolShowsDriverLinkAndSpeed(t *testing.T) {
	for _, n := range two.Nodes {
		wantContains(t, "ethtool -i", must(t, n.Guest, "ethtool -i eth0"), "driver: ionic", "firmware-version: rocm-ernic-1.0")
		wantContains(t, "ethtool", must(t, n.Guest, "ethtool eth0"), "Speed: 100000Mb/s", "Link detected: yes")
		wantContains(t, "ip link", must(t, n.Guest, "ip link show eth0"), n.MAC, "LOWER_UP")
	}
}

func TestDevice_IbvDevinfoShowsAnActivePort(t *testing.T) {
	for _, n := range two.Nodes {
		out := must(t, n.Guest, "ibv_devinfo -v")
		wantContains(t, "ibv_devinfo", out, "ionic_0", "PORT_ACTIVE", "vendor_id:			0x1dd8", "RoCE v2", "::ffff:"+n.IP)
	}
}

func TestEthernet_PingBothWays(t *testing.T) {
	for i, n := range two.Nodes {
		peer := two.Nodes[1-i]
		must(t, n.Guest, "ping -c 1 -w 60 "+peer.IP) // the two know each other's MAC address
		for _, size := range []int{0, 56, 1472, 8000} {
			out := must(t, n.Guest, fmt.Sprintf("ping -i 0.05 -c 10 -W 60 -s %d %s", size, peer.IP))
			sent, got, err := toolout.ParsePing(out)
			if err != nil || sent != 10 || got != 10 {
				t.Errorf("ping of %d bytes from %s: %d of %d answered (%v)", size, n.Name, got, sent, err)
			}
		}
	}
}

func TestEthernet_IperfBothWays(t *testing.T) {
	p := pair()
	for _, reverse := range []string{"", "-R"} {
		port := p.Port()
		o, err := p.Run(t.Context(), port, fmt.Sprintf("iperf3 -s -1 -p %d", port),
			fmt.Sprintf("iperf3 -c %s -p %d -t 3 -J %s", two.Nodes[0].IP, port, reverse))
		if err != nil {
			t.Fatal(err)
		}
		rate, err := toolout.ParseIperf(o.Client.Stdout)
		if err != nil || rate < 1e6 {
			t.Errorf("iperf3 %s: %.0f bits/s, %v", reverse, rate, err)
		}
		t.Logf("iperf3 %s: %.0f Mbit/s", reverse, rate/1e6)
	}
}

func TestErnictl_NodesShowWhatIsTrue(t *testing.T) {
	eventually(t, func(ctx context.Context) error {
		nodes, err := two.ListNodes(ctx)
		if err != nil {
			return err
		}
		if len(nodes) != 3 || nodes[0].ID != 0 {
			return fmt.Errorf("want the manager and two workers, got %+v", nodes)
		}
		for i, n := range two.Nodes {
			l := nodes[i+1]
			// Nobody had an id before them: they have the lowest.
			if l.ID != uint32(i+1) || l.Name != n.Name || l.State != "alive" || !l.GuestAttached {
				return fmt.Errorf("node %d is shown as %+v", i+1, l)
			}
		}
		return nil
	})
	table, err := two.Ernictl(t.Context(), "nodes")
	if err != nil {
		t.Fatal(err)
	}
	wantContains(t, "ernictl nodes", table, "ID", "NAME", "STATE", "vm1", "vm2", "alive")
}

func TestErnictl_GidsShowTheGuestsAddresses(t *testing.T) {
	// An address that has never been used is nobody's yet.
	for i, n := range two.Nodes {
		must(t, n.Guest, "ping -c 1 -w 60 "+two.Nodes[1-i].IP)
	}
	for _, n := range two.Nodes {
		id := nodeID(t, n)
		// What the guest's kernel holds must be claimed, all of it.
		eventually(t, func(ctx context.Context) error {
			own := must(t, n.Guest, "cat /sys/class/infiniband/ionic_0/ports/1/gids/* | sort -u | grep -v '^0000:0000:0000:0000:0000:0000:0000:0000$'")
			gids, err := two.ListGIDs(ctx)
			if err != nil {
				return err
			}
			for _, g := range strings.Fields(own) {
				if err := claimed(t, gids, g, uint32(id)); err != nil {
					return fmt.Errorf("%s: %w", n.Name, err)
				}
			}
			return nil
		})
	}
}

// claimed reports whether a GID is listed as one of a node, and active.
func claimed(t *testing.T, gids []site.ListedGID, gid string, node uint32) error {
	t.Helper()
	for _, l := range gids {
		if expand(t, l.GID) == gid {
			if l.Node != node || l.State != "active" {
				return fmt.Errorf("%s is shown as %+v, want node %d", gid, l, node)
			}
			return nil
		}
	}
	return fmt.Errorf("GID %s of the guest is claimed by nobody: %+v", gid, gids)
}

func TestDevice_NeitherKernelNorQEMUComplains(t *testing.T) {
	for _, n := range two.Nodes {
		quietKernel(t, n.Guest)
		for line := range strings.Lines(n.Guest.QEMULog()) {
			// How the lab spells its own options is no matter of the device.
			if !strings.Contains(line, "is deprecated") {
				t.Errorf("%s: QEMU complains: %s", n.Name, line)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// shape is a NIC profile and what a guest with six processors makes of it.
type shape struct {
	name    string
	profile string // a built-in one, or the text of a file
	// combined queue pairs, interrupt vectors, and whether there is an RDMA device.
	queues, vectors int
	rdma            bool
	ethtool         []string
	more            []says // with %s for the interface
}

var shapes = []shape{
	{
		name: "compat", profile: "compat", queues: 4, vectors: 1 + 4 + 6, rdma: true,
		ethtool: []string{"Speed: 100000Mb/s", "Port: Direct Attach Copper", "100000baseCR4/Full"},
		more: []says{
			{command: "ip -d link show dev %s", want: []string{"maxmtu 9198"}},
			{command: "ethtool -i %s", want: []string{"firmware-version: rocm-ernic-1.0"}},
			{command: "ethtool -k %s", want: []string{"tx-checksumming: off", "rx-checksumming: off [fixed]", "tcp-segmentation-offload: off"}},
			{command: "devlink dev info", want: []string{"asic.id 0x0"}},
		},
	},
	{
		name: "small-vm", profile: "small-vm", queues: 2, vectors: 1 + 2 + 4, rdma: true,
		ethtool: []string{"Speed: 100000Mb/s"},
	},
	{
		name: "generic-100g", profile: "generic-100g", queues: 6, vectors: 1 + 6 + 6, rdma: true,
		ethtool: []string{"Speed: 100000Mb/s", "Port: FIBRE", "100000baseSR4/Full"},
		more:    []says{{command: "ethtool -k %s", want: []string{"tcp-segmentation-offload: on", "rx-checksumming: on"}}},
	},
	{
		name: "generic-400g", profile: "generic-400g", queues: 6, vectors: 1 + 6 + 6, rdma: true,
		ethtool: []string{"Speed: 400000Mb/s", "Port: FIBRE", "400000baseSR4/Full"},
	},
	{
		name: "everything else", queues: 3, vectors: 1 + 3 + 5, rdma: true,
		profile: "[identity]\nasic_type = giglio\nasic_rev = 7\nfw_version = 9.9.9-test (x)\n[link]\nspeed_mbps = 25000\nmtu_max = 1500\n" +
			"[stats]\ninterval_ms = 60000\n[queues]\neth = 3\nrdma_eqs = 5\nintr_vectors = auto\n",
		ethtool: []string{"Speed: 25000Mb/s", "Port: Direct Attach Copper", "25000baseCR/Full"},
		more: []says{
			{command: "ethtool -i %s", want: []string{"firmware-version: 9.9.9-test (x)"}},
			{command: "ip -d link show dev %s", want: []string{"maxmtu 1500"}},
			{command: "devlink dev info", want: []string{"asic.id 0x3", "asic.rev 0x7"}},
			{command: "cat /sys/class/net/%s/device/reset_method", want: []string{"flr"}},
			// Counters are brought up to date once a minute.
			{command: "for i in 1 2 3; do n=$(cat /sys/class/net/%[1]s/statistics/tx_packets); ping -q -c 5 -i 0.1 -W 1 -I %[1]s 192.168.201.99 >/dev/null || true; " +
				"test $(cat /sys/class/net/%[1]s/statistics/tx_packets) -eq $n && exit 0; done; exit 1"},
		},
	},
	{
		name: "few vectors and no transceiver", queues: 4, vectors: 6, rdma: false,
		profile: "[link]\nxcvr = none\n[queues]\nintr_vectors = 6\n[stats]\ninterval_ms = 50\n",
		ethtool: []string{"Speed: Unknown!", "Port: None"},
		more: []says{
			{command: "ping -q -c 5 -i 0.1 -W 1 -I %s 192.168.201.99 >/dev/null || true; " +
				"for i in $(seq 100); do test $(cat /sys/class/net/%[1]s/statistics/tx_packets) -gt 0 && exit 0; sleep 0.1; done; exit 1"},
		},
	},
}

// NICs of every shape are plugged into a running guest, whose driver makes of each
// what its profile says. Two of them become a bond.
func TestHotPlug(t *testing.T) {
	all := shapes
	if *long {
		for i := len(all); i < 20; i++ {
			all = append(all[:len(all):len(all)], shapes[1])
		}
	}
	logs := t.TempDir()
	if *logDir != "" {
		logs = filepath.Join(*logDir, "plug")
	}
	l, err := lab.New(t.Context(), lab.Options{
		Name: "plug", LogDir: logs, Progress: image.NewProgress(os.Stderr), Network: true, Taps: len(all),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.Diagnose(context.Background()))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	// A directory that the guest's configuration names is all that QEMU sees; the
	// sockets are where its own are.
	guests, err := l.Boot(t.Context(), guest.Config{Name: "plug", VCPUs: 6, SparePorts: len(all)})
	if err != nil {
		t.Fatal(err)
	}
	g := guests[0]
	must(t, g, "modprobe ionic; modprobe ionic_rdma; modprobe bonding max_bonds=0")
	rdma := 0
	for i, s := range all {
		nic := fmt.Sprintf("eth%d", i)
		socket := l.Socket(nic)
		args := []string{"--fabric", "loopback", "--socket", socket, "--lif", "tap:" + l.Network.Tap(i), "--name", nic,
			"--mac", fmt.Sprintf("02:aa:bb:cc:ee:%02x", i), "--metrics-listen", "off", "--log-level", "debug"}
		if strings.Contains(s.profile, "=") {
			args = append(args, profileFile(t, s.profile)...)
		} else {
			args = append(args, "--nic-profile", s.profile)
		}
		if _, err := l.Start(lab.Program{Name: "worker-" + nic, Path: filepath.Join(*bin, "ernic-worker"), Args: args}); err != nil {
			t.Fatal(err)
		}
		if err := l.WaitSocket(t.Context(), socket); err != nil {
			t.Fatal(err)
		}
		if err := g.HotPlug(t.Context(), guest.Device{Socket: socket}); err != nil {
			t.Fatal(err)
		}
		poll(t, g, "yes", "test -e /sys/class/net/%s && echo yes || echo no", nic)
		t.Run(s.name, func(t *testing.T) { shapeOf(t, g, nic, s) })
		if s.rdma {
			rdma++
		}
		poll(t, g, fmt.Sprint(rdma), "ls /sys/class/infiniband 2>/dev/null | wc -l")
		quiet(t, g, "RDMA", "rdma") // that there are too few vectors for it
	}
	t.Run("bond", func(t *testing.T) { bond(t, l, g) })
	quiet(t, g)
}

func shapeOf(t *testing.T, g *guest.Guest, nic string, s shape) {
	must(t, g, "ip link set %s up", nic)
	poll(t, g, "1", "cat /sys/class/net/%s/carrier", nic)
	must(t, g, "ip addr add 192.168.201.1/24 dev %s", nic)
	list := []says{
		{command: "ethtool " + nic, want: s.ethtool},
		{command: "ethtool -l " + nic + " | tail -n 5", want: []string{fmt.Sprintf("Combined: %d", s.queues)}},
		{command: "ls /sys/class/net/" + nic + "/device/msi_irqs | wc -l", want: []string{fmt.Sprint(s.vectors)}},
	}
	for _, m := range s.more {
		if strings.Contains(m.command, "%") {
			m.command = fmt.Sprintf(m.command, nic)
		}
		list = append(list, m)
	}
	check(t, g, list)
	must(t, g, "ip addr flush dev %s", nic)
}

// bond makes two NICs one, of which either can lose its link. A third one of the
// same guest is the other side.
func bond(t *testing.T, l *lab.Lab, g *guest.Guest) {
	must(t, g, `
ip netns add far
ip link set eth2 netns far
ip -n far addr add 192.168.206.2/24 dev eth2
ip -n far link set eth2 up
ip link add bond0 type bond mode active-backup miimon 100
ip link set eth0 down; ip link set eth1 down
ip link set eth0 master bond0; ip link set eth1 master bond0
ip addr add 192.168.206.1/24 dev bond0
ip link set bond0 up`)
	works := func() {
		t.Helper()
		must(t, g, "ip netns exec far ping -c 1 -w 60 192.168.206.1")
		must(t, g, "ping -q -i 0.05 -c 10 -w 60 -s 1400 192.168.206.2")
	}
	works()
	for _, nic := range []int{0, 1} {
		tap := l.Network.Tap(nic)
		if _, err := l.Run(t.Context(), "ip", "link", "set", tap, "down"); err != nil {
			t.Fatal(err)
		}
		poll(t, g, fmt.Sprintf("eth%d", 1-nic), "cat /sys/class/net/bond0/bonding/active_slave")
		works()
		if _, err := l.Run(t.Context(), "ip", "link", "set", tap, "up"); err != nil {
			t.Fatal(err)
		}
		poll(t, g, "1", "cat /sys/class/net/eth%d/carrier", nic)
	}
	works()
	must(t, g, "ip link del bond0; ip netns del far")
}

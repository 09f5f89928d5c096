// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

// says is a command for a guest and what it has to print. One with a refusal has to
// fail, and say why.
type says struct {
	command string
	want    []string
	refusal string
}

// check runs commands one after the other.
func check(t *testing.T, g *guest.Guest, list []says) {
	t.Helper()
	before := ""
	for _, c := range list {
		r, err := g.Run(t.Context(), guest.Shell(c.command+" 2>&1"))
		out := strings.Join(strings.Fields(r.Stdout), " ")
		switch {
		case c.refusal != "" && (err == nil || !strings.Contains(out, c.refusal)):
			t.Errorf("%s: exit status %d, want a refusal with %q\n%s", c.command, r.Code, c.refusal, r.Stdout)
		case c.refusal == "" && err != nil:
			t.Errorf("after %q: %s: %v", before, c.command, err)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("after %q: %s prints no %q\n%s", before, c.command, w, r.Stdout)
			}
		}
		before = c.command
	}
}

// works says that a node is reached, and that then nothing is lost. A guest without
// time for it may lose packets where its rings are short; not each time.
func works(address string) says {
	return says{
		command: fmt.Sprintf(`ping -q -c 1 -w 60 %s >/dev/null
for i in 1 2 3 4 5; do
  out=$(ping -q -i 0.02 -c 10 -W 20 %[1]s || true)
  case "$out" in *" 0%% packet loss"*) break;; esac
done
echo "$out"`, address),
		want: []string{" 0% packet loss"},
	}
}

func ethtool(t *testing.T, s *site.Site) {
	n, works := s.Nodes[0], works(s.Nodes[1].IP)
	check(t, n.Guest, []says{
		{command: "ethtool eth0", want: []string{"Speed: 100000Mb/s", "Duplex: Full", "Port: FIBRE", "Link detected: yes", "100000baseSR4/Full"}},
		{command: "ethtool -i eth0", want: []string{"driver: ionic", "firmware-version: rocm-ernic-1.0", "bus-info: 0000:01:00.0"}},
		{command: "ethtool -I eth0", want: []string{"Link detected: yes"}},
		{command: "ethtool -S eth0", want: []string{"rx_0_pkts:", "tx_3_pkts:", "frames_rx_ok:", "hw_rx_dropped:", "xdp_pass: 0"}},
		{command: "ethtool -T eth0", want: []string{"PTP Hardware Clock: none"}}, // none is offered
		{command: "ethtool -t eth0", refusal: "Operation not supported"},
		{command: "ethtool -d eth0 raw on | head -c 4", want: []string{"IVED"}},
		{command: "ethtool -d eth0", want: []string{"0x0000: 49 56 45 44 01 04"}},
		{command: "ethtool -m eth0", want: []string{"(QSFP28)", "Vendor name"}},

		// How many queues there are, together or with interrupts of their own.
		{command: "ethtool -l eth0", want: []string{"Combined: 4", "RX: 2", "TX: 2"}},
		{command: "ethtool -L eth0 combined 2; ethtool -l eth0 | tail -n 2", want: []string{"Combined: 2"}}, works,
		{command: "ethtool -L eth0 combined 0 rx 2 tx 2; ethtool -l eth0 | tail -n 5", want: []string{"RX: 2 TX: 2"}}, works,
		{command: "ethtool -C eth0 adaptive-tx on tx-usecs 8; ethtool -c eth0", want: []string{"TX: on", "tx-usecs: 8"}}, works,
		{command: "ethtool -C eth0 adaptive-tx off; ethtool -L eth0 combined 4 rx 0 tx 0; ethtool -l eth0 | tail -n 2", want: []string{"Combined: 4"}}, works,
		{command: "ethtool -L eth0 combined 5", refusal: "exceeds maximum"},

		{command: "ethtool -g eth0", want: []string{"RX: 16384", "TX: 8192"}},
		{command: "ethtool -G eth0 rx 512 tx 256; ethtool -g eth0 | tail -n 12", want: []string{"RX: 512", "TX: 256"}}, works,
		{command: "ethtool -G eth0 rx 16384 tx 8192; ethtool -g eth0 | tail -n 12", want: []string{"RX: 16384", "TX: 8192"}}, works,
		// The driver does not wake a transmit queue with fewer entries up again.
		{command: "ethtool -G eth0 rx 4 tx 64"}, works,
		{command: "ethtool -G eth0 rx 4096 tx 1024"}, works,
		{command: "ethtool -G eth0 rx 1000", refusal: "Invalid argument"},

		{command: "ethtool -c eth0", want: []string{"rx-usecs: 64"}},
		{command: "ethtool -C eth0 rx-usecs 200; ethtool -c eth0", want: []string{"rx-usecs: 200"}}, works,
		{command: "ethtool -C eth0 rx-usecs 0; ethtool -c eth0", want: []string{"rx-usecs: 0"}}, works,
		{command: "ethtool -C eth0 adaptive-rx on; ethtool -c eth0", want: []string{"RX: on"}}, works,
		{command: "ethtool -C eth0 adaptive-rx off rx-usecs 64"},
		{command: "ethtool -C eth0 rx-usecs 4064", refusal: "out of range"},

		{command: "ethtool -x eth0", want: []string{"with 4 RX ring(s)", "0: 0 1 2 3", "toeplitz: on"}},
		{command: "ethtool -X eth0 equal 1; ethtool -x eth0", want: []string{"0: 0 0 0 0", "120: 0 0 0 0"}}, works,
		{command: "ethtool -X eth0 weight 1 3; ethtool -x eth0", want: []string{"120: 1 1 1 1"}}, works,
		{command: "K=$(for i in $(seq 40); do printf '%02x:' $i; done); ethtool -X eth0 hkey ${K%:} equal 4; ethtool -x eth0", want: []string{"01:02:03:04", "0: 0 1 2 3"}}, works,
		{command: "ethtool -X eth0 default"}, works,

		{command: "ethtool -k eth0", want: []string{"rx-checksumming: on", "receive-hashing: on", "rx-vlan-filter: on"}},
		{command: "ethtool -K eth0 rxhash off; ethtool -k eth0", want: []string{"receive-hashing: off"}}, works,
		{command: "ethtool -K eth0 rxhash on"},
		{command: "ethtool -K eth0 rx-vlan-filter off; ethtool -k eth0", want: []string{"rx-vlan-filter: off"}}, works,
		{command: "ethtool -K eth0 rx-vlan-filter on"},

		{command: "ethtool -A eth0 rx on tx on; ethtool -a eth0", want: []string{"RX: on", "TX: on"}},
		{command: "ethtool -A eth0 rx off tx off; ethtool -a eth0", want: []string{"RX: off", "TX: off"}},
		{command: "ethtool --show-fec eth0", want: []string{"Supported/Configured FEC encodings"}},
		{command: "ethtool -s eth0 autoneg off speed 100000; ethtool eth0", want: []string{"Speed: 100000Mb/s"}},
		{command: "ethtool --set-fec eth0 encoding rs; ethtool --show-fec eth0", want: []string{"Active FEC encoding: RS"}},
		{command: "ethtool --set-fec eth0 encoding off; ethtool --show-fec eth0", want: []string{"Active FEC encoding: Off"}},
		{command: "ethtool -r eth0"},
	})
	carrier(t, n, true)
	check(t, n.Guest, []says{
		works,
		{command: "ethtool --set-tunable eth0 rx-copybreak 0; ethtool --get-tunable eth0 rx-copybreak", want: []string{"rx-copybreak: 0"}}, works,
		{command: "ethtool --set-tunable eth0 rx-copybreak 256"},
		{command: "ethtool -G eth0 tx-push on", refusal: "not supported"}, // there is no memory on the card
	})
	transfer(t, s, s.Nodes[0].IP)
}

func devlink(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	check(t, n.Guest, []says{
		{command: "devlink dev show", want: []string{"pci/0000:01:00.0"}},
		{command: "devlink dev info pci/0000:01:00.0", want: []string{
			"driver ionic", "serial_number 02aabbccdd01", "asic.id 0x4", "asic.rev 0x0", "fw rocm-ernic-1.0",
		}},
		{command: "devlink port show", want: []string{"type eth netdev eth0 flavour physical"}},
	})
	quiet(t, n.Guest)
	before := readStats(t, n)
	check(t, n.Guest, []says{
		{command: "mkdir -p /lib/firmware; head -c 5000 /dev/urandom >/lib/firmware/ernic.tar; devlink dev flash pci/0000:01:00.0 file ernic.tar", refusal: "download failed"},
		{command: "devlink dev info pci/0000:01:00.0", want: []string{"fw rocm-ernic-1.0"}}, // and goes on
	})
	quiet(t, n.Guest, "download failed", "FW_DOWNLOAD", "IONIC_RC_ENOSUPP")
	after := nextStats(t, n, before)
	if was, is := before.number(t, "Device Statistics", "refused_commands"), after.number(t, "Device Statistics", "refused_commands"); is <= was {
		t.Errorf("refused_commands went from %d to %d", was, is)
	}
	if !strings.Contains(n.Worker.Log(), "the device does not support FW_DOWNLOAD") {
		t.Error("the worker's log does not say what it refused")
	}
	ping(t, n, s.Nodes[1].IP, "")
}

// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"strings"
	"syscall"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
)

// pci is where the card is in a guest.
const pci = "0000:01:00.0"

// flood lets both guests send to each other as fast as they can until the returned
// function is called.
func flood(t *testing.T, s *site.Site) (stop func()) {
	t.Helper()
	var running []*guest.Command
	for i, n := range s.Nodes {
		peer := s.Nodes[1-i]
		for _, size := range []int{56, 1400} {
			// Neighbours that are not resolved any more would end it.
			c, err := n.Guest.Start(t.Context(), shell("while :; do ping -q -f -w 60 -s %d %s; sleep 0.05; done >/dev/null 2>&1", size, peer.IP))
			if err != nil {
				t.Fatal(err)
			}
			running = append(running, c)
		}
	}
	return func() {
		for _, c := range running {
			_ = c.Signal(syscall.SIGKILL)
			_, _ = c.Wait()
		}
		for _, n := range s.Nodes {
			must(t, n.Guest, "pkill -9 ping || true")
		}
	}
}

// reaches says that a node is back: its link, its RDMA port and its neighbour.
func reaches(t *testing.T, s *site.Site, n *site.Node) {
	t.Helper()
	carrier(t, n, true)
	peer := s.Nodes[1-n.Index]
	must(t, n.Guest, "ping -c 1 -w 60 %s", peer.IP)
	ping(t, n, peer.IP, "-s 1400")
}

// reconfigure changes queues and rings while data flows; nothing of it is lost to
// TCP.
func reconfigure(t *testing.T, s *site.Site) {
	for _, n := range s.Nodes {
		job, err := n.Guest.Start(t.Context(), shell(`
for i in $(seq %d); do
  ethtool -G eth0 rx 256 tx 64
  ethtool -L eth0 combined 1
  ethtool -G eth0 rx 4096 tx 1024
  ethtool -L eth0 combined 0 rx 2 tx 2
  ip link set eth0 mtu 4000
  ethtool -L eth0 combined 4 rx 0 tx 0
  ip link set eth0 mtu 1500
done`, times(2)))
		if err != nil {
			t.Fatal(err)
		}
		for busy := true; busy; {
			transfer(t, s, s.Nodes[0].IP)
			select {
			case <-job.Done():
				busy = false
			default:
			}
		}
		if r, err := job.Wait(); err != nil {
			t.Errorf("%s: %v %s", n.Name, err, r.Stderr)
		}
		reaches(t, s, n)
	}
}

func downAndUp(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	stop := flood(t, s)
	for range 20 {
		must(t, n.Guest, "ip link set eth0 down; ip link set eth0 up")
	}
	// And slower, so that each time traffic is under way again.
	for range times(3) {
		must(t, n.Guest, "ip link set eth0 down; sleep 0.2; ip link set eth0 up")
		poll(t, n.Guest, "1", "cat /sys/class/net/eth0/carrier")
		must(t, n.Guest, "ping -c 1 -w 60 %s", s.Nodes[1].IP)
	}
	stop()
	reaches(t, s, n)
}

// bringUp configures a guest that has just got its card back.
func bringUp(t *testing.T, n *site.Node) {
	t.Helper()
	if err := n.BringUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func modules(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	stop := flood(t, s)
	for range times(3) {
		must(t, n.Guest, "modprobe -r rdma_ucm; modprobe -r ionic_rdma; modprobe -r ionic; test ! -e /sys/class/net/eth0")
		bringUp(t, n)
	}
	stop()
	reaches(t, s, n)
}

func unbindAndBind(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	stop := flood(t, s)
	for range times(3) {
		must(t, n.Guest, "echo %s >/sys/bus/pci/drivers/ionic/unbind; test ! -e /sys/class/net/eth0; echo %[1]s >/sys/bus/pci/drivers/ionic/bind", pci)
		bringUp(t, n)
	}
	stop()
	reaches(t, s, n)
}

// pciReset is a function-level reset under the driver's feet, which prepares for
// it and sets the card up again.
func pciReset(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	check(t, n.Guest, []says{{command: "cat /sys/bus/pci/devices/" + pci + "/reset_method", want: []string{"flr"}}})
	stop := flood(t, s)
	for range times(3) {
		must(t, n.Guest, "echo 1 >/sys/bus/pci/devices/%s/reset", pci)
		carrier(t, n, true)
		must(t, n.Guest, "ping -c 1 -w 60 %s", s.Nodes[1].IP)
	}
	stop()
	reaches(t, s, n)
}

// reboots restarts a guest, by its kernel and by the reset button, while its peer
// sends.
func reboots(t *testing.T, s *site.Site) {
	n, peer := s.Nodes[0], s.Nodes[1]
	noise, err := peer.Guest.Start(t.Context(), shell("ping -q -f -w 3600 -s 1400 %s >/dev/null 2>&1", n.IP))
	if err != nil {
		t.Fatal(err)
	}
	for i := range times(2) {
		restart := n.Guest.Reboot
		if i%2 == 1 {
			restart = n.Guest.Reset
		}
		err := restart(t.Context())
		if err != nil && strings.Contains(n.Guest.Console(), guest.EmulatorRace) {
			t.Logf("a race of the emulator, again: %v", err)
			err = n.Guest.Reset(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		bringUp(t, n)
		carrier(t, n, true)
		quiet(t, n.Guest)
	}
	_ = noise.Signal(syscall.SIGKILL)
	_, _ = noise.Wait()
	reaches(t, s, n)
}

// newWorkers ends a worker and its guest and starts both anew.
func newWorkers(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	for i := range times(1) {
		if i%2 == 0 {
			if err := n.Worker.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		} else {
			n.Worker.Kill()
		}
		n.Guest.Kill()
		n.Guest = nil
		if err := s.StartWorker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if err := s.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		reaches(t, s, n)
		quiet(t, n.Guest)
	}
}

// memory lets a guest give up its card in the middle of traffic and use what was the
// card's for a file that takes most of its memory.
func memory(t *testing.T, s *site.Site) {
	n := s.Nodes[0]
	stop := flood(t, s)
	defer stop()
	cycles := []struct{ name, away, back string }{
		{"driver unbound", "echo " + pci + " >/sys/bus/pci/drivers/ionic/unbind", "echo " + pci + " >/sys/bus/pci/drivers/ionic/bind"},
		{"down", "ip link set eth0 down", "ip link set eth0 up"},
		{"reset and unbound", "echo 1 >/sys/bus/pci/devices/" + pci + "/reset; echo " + pci + " >/sys/bus/pci/drivers/ionic/unbind",
			"echo " + pci + " >/sys/bus/pci/drivers/ionic/bind"},
		{"modules unloaded", "modprobe -r rdma_ucm; modprobe -r ionic_rdma; modprobe -r ionic", "modprobe ionic"},
	}
	if !*long {
		cycles = cycles[:1]
	}
	for _, c := range cycles {
		must(t, n.Guest, "mountpoint -q /mnt || mount -t tmpfs -o size=800m none /mnt; %s; head -c 600M /dev/zero >/mnt/f; rm /mnt/f", c.away)
		if found := must(t, n.Guest, "dmesg | grep -i -e 'memory corruption' -e 'single bit error' -e 'bad page' || true"); found != "" {
			t.Errorf("%s: %s", c.name, found)
		}
		must(t, n.Guest, "%s", c.back)
		if c.name != "down" {
			bringUp(t, n)
		}
		carrier(t, n, true)
		must(t, n.Guest, "ping -c 1 -w 60 %s", s.Nodes[1].IP)
	}
	must(t, n.Guest, "umount /mnt")
}

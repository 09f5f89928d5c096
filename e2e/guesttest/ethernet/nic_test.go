// SPDX-License-Identifier: Apache-2.0

package ethernet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ernic-dev/ernic/e2e/site"
)

// profileFile writes a NIC profile and returns the arguments for it.
func profileFile(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nic.ini")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"--nic-profile", path}
}

// wellEquipped is a NIC with offloads, and with a function-level reset, which
// those with asic_type none do not have.
const wellEquipped = "[identity]\nasic_type = salina\n[link]\nxcvr = fiber\noffloads = on\n"

// What an administrator of a guest does to a NIC, one thing after the other on the
// same two guests: each leaves the NIC as it was, the guest's kernel never
// complains, and in the end the workers hold no more than at the start.
func TestNIC(t *testing.T) {
	// The guests' kernels fill each free page with a pattern and look at it before
	// they use the page: a device that writes late is found out.
	s := start(t, site.Options{
		Name: "nic", OverMesh: true, Stats: true, WorkerArgs: profileFile(t, wellEquipped), Append: "page_poison=1",
	})
	for _, n := range s.Nodes {
		must(t, n.Guest, "dmesg | grep 'CONFIG_PAGE_POISONING is on'")
		quiet(t, n.Guest)
	}
	var before []resources
	for _, n := range s.Nodes {
		before = append(before, settled(t, n))
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, *site.Site)
	}{
		{"offloads", offloads},
		{"ethtool", ethtool},
		{"interrupts coalesce", coalescing},
		{"devlink", devlink},
		{"ip link", ipLink},
		{"VLANs", vlans},
		{"bridge", bridge},
		{"promiscuous", promiscuous},
		{"XDP", xdp},
		{"queues change under load", reconfigure},
		{"down and up under flood", downAndUp},
		{"modules unloaded and loaded", modules},
		{"driver unbound and bound", unbindAndBind},
		{"PCI reset", pciReset},
		{"memory is left alone", memory},
		{"guest reboots", reboots},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, s)
			for _, n := range s.Nodes {
				quiet(t, n.Guest)
			}
		})
	}
	t.Run("nothing leaks", func(t *testing.T) {
		for i, n := range s.Nodes {
			if n.Worker != nil {
				settled(t, n).noMoreThan(t, n.Name, before[i])
			}
		}
	})
	t.Run("worker starts again for a new guest", func(t *testing.T) { newWorkers(t, s) })
}

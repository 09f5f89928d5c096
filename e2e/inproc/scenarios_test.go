// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"net/netip"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
)

// topology is where the two ends of a scenario are and who they are.
type topology struct {
	name   string
	mesh   bool // two guests on two workers; else one guest talks to itself
	kernel bool // the ends are users in the kernel; else two processes
	ipv6   bool
}

var topologies = []topology{
	{name: "loopback/process"},
	{name: "loopback/kernel/ipv6", kernel: true, ipv6: true},
	{name: "mesh/process/ipv6", mesh: true, ipv6: true},
	{name: "mesh/kernel", mesh: true, kernel: true},
}

// scenario is run over every topology.
type scenario struct {
	name string
	run  func(t *testing.T, a, b *end)
	// only restricts the scenario to some topologies.
	only func(topology) bool
}

func inKernel(p topology) bool  { return p.kernel }
func inProcess(p topology) bool { return !p.kernel }

func TestP12_ScenariosAreTheSameOnEveryLink(t *testing.T) {
	for _, p := range topologies {
		t.Run(p.name, func(t *testing.T) {
			nodes, guests := p.build(t)
			addr := func(i int) netip.Addr {
				if p.ipv6 {
					return guests[i].LinkLocal()
				}
				return nodes[i].addr
			}
			for _, s := range scenarios() {
				if s.only != nil && !s.only(p) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					s.run(t, newEnd(t, nodes[0], guests[0], p.kernel, addr(0)), newEnd(t, nodes[1], guests[1], p.kernel, addr(1)))
				})
			}
		})
	}
}

// build starts the nodes of a topology and their guests.
func (p topology) build(t testing.TB) (nodes [2]*node, guests [2]*guest.Guest) {
	t.Helper()
	if !p.mesh {
		n := startNode(t, 1, "")
		g := n.boot(guest.Options{})
		return [2]*node{n, n}, [2]*guest.Guest{g, g}
	}
	m := startManager(t)
	for i := range nodes {
		nodes[i] = startNode(t, i+1, m)
		guests[i] = nodes[i].boot(guest.Options{})
	}
	return nodes, guests
}

func scenarios() []scenario {
	var all []scenario
	for _, group := range [][]scenario{
		reliableScenarios, errorScenarios, datagramScenarios, unreliableScenarios, memoryScenarios, eventScenarios, queueScenarios,
	} {
		all = append(all, group...)
	}
	return all
}

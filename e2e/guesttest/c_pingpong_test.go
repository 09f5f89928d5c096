// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

// pingpongCase is one run of an ibv_*_pingpong program. The payload is checked
// in every one.
type pingpongCase struct {
	kind     string // rc, uc, ud
	size     int
	mtu      int // of the path; 0 for UD, which has none
	events   bool
	loopback bool // both programs in one guest
	tier     tier
}

func (c pingpongCase) name() string {
	s := fmt.Sprintf("%s %d B", c.kind, c.size)
	if c.mtu != 0 {
		s += fmt.Sprintf(" mtu %d", c.mtu)
	}
	if c.events {
		s += " events"
	}
	if c.loopback {
		s += " loopback"
	}
	return s
}

// iterations keeps a run short: half a GiB at most.
func (c pingpongCase) iterations() int { return min(200, max(10, 16<<20/c.size)) }

// pingpongCases are those that fit into packets of up to limit bytes and none
// that fit into less than above.
func pingpongCases(above, limit int) (l []pingpongCase) {
	add := func(c pingpongCase) {
		if c.tier.runs() {
			l = append(l, c)
		}
	}
	for _, kind := range []string{"rc", "uc"} {
		for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
			if mtu <= above || mtu > limit {
				continue
			}
			for _, size := range []int{1, 64, 4095, 65536, 1 << 20} {
				for _, events := range []bool{false, true} {
					few := kind == "uc" && size == 4095 && mtu == 1024 ||
						mtu == 4096 && size == 1<<20 && !events
					add(pingpongCase{kind: kind, size: size, mtu: mtu, events: events, tier: tier(few)})
				}
			}
			add(pingpongCase{kind: kind, size: 65536, mtu: mtu, loopback: true, tier: tier(mtu == 1024)})
		}
	}
	for _, size := range []int{1, 64, 1000, 1024, 2048, 4096} {
		if size > above && size <= limit {
			for _, events := range []bool{false, true} {
				add(pingpongCase{kind: "ud", size: size, events: events, tier: tier(size == 1024 || size == 4096)})
			}
		}
	}
	if above == 0 {
		add(pingpongCase{kind: "ud", size: 1000, loopback: true, tier: always})
	}
	return l
}

func TestPingpong(t *testing.T) {
	for _, c := range pingpongCases(0, 1024) {
		conform(t, "ibv_*_pingpong", c.name(), c.run)
	}
	setMTU(t, 4200, 4096)
	for _, c := range pingpongCases(1024, 4096) {
		conform(t, "ibv_*_pingpong", c.name(), c.run)
	}
}

func (c pingpongCase) run(t *testing.T) string {
	var env []string
	if c.kind == "uc" {
		env = append(env, guest.PatchedProvider)
	}
	server, client := two.Nodes[0], two.Nodes[1]
	if c.loopback {
		client = server
	}
	p := between(server, client, env...)
	port := p.Port()
	args := func(n *site.Node) string {
		s := fmt.Sprintf("ibv_%s_pingpong -c -g %s -p %d -s %d -n %d -r %d", c.kind, gidIndex(t, n.Guest, n.IP), port, c.size, c.iterations(), 500)
		if c.mtu != 0 {
			s += fmt.Sprintf(" -m %d", c.mtu)
		}
		if c.events {
			s += " -e"
		}
		return s
	}
	o := run(t, p, port, args(server), args(client)+" "+server.IP)
	var last toolout.Pingpong
	for _, r := range []guest.Result{o.Server, o.Client} {
		s, err := toolout.ParsePingpong(r.Stdout + r.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		// Both directions are counted.
		if s.Iterations != c.iterations() || s.Bytes != int64(2*c.size*c.iterations()) {
			t.Errorf("moved %+v, want %d times %d bytes", s, c.iterations(), c.size)
		}
		last = s
	}
	return fmt.Sprintf("%d iterations, %.0f us", last.Iterations, last.PerIter)
}

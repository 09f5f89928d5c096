// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// cmCase is a pair of librdmacm programs.
type cmCase struct {
	name           string
	server, client string // PORT, SERVER and OWN stand for the port and the addresses
	tcp            bool   // the server listens on TCP, not by rdma_cm
	env            []string
	swapped        bool // the server is in the second guest
	loopback       bool // both are in the first
	check          func(t *testing.T, server, client string) (note string)
	tier           tier
}

func cmCases() (l []cmCase) {
	add := func(c cmCase) {
		if c.tier.runs() {
			l = append(l, c)
		}
	}
	patched := []string{guest.PatchedProvider}
	// rping: SEND, READ and WRITE in turn, the payload is compared (-V). At the
	// end it reads what was flushed, which the released provider cannot do.
	for _, p := range []struct {
		count, size int
		tier        tier
	}{{1000, 64, longOnly}, {1000, 100, longOnly}, {1000, 4096, longOnly}, {1000, 65535, longOnly}, {200, 4096, always}} {
		for _, swapped := range []bool{false, true} {
			where := map[bool]string{false: "to guest 1", true: "to guest 2"}[swapped]
			options := fmt.Sprintf("-V -C %d -S %d -p PORT", p.count, p.size)
			add(cmCase{
				name:   fmt.Sprintf("rping %d x %d B %s", p.count, p.size, where),
				server: "rping -s " + options + " -a 0.0.0.0",
				client: "rping -c -v " + options + " -a SERVER",
				env:    patched, swapped: swapped, check: wantPings(p.count), tier: p.tier,
			})
		}
	}
	add(cmCase{
		name:   "rping 1000 x 4096 B, released provider",
		server: "rping -s -V -C 1000 -S 4096 -a 0.0.0.0 -p PORT", client: "rping -c -v -V -C 1000 -S 4096 -p PORT -a SERVER",
		check: wantPings(1000),
	})
	add(cmCase{
		name:   "rping 1000 x 4096 B, QP made by the program (-q)",
		server: "rping -s -q -V -C 1000 -S 4096 -a 0.0.0.0 -p PORT", client: "rping -c -q -v -V -C 1000 -S 4096 -p PORT -a SERVER",
		env: patched, check: wantPings(1000),
	})
	add(cmCase{
		name:   "rping 200 x 1000 B loopback",
		server: "rping -s -V -C 200 -S 1000 -a 0.0.0.0 -p PORT", client: "rping -c -v -V -C 200 -S 1000 -p PORT -a SERVER",
		env: patched, loopback: true, check: wantPings(200), tier: always,
	})
	for _, p := range []struct{ program, sizes string }{
		{"ucmatose", "-c 1 -C 100 -S 100"}, {"ucmatose", "-c 20 -C 50 -S 4096"}, {"ucmatose", "-c 100 -C 10 -S 65536"},
		{"udaddy", "-c 1 -C 100 -S 100"}, {"udaddy", "-c 20 -C 50 -S 900"}, {"udaddy", "-c 100 -C 10 -S 900"},
	} {
		for _, swapped := range []bool{false, true} {
			where := map[bool]string{false: "to guest 1", true: "to guest 2"}[swapped]
			c := cmCase{
				name:   fmt.Sprintf("%s %s %s", p.program, p.sizes, where),
				server: fmt.Sprintf("%s %s", p.program, p.sizes),
				client: fmt.Sprintf("%s %s -s SERVER", p.program, p.sizes),
				check:  wantStatusZero, swapped: swapped, tier: tier(!swapped && strings.Contains(p.sizes, "-c 20")),
			}
			if p.program == "ucmatose" { // udaddy has one port only
				c.server, c.client = c.server+" -p PORT", c.client+" -p PORT"
			}
			add(c)
		}
	}
	// One message inline each way.
	add(cmCase{
		name: "rdma_client", server: "rdma_server -p PORT", client: "rdma_client -s SERVER -p PORT",
		check: wantInline, tier: always,
	})
	for _, c := range streamCases() {
		add(c)
	}
	for _, c := range []struct {
		conns, threads int
		tier           tier
	}{{100, 1, always}, {200, 1, longOnly}, {200, 4, longOnly}, {1000, 4, longOnly}} {
		options := fmt.Sprintf("-c %d -n %d", c.conns, c.threads)
		add(cmCase{
			name:   "cmtime " + options,
			server: "cmtime -L " + options + " -p PORT -C SERVER -b OWN",
			client: "cmtime " + options + " -p PORT -C SERVER -b OWN",
			tcp:    true, check: wantConnections(c.conns), tier: c.tier,
		})
	}
	return l
}

const cmGroup = "librdmacm"

func TestRDMACM(t *testing.T) {
	for _, c := range cmCases() {
		conform(t, cmGroup, c.name, c.run)
	}
	for _, c := range endlessCases() {
		conform(t, cmGroup, c.name, c.run)
	}
	found.Remark(cmGroup, streamRemark)
}

func (c cmCase) run(t *testing.T) string {
	server, client := two.Nodes[0], two.Nodes[1]
	if c.swapped {
		server, client = client, server
	}
	if c.loopback {
		client = server
	}
	before := resources(t)
	p := between(server, client, c.env...)
	port := p.Port()
	fill := func(format, own string) string {
		return strings.NewReplacer("PORT", fmt.Sprint(port), "SERVER", server.IP, "OWN", own).Replace(format)
	}
	wait := 0
	if c.tcp {
		wait = port
	}
	o := run(t, p, wait, fill(c.server, server.IP), fill(c.client, client.IP))
	note := c.check(t, o.Server.Stdout+o.Server.Stderr, o.Client.Stdout+o.Client.Stderr)
	sameResources(t, before)
	return note
}

// resources counts the RDMA objects of both guests.
func resources(t *testing.T) string {
	t.Helper()
	var s []string
	for _, n := range two.Nodes {
		s = append(s, oneLine(must(t, n.Guest, "rdma resource show ionic_0")))
	}
	return strings.Join(s, "; ")
}

var pingLine = regexp.MustCompile(`(?m)^ping data: rdma-ping-(\d+):`)

func wantPings(n int) func(*testing.T, string, string) string {
	return func(t *testing.T, _, client string) string {
		t.Helper()
		got := pingLine.FindAllStringSubmatch(client, -1)
		if len(got) != n || got[n-1][1] != fmt.Sprint(n-1) {
			t.Errorf("%d pings, want %d:\n%.2000s", len(got), n, client)
		}
		return fmt.Sprintf("%d pings", len(got))
	}
}

func wantStatusZero(t *testing.T, server, client string) string {
	t.Helper()
	for _, out := range []string{server, client} {
		if !strings.Contains(out, "return status 0") {
			t.Errorf("no success:\n%.2000s", out)
		}
	}
	return ""
}

func wantInline(t *testing.T, server, client string) string {
	t.Helper()
	wantContains(t, "server", server, "rdma_server: end 0")
	wantContains(t, "client", client, "rdma_client: end 0")
	if strings.Contains(server+client, "doesn't support IBV_SEND_INLINE") {
		t.Errorf("no inline data:\n%s\n%s", server, client)
	}
	return ""
}

// A step of cmtime: its name, then total in ms first.
var connectLine = regexp.MustCompile(`(?m)^(?:cm )?connect\s*:?\s+([\d.]+)`)

func wantConnections(n int) func(*testing.T, string, string) string {
	return func(t *testing.T, server, client string) string {
		t.Helper()
		wantContains(t, "server", server, fmt.Sprintf("Accept (%d) QPs test", n))
		wantContains(t, "client", client, fmt.Sprintf("Connect (%d) QPs test", n), fmt.Sprintf("Connect (%d) test - no QPs", n))
		m := connectLine.FindStringSubmatch(client)
		if m == nil {
			t.Fatalf("no time of the step connect:\n%.4000s", client)
		}
		return "all connections made in " + m[1] + " ms"
	}
}

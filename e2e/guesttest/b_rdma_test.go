// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

var shared = &site.Pair{}

// pair has its server in the first guest, as they are now.
func pair() *site.Pair {
	shared.Server, shared.Client = two.Nodes[0].Guest, two.Nodes[1].Guest
	return shared
}

// expand writes a GID the way sysfs does.
func expand(t *testing.T, g string) string {
	t.Helper()
	a, err := netip.ParseAddr(g)
	if err != nil {
		t.Fatal(err)
	}
	b := a.As16()
	var parts []string
	for i := 0; i < 16; i += 2 {
		parts = append(parts, fmt.Sprintf("%02x%02x", b[i], b[i+1]))
	}
	return strings.Join(parts, ":")
}

// gidIndex finds the RoCEv2 entry of an IPv4 address in the guest's table.
func gidIndex(t *testing.T, g *guest.Guest, ip string) string {
	t.Helper()
	want := expand(t, "::ffff:"+ip)
	return strings.TrimSpace(must(t, g, fmt.Sprintf(
		`cd /sys/class/infiniband/ionic_0/ports/1; for i in $(seq 0 255); do [ "$(cat gids/$i)" = %s ] && { echo $i; exit 0; }; done; exit 1`, want)))
}

// pingpong runs one of the ibv_*_pingpong programs between the guests and
// checks what both sides say.
func pingpong(t *testing.T, p *site.Pair, program, options string) {
	t.Helper()
	port := p.Port()
	ip := two.Nodes[0].IP
	sg, cg := gidIndex(t, p.Server, ip), gidIndex(t, p.Client, two.Nodes[1].IP)
	if p.Server == p.Client {
		cg = sg
	}
	o, err := p.Run(t.Context(), port,
		fmt.Sprintf("%s -g %s -p %d %s", program, sg, port, options),
		fmt.Sprintf("%s -g %s -p %d %s %s", program, cg, port, options, ip))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []guest.Result{o.Server, o.Client} {
		s, err := toolout.ParsePingpong(r.Stdout + r.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		if s.Iterations == 0 || s.Bytes == 0 {
			t.Fatalf("%s %s moved nothing: %+v", program, options, s)
		}
	}
}

func TestRDMA_RCPingpong(t *testing.T) {
	for _, options := range []string{"-c", "-c -e", "-c -s 1 -n 100", "-c -s 1048576 -n 20", "-c -s 65536 -m 256 -n 50"} {
		t.Run(strings.ReplaceAll(options, " ", ""), func(t *testing.T) { pingpong(t, pair(), "ibv_rc_pingpong", options) })
	}
}

func TestRDMA_Perftest(t *testing.T) {
	for _, program := range []string{"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"} {
		for _, size := range []int{64, 65536, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", program, size), func(t *testing.T) { perftest(t, program, size, "") })
		}
	}
}

// iterations keeps the run of one size bounded on a machine without KVM.
func iterations(size int) int {
	if size >= 1<<20 {
		return 50
	}
	return 300
}

func perftest(t *testing.T, program string, size int, options string) {
	t.Helper()
	p := pair()
	port := p.Port()
	n := iterations(size)
	args := func(g *guest.Guest, ip string) string {
		return fmt.Sprintf("%s -F -d ionic_0 -x %s -s %d -n %d -p %d %s", program, gidIndex(t, g, ip), size, n, port, options)
	}
	o, err := p.Run(t.Context(), port, args(p.Server, two.Nodes[0].IP), args(p.Client, two.Nodes[1].IP)+" "+two.Nodes[0].IP)
	if err != nil {
		t.Fatal(err)
	}
	out := o.Client.Stdout
	if strings.HasSuffix(program, "_lat") {
		l, err := toolout.ParseLatency(out)
		if err != nil {
			t.Fatal(err)
		}
		if l.Bytes != size || l.Iterations != n || l.Typical <= 0 {
			t.Errorf("%s reports %+v, want %d bytes and %d iterations", program, l, size, n)
		}
		t.Logf("typical %.1f us", l.Typical)
		return
	}
	b, err := toolout.ParseBandwidth(out)
	if err != nil {
		t.Fatal(err)
	}
	if b.Bytes != size || b.Iterations != n || b.Average <= 0 && !clockless(o) {
		t.Errorf("%s reports %+v, want %d bytes and %d iterations", program, b, size, n)
	}
	t.Logf("average %.1f MiB/s", b.Average)
}

func TestRDMA_LeavesTheKernelQuiet(t *testing.T) {
	for _, n := range two.Nodes {
		quietKernel(t, n.Guest)
	}
}

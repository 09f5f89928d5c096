// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/toolout"
)

// perfCase is one run of a perftest program.
type perfCase struct {
	program string
	kind    string // RC, UC or UD
	size    int    // bytes; 0: all sizes from 2 bytes to 8 MiB, for UD to the MTU
	qps     int
	n       int    // messages of each size and QP
	more    string // further options
	tier    tier
}

func (c perfCase) name() string {
	size := "all sizes"
	if c.size != 0 {
		size = fmt.Sprintf("%d B", c.size)
	}
	s := fmt.Sprintf("%s %s %s", c.program, c.kind, size)
	if !c.latency() {
		s += fmt.Sprintf(" q%d", c.qps)
	}
	return oneLine(s + " " + c.more)
}

func (c perfCase) latency() bool { return strings.HasSuffix(c.program, "_lat") }
func (c perfCase) atomic() bool  { return strings.Contains(c.program, "atomic") }

// messages is the number of messages of each size and QP. perftest asks for a
// completion every 100 messages, or every n if that is less, and counts each as
// so many: with a remainder a bidirectional run ends before all is sent.
func (c perfCase) messages() int {
	switch {
	case c.n != 0:
		return c.n
	case c.kind == "UD" && c.qps >= 64:
		return 20 // what does not fit into a queue on the way is lost
	case c.size == 0 && c.qps > 1:
		return 5
	case c.size == 0 || c.size >= 1<<20 && c.qps >= 64:
		return 20
	case c.size >= 1<<20 || c.qps >= 64:
		return 100
	}
	return 200
}

// perfCases is the matrix. Options are varied one at a time from a plain run of
// all sizes, and in the pairs that share code: many QPs in both directions, and
// QPs by rdma_cm.
func perfCases() (l []perfCase) {
	add := func(c perfCase) {
		if c.qps == 0 {
			c.qps = 1
		}
		if c.tier.runs() {
			l = append(l, c)
		}
	}
	type program struct{ name, kind string }
	for _, p := range []program{
		{"ib_send", "RC"}, {"ib_write", "RC"}, {"ib_read", "RC"}, {"ib_send", "UC"}, {"ib_write", "UC"}, {"ib_send", "UD"},
	} {
		bw, lat := p.name+"_bw", p.name+"_lat"
		rc, ud := p.kind == "RC", p.kind == "UD"
		largest := 1 << 20
		if ud {
			largest = 1024
		}
		add(perfCase{program: bw, kind: p.kind})
		add(perfCase{program: bw, kind: p.kind, more: "-b"})
		add(perfCase{program: bw, kind: p.kind, qps: 8, tier: tier(ud)})
		add(perfCase{program: bw, kind: p.kind, qps: 8, more: "-b", size: 4096 * largest >> 20, tier: tier(rc && p.name != "ib_read")})
		add(perfCase{program: bw, kind: p.kind, qps: 64, size: largest / 16})
		add(perfCase{program: bw, kind: p.kind, qps: 64, size: largest})
		add(perfCase{program: bw, kind: p.kind, qps: 64, more: "-b", size: largest / 16, tier: tier(rc && p.name == "ib_write")})
		add(perfCase{program: bw, kind: p.kind, qps: 64, more: "-b -l 4", size: largest / 256})
		add(perfCase{program: bw, kind: p.kind, size: largest / 8, tier: tier(p.kind == "UC")})
		add(perfCase{program: bw, kind: p.kind, more: "-l 20", tier: tier(rc && p.name == "ib_write")})
		add(perfCase{program: bw, kind: p.kind, more: "-l 4 -b", qps: 8, size: largest / 256})
		if p.name != "ib_write" {
			// The server of a one-sided program has no completions to wait for.
			add(perfCase{program: bw, kind: p.kind, more: "-e"})
			add(perfCase{program: bw, kind: p.kind, more: "-e -b", qps: 8, size: largest / 1024, tier: tier(rc && p.name == "ib_send")})
			add(perfCase{program: bw, kind: p.kind, more: "-e", qps: 64, size: largest / 64})
		}
		if p.kind != "UC" {
			add(perfCase{program: bw, kind: p.kind, more: "-R"})
			add(perfCase{program: bw, kind: p.kind, more: "-R -b", qps: 8, size: largest / 16, tier: tier(rc && p.name == "ib_send")})
			add(perfCase{program: bw, kind: p.kind, more: "-R", qps: 64, size: largest / 64})
			add(perfCase{program: lat, kind: p.kind, more: "-R", size: largest / 1024})
		}
		add(perfCase{program: lat, kind: p.kind})
		if p.name != "ib_write" {
			add(perfCase{program: lat, kind: p.kind, more: "-e", size: largest / 1024, tier: tier(ud)})
		}
	}
	add(perfCase{program: "ib_read_bw", kind: "RC", more: "-o 1", size: 65536})
	add(perfCase{program: "ib_read_bw", kind: "RC", more: "-o 16", size: 65536, qps: 8})
	for _, op := range []string{"FETCH_AND_ADD", "CMP_AND_SWAP"} {
		a := "-A " + op
		for _, q := range []int{1, 8, 64} {
			add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, qps: q, more: a, tier: tier(q == 8)})
		}
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, qps: 8, more: a + " -b"})
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, qps: 64, more: a + " -b"})
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, more: a + " -l 20"})
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, more: a + " -e"})
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, more: a + " -o 1"})
		add(perfCase{program: "ib_atomic_bw", kind: "RC", size: 8, qps: 8, more: a + " -R"})
		add(perfCase{program: "ib_atomic_lat", kind: "RC", size: 8, more: a, tier: always})
		add(perfCase{program: "ib_atomic_lat", kind: "RC", size: 8, more: a + " -e"})
		add(perfCase{program: "ib_atomic_lat", kind: "RC", size: 8, more: a + " -R"})
	}
	return l
}

func TestPerftest(t *testing.T) {
	for _, c := range perfCases() {
		conform(t, "perftest", c.name(), c.run)
	}
	found.Remark("perftest", perftestRemark)
}

const perftestRemark = `"All sizes" are the powers of two from 2 bytes to 8 MiB (-a), for UD to the path MTU. 64 QPs do not run all sizes: their buffers
would not fit into the guest's memory. perftest 25.01 does not know the vendor (25.10 does) and turns -I (inline) off; rdma_client and the
streams of 64 bytes send inline, and inline data of every length is among the cases of the verbs program below. Events with a WRITE and
rdma_cm with UC are combinations that perftest itself refuses. The figures are of software emulation on a shared machine: they show that data moved.`

// bufferFile is what a run of all sizes has its buffers in: filling them with
// random numbers takes most of the time of such a run under emulation, and
// perftest leaves a file's pages as they are.
const bufferFile = "/dev/shm/perftest"

func (c perfCase) run(t *testing.T) string {
	var env []string
	if c.kind == "UC" {
		env = append(env, guest.PatchedProvider)
	}
	server, client := two.Nodes[0], two.Nodes[1]
	p := between(server, client, env...)
	port := p.Port()
	options := fmt.Sprintf("-p %d -n %d %s", port, c.messages(), c.more)
	if !c.latency() {
		options += fmt.Sprintf(" -q %d", c.qps)
	}
	if strings.Contains(c.more, "-R") {
		port = 0 // listens by rdma_cm
	}
	if !c.atomic() {
		options += " -c " + c.kind
		switch {
		case c.size != 0:
			options += fmt.Sprintf(" -s %d", c.size)
		case c.kind == "UD":
			options += " -a"
		default:
			options += " -a --mmap=" + bufferFile
			for _, n := range two.Nodes {
				must(t, n.Guest, fmt.Sprintf("truncate -s %dM %s", 2*8*c.qps+1, bufferFile))
			}
			defer func() {
				for _, n := range two.Nodes {
					must(t, n.Guest, "rm -f "+bufferFile)
				}
			}()
		}
	}
	args := func(n *site.Node) string {
		return fmt.Sprintf("%s -F -d ionic_0 -x %s %s", c.program, gidIndex(t, n.Guest, n.IP), options)
	}
	o := run(t, p, port, args(server), args(client)+" "+server.IP)
	if c.latency() {
		l, err := toolout.ParseLatencies(o.Client.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l {
			if r.Iterations != c.messages() || r.Typical <= 0 {
				t.Errorf("%s reports %+v, want %d messages", c.program, r, c.messages())
			}
		}
		c.wantSizes(t, len(l), l[len(l)-1].Bytes)
		return latencyNote(l)
	}
	l, err := toolout.ParseBandwidths(o.Client.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range l {
		if r.Iterations != c.messages()*c.qps || r.Rate <= 0 && !clockless(o) {
			t.Errorf("%s reports %+v, want %d messages", c.program, r, c.messages()*c.qps)
		}
	}
	c.wantSizes(t, len(l), l[len(l)-1].Bytes)
	return bandwidthNote(l)
}

// clockless tells that perftest could not find out how fast the processor's
// clock is, as on a busy emulated machine, and prints rates of 0.
func clockless(o site.Outcome) bool {
	return strings.Contains(o.Client.Stderr, "Correlation coefficient")
}

// wantSizes checks that perftest did not leave out sizes.
func (c perfCase) wantSizes(t *testing.T, n, largest int) {
	wantN, wantLargest := 23, 8<<20
	switch {
	case c.size != 0:
		wantN, wantLargest = 1, c.size
	case c.kind == "UD":
		wantN, wantLargest = 10, 1024
	}
	if n != wantN || largest != wantLargest {
		t.Errorf("%s ran %d sizes up to %d bytes, want %d up to %d", c.program, n, largest, wantN, wantLargest)
	}
}

// SPDX-License-Identifier: Apache-2.0

package guesttest

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// streamCases are rstream and riostream; -T v compares the payload.
func streamCases() (l []cmCase) {
	for _, p := range []struct {
		program, options string
		tier             tier
	}{
		{"rstream", "-S 64 -C 1 -I 500 -T v", longOnly},
		{"rstream", "-S 4096 -C 20 -I 20 -T v", longOnly},
		{"rstream", "-S 65536 -C 20 -I 5 -T v", always},
		{"rstream", "-S 65536 -C 20 -I 5 -T v -T a", always},
		{"rstream", "-S 1048576 -C 10 -I 2 -T v -T b", longOnly},
		{"rstream", "-S 65536 -C 20 -I 5 -T v -T r", longOnly},
		{"riostream", "-S 64 -C 1 -I 500 -T v", longOnly},
		{"riostream", "-S 65536 -C 20 -I 5 -T v", always},
		{"riostream", "-S 1048576 -C 10 -I 2 -T v -T a", longOnly},
	} {
		client := fmt.Sprintf("%s %s -p PORT -s SERVER", p.program, p.options)
		if strings.Contains(p.options, "-T a") {
			client = fmt.Sprintf("sh -c '%s || { s=$?; [ $s -eq 16 ] && echo %s; }'", client, hangUp)
		}
		l = append(l, cmCase{
			name:   p.program + " " + p.options,
			server: fmt.Sprintf("%s %s -p PORT", p.program, p.options),
			client: client, check: wantStream, tier: p.tier,
		})
	}
	return l
}

// hangUp stands for exit status 16 of a client, which is POLLHUP.
const hangUp = "HANG-UP"

const streamRemark = "With -T a the two stream programs may end with status 16: their wait takes POLLHUP for a failure also when it comes " +
	"together with POLLIN, and rsocket reports it as soon as the peer has shut down, read to the end or not. The server sends last and " +
	"shuts down at once. It does so over Soft-RoCE too. What counts then is the server's result, and that nothing that was read differs. udpong is left out:\n" +
	"its datagram sockets address the peer by LID, without the GRH that RoCE asks for (ds_add_qp_dest of rsocket)."

// A result line of rstream: name, size, transfers, iterations, bytes, time,
// Gb/s, us per transfer.
var streamLine = regexp.MustCompile(`(?m)^\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+[\d.]+s\s+([\d.]+)\s+([\d.]+)$`)

func wantStream(t *testing.T, server, client string) string {
	t.Helper()
	side := client
	if strings.Contains(client, hangUp) {
		side = server
	}
	m := streamLine.FindStringSubmatch(side)
	if m == nil {
		t.Fatalf("no result:\n%.2000s\n%.2000s", client, server)
	}
	note := m[1] + " Gb/s, " + m[2] + " us per transfer"
	if side == server {
		note += ", by the server; the client met the hang-up"
	}
	return note
}

// endlessCase is a server that serves until it is told to end.
type endlessCase struct {
	name           string
	server, client string // PORT, SERVER and SIZE stand for the port, the address and the size
	listens        string // a test in the server's guest
	size           int
	check          func(t *testing.T, c endlessCase, client string) (note string)
	tier           tier
}

const rcopySource, rcopyTarget = "/dev/shm/rcopy-source", "/dev/shm/rcopy-target"

func endlessCases() (l []endlessCase) {
	add := func(c endlessCase) {
		if c.tier.runs() {
			l = append(l, c)
		}
	}
	for _, c := range []struct {
		size int
		tier tier
	}{{1, longOnly}, {1<<20 + 1, always}, {64 << 20, longOnly}} {
		add(endlessCase{
			name: fmt.Sprintf("rcopy of %d bytes", c.size), size: c.size,
			server: "rcopy -p PORT", listens: "rdma resource show cm_id | grep -q LISTEN",
			client: "head -c SIZE /dev/urandom >" + rcopySource + "; rcopy " + rcopySource + " SERVER:" + rcopyTarget + " -p PORT",
			check:  wantCopy, tier: c.tier,
		})
	}
	return l
}

func (c endlessCase) run(t *testing.T) string {
	server, client := two.Nodes[0], two.Nodes[1]
	before := resources(t)
	port := between(server, client).Port()
	fill := strings.NewReplacer("PORT", fmt.Sprint(port), "SERVER", server.IP, "SIZE", fmt.Sprint(c.size)).Replace
	sv, err := server.Guest.Start(t.Context(), guest.Shell("exec "+fill(c.server)))
	if err != nil {
		t.Fatal(err)
	}
	must(t, server.Guest, fmt.Sprintf("for i in $(seq 600); do %s && exit 0; sleep 0.1; done; exit 1", fill(c.listens)))
	out := must(t, client.Guest, fill(c.client))
	note := c.check(t, c, out)
	if err := sv.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-sv.Done():
	case <-time.After(2 * time.Minute):
		t.Errorf("%s does not end", c.server)
	}
	sameResources(t, before)
	return note
}

func wantCopy(t *testing.T, c endlessCase, client string) string {
	t.Helper()
	sum := func(n int, file string) string {
		return must(t, two.Nodes[n].Guest, fmt.Sprintf("wc -c <%[1]s; sha256sum <%[1]s; rm %[1]s", file))
	}
	wantContains(t, "rcopy", client, fmt.Sprintf("%d bytes in", c.size))
	if sent, got := sum(1, rcopySource), sum(0, rcopyTarget); sent != got || !strings.HasPrefix(got, fmt.Sprint(c.size)+"\n") {
		t.Errorf("the copy is %s, the source %s", got, sent)
	}
	return oneLine(client[strings.LastIndex(client, "bytes in")+len("bytes "):])
}

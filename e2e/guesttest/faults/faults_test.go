// SPDX-License-Identifier: Apache-2.0

package faults

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/site"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

// A bandwidth test does not notice that the manager is killed and started again.
func TestManager_IsKilledAndStartedUnderTraffic(tt *testing.T) {
	t := verdict.New(tt)
	// It has to outlive the absence, however slowly a busy machine starts a manager.
	p := startPrograms(t, "ib_write_bw -D 20 -s 65536")
	p.moving(t, "tx_rdma_ucast_bytes", 1<<20)
	timeouts := counter(t, two.Nodes[1], "tx_rdma_ack_timeout")
	two.Manager.Kill()
	p.moving(t, "tx_rdma_ucast_bytes", 4<<20)
	if err := two.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := two.WaitNodes(t.Context(), 2); err != nil {
		t.Error(err)
	}
	t.Logf("both workers are back %v after the start of the manager", time.Since(begun).Round(time.Millisecond))
	p.moving(t, "tx_rdma_ucast_bytes", 1<<20)
	p.finish(t)
	t.Logf("%d acknowledgements were late", counter(t, two.Nodes[1], "tx_rdma_ack_timeout")-timeouts)
	pingpong(t)
	quiet(t, two.Nodes...)
}

func cut(t *verdict.T) {
	t.Helper()
	for _, n := range two.Nodes {
		n.Cable.Cut()
	}
	t.Cleanup(mend)
}

func mend() {
	for _, n := range two.Nodes {
		n.Cable.Mend()
	}
}

// A program outlives a link that is cut for less than its own timeout and retry
// count cover, four times or up to 2 s: 8 times 67 ms is what ibv_rc_pingpong
// always asks for, 8 times 537 ms what the others do. The cuts leave the rest to
// a machine that is busy.
func TestLink_IsCutForLessThanTheRetries(tt *testing.T) {
	t := verdict.New(tt)
	for _, c := range []struct {
		line    string
		lengths []int  // how much there is to do, as the last of its arguments; the first that the cut is in the middle of counts
		moved   string // the counter that shows progress
		by      uint64
		cut     time.Duration
		again   bool // packets must be sent again; many wait in the link instead
	}{
		{"ibv_rc_pingpong -c -s 4096 -n", []int{2000, 8000, 32000}, "tx_rdma_ucast_pkts", 100, 700 * time.Millisecond, true},
		{"ib_write_bw -s 65536 -u 17 -D", []int{7, 15, 30}, "tx_rdma_ucast_bytes", 1 << 20, time.Second, false},
		{"ib_send_bw -s 65536 -u 17 -b -D", []int{7, 15, 30}, "tx_rdma_ucast_bytes", 1 << 20, time.Second, false},
	} {
		retransmitted := func() uint64 {
			return counter(t, two.Nodes[0], "tx_rdma_retx_pkts") + counter(t, two.Nodes[1], "tx_rdma_retx_pkts")
		}
		hit := false
		for _, length := range c.lengths {
			line := fmt.Sprint(c.line, " ", length)
			t.Doing(line)
			p := startPrograms(t, line)
			moved := p.moves(t, c.moved, c.by)
			before := retransmitted()
			cut(t)
			hit = moved && !ended(p.client)
			time.Sleep(c.cut)
			hit = hit && !ended(p.client)
			mend()
			p.finish(t)
			n := retransmitted() - before
			t.Logf("%s, cut for %v: %d packets were sent again", line, c.cut, n)
			if hit && n == 0 && c.again {
				t.Error("nothing was sent again: the cut was none")
			}
			if hit {
				break
			}
			t.Logf("%s had ended before the link was cut", line)
		}
		if !hit {
			t.Errorf("%s always ended before the link was cut", c.line)
		}
	}
	quiet(t, two.Nodes...)
}

//go:embed outlast.py
var outlast string

// outcome is what outlast.py prints.
type outcome struct {
	Completions [][2]any `json:"completions"` // id and status
	Seconds     float64  `json:"seconds"`
	State       string   `json:"state"`
}

// A link that stays away uses up the retries of a program: its oldest request
// fails with RETRY_EXC_ERR, all others are flushed. When the link is back, so are
// new connections.
func TestLink_IsCutForLongerThanTheRetries(tt *testing.T) {
	t := verdict.New(tt)
	a, b := two.Nodes[0], two.Nodes[1]
	for _, n := range two.Nodes {
		if err := n.Guest.Upload(t.Context(), "/root/outlast.py", 0o644, strings.NewReader(outlast)); err != nil {
			t.Fatal(err)
		}
	}
	port := (&site.Pair{}).Port()
	script := func(n *site.Node, host string) guest.Cmd {
		return guest.Shellf("exec python3 /root/outlast.py %d %s %s", port, gidIndex(t, n), host).With(guest.PatchedProvider)
	}
	server := start(t, a.Guest, script(a, ""))
	t.Eventually("the server to listen", func() bool {
		running(t, server, "the server")
		r, err := a.Guest.Run(t.Context(), guest.Shellf("ss -Hltn 'sport = :%d'", port))
		return err == nil && r.Output() != ""
	})
	input, line := io.Pipe()
	cmd := script(b, a.IP)
	cmd.Stdin = input
	client := start(t, b.Guest, cmd)
	t.Eventually("the connection", func() bool {
		running(t, client, "the client")
		return strings.Contains(client.Output(), "connected")
	})
	p := startPrograms(t, "ibv_rc_pingpong -c -s 4096 -n 1000000")
	p.moving(t, "tx_rdma_ucast_pkts", 100)

	begun := time.Now()
	cut(t)
	if _, err := io.WriteString(line, "now\n"); err != nil {
		t.Fatal(err)
	}
	line.Close()
	t.Eventually("the end of the connection", func() bool { return ended(client) })
	r, err := client.Wait()
	if err != nil {
		t.Fatal(err, r.Stdout, r.Stderr)
	}
	var o outcome
	if err := json.Unmarshal([]byte(r.Stdout[strings.Index(r.Stdout, "\n")+1:]), &o); err != nil {
		t.Fatalf("%v\n%s", err, r.Stdout)
	}
	t.Logf("the connection was given up after %.2f s", o.Seconds)
	// The receive queue's flush has its own place among those of the send queue.
	sends := slices.DeleteFunc(slices.Clone(o.Completions), func(c [2]any) bool { return c[0] == 1000.0 })
	want := [][2]any{{100.0, "RETRY_EXC_ERR"}}
	for id := 101.0; id < 106; id++ {
		want = append(want, [2]any{id, "WR_FLUSH_ERR"})
	}
	if !slices.Equal(sends, want) || len(o.Completions) != len(want)+1 || !slices.Contains(o.Completions, [2]any{1000.0, "WR_FLUSH_ERR"}) {
		t.Errorf("completions %v, want %v and the flush of receive 1000", o.Completions, want)
	}
	if o.State != "ERR" {
		t.Errorf("the queue pair is in state %s, want ERR", o.State)
	}
	// The side whose message was on its way is told; the other one waits for it.
	var told *guest.Command
	select {
	case <-p.client.Done():
		told = p.client
	case <-p.server.Done():
		told = p.server
	case <-time.After(time.Minute):
		t.Fatal("ibv_rc_pingpong still waits on both sides")
	}
	pp, err := told.Wait()
	if err == nil || !strings.Contains(pp.Stderr, "transport retry counter exceeded") {
		t.Errorf("ibv_rc_pingpong over a cut link: %v\n%s%s", err, pp.Stdout, pp.Stderr)
	}
	for _, c := range []*guest.Command{p.client, p.server, server} {
		_ = c.Signal(syscall.SIGKILL)
		_, _ = c.Wait()
	}
	// Long enough for the workers to give up their connections as well.
	time.Sleep(time.Until(begun.Add(8 * time.Second)))
	mend()
	healed := time.Now()
	pingpong(t)
	t.Logf("a new connection was done %v after the link was back", time.Since(healed).Round(time.Millisecond))
	quiet(t, two.Nodes...)
}

// ownBug is what QEMU says when it ends itself because its vfio-user server went
// away in the middle of a request.
const ownBug = "error_setv: Assertion `*errp == NULL' failed"

// A killed worker takes its guest's device away and nothing else: that guest
// lives on, the peer's program is told, and a fresh guest on the next worker has
// the addresses at once.
func TestWorker_IsKilledAndStartedWithAFreshGuest(tt *testing.T) {
	t := verdict.New(tt)
	n := two.Nodes[1]
	// The guest of the worker takes no part in what is written to its memory.
	p := startProgramsIn(t, "ib_write_bw -D 60 -s 65536", n, two.Nodes[0])
	p.moving(t, "tx_rdma_ucast_bytes", 1<<20)
	n.Worker.Kill()
	begun := time.Now()
	old := n.Guest
	lives := func() {
		t.Helper()
		r, err := old.Run(t.Context(), guest.Shell("cat /proc/uptime"))
		switch {
		case err == nil && r.Output() != "":
		case strings.Contains(old.QEMULog(), ownBug):
			t.Log("QEMU has ended itself: ", ownBug)
		default:
			t.Errorf("the guest of the killed worker does not answer: %v %s\n%s", err, r.Stdout, old.QEMULog())
		}
	}
	lives()
	if err := two.StartWorker(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Logf("the next worker is ready for a guest %v after the end of the first", time.Since(begun).Round(time.Millisecond))
	n.Guest = nil
	if err := two.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	pingpong(t)
	addressesAreRight(t)
	lives() // also after a whole boot of another guest
	old.Kill()
	select {
	case <-p.client.Done():
	case <-time.After(time.Minute):
		t.Fatalf("%s still writes to a guest that is gone", p.line)
	}
	if r, err := p.client.Wait(); err == nil || !strings.Contains(r.Stdout+r.Stderr, "Failed status 12") {
		t.Errorf("%s to a guest that is gone: %v, want status 12 (RETRY_EXC_ERR)\n%s%s", p.line, err, r.Stdout, r.Stderr)
	}
	quiet(t, two.Nodes...)
}

// addressesAreRight checks that each guest's IPv4 address belongs to the one
// living node that has its name, without a conflict.
func addressesAreRight(t *verdict.T) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	t.Eventually("the addresses to be right", func() bool {
		nodes, err := two.ListNodes(t.Context())
		if err != nil {
			last = err.Error()
			return false
		}
		gids, err := two.ListGIDs(t.Context())
		if err != nil {
			last = err.Error()
			return false
		}
		last = fmt.Sprintf("%+v\n%+v", nodes, gids)
		for _, n := range two.Nodes {
			id := uint32(0)
			for _, l := range nodes {
				if l.Name == n.Name && l.State == "alive" {
					id = l.ID
				}
			}
			var owners []uint32
			for _, g := range gids {
				if g.IPv4 == n.IP && g.State != "withdrawn" {
					owners = append(owners, g.Node)
				}
			}
			if id == 0 || !slices.Equal(owners, []uint32{id}) {
				return false
			}
		}
		return true
	})
}

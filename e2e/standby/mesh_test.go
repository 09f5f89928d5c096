// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/e2e/program"
	"github.com/ernic-dev/ernic/e2e/verdict"
	"github.com/ernic-dev/ernic/manager/etcd/etcdtest"
	"github.com/ernic-dev/ernic/proto/gid"
)

// newLone starts one manager with its state in a file.
func newLone(t *verdict.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), address: map[string]string{"a": etcdtest.Address(6320)}, managers: map[string]*program.Process{}}
	s.start("a")
	t.Eventually("the manager", func() bool { return s.leads("a") })
	return s
}

// TestH4_HeartbeatsAreOnTimeWhileLargeTransfersRun fills the link between two workers with messages of 8 MiB. A heartbeat
// behind one of them would be late, and its worker suspect.
func TestH4_HeartbeatsAreOnTimeWhileLargeTransfersRun(tt *testing.T) {
	t := verdict.New(tt)
	s := newLone(t)
	sa, ga := s.worker(1)
	sb, gb := s.worker(2)
	a, b := boot(t, sa, ga), boot(t, sb, gb)
	join(t, a, b)
	const large = 8 << 20
	from, to := a.region(t, large), b.region(t, large)
	// So many writes are under way all the time.
	const depth = 4
	post := func(i int) {
		t.Must(a.qp.PostSend(verbs.SendWR{
			ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{from.Buffer.SGE(0, large, from.Key)},
			RemoteAddr: to.Buffer.VA, RKey: to.Key,
		}))
	}
	for i := range depth {
		post(i)
	}
	done := 0
	transfer := func() {
		t.Helper()
		for begin := time.Now(); time.Since(begin) < 6*time.Second; done++ {
			wc, err := a.cq.PollN(1, verdict.Patience)
			t.Must(err)
			if wc[0].Status != verbs.Success {
				t.Fatalf("completion %+v: %v", wc[0], wc[0].Status)
			}
			post(done + depth)
		}
	}
	// Suspicion begins after two intervals of a second each. A machine that stands still for that long makes a worker suspect
	// now and then; heartbeats behind transfers make it so every time.
	suspicions := s.suspicions()
	for round := 1; ; round++ {
		transfer()
		now := s.suspicions()
		if now == suspicions {
			break
		}
		t.Logf("round %d: %d times a worker was suspect", round, now-suspicions)
		if round == 5 {
			t.Fatalf("a worker was suspect in each of %d rounds, while %d messages of 8 MiB passed", round, done)
		}
		suspicions = now
	}
	t.Eventually("the workers as they were", func() bool { return s.healthy(2) })
	t.Logf("%d messages of 8 MiB passed", done)
}

// suspicions returns how often the manager has suspected a worker.
func (s *site) suspicions() (times int) {
	s.t.Helper()
	s.t.Eventually("the events", func() bool {
		out, _, err := ctl("events", "--manager", s.both())
		times = strings.Count(string(out), "node_suspect")
		return err == nil && strings.Contains(string(out), "node_joined")
	})
	return times
}

// TestG10_AnAddressHandleFollowsAGIDThatMoves makes an address handle once, and moves the address that stands in it from one
// worker to another.
func TestG10_AnAddressHandleFollowsAGIDThatMoves(tt *testing.T) {
	t := verdict.New(tt)
	s := newLone(t)
	const moving = "10.98.7.7"
	g, err := gid.Parse(moving)
	t.Must(err)
	sa, ga := s.worker(1)
	a := boot(t, sa, ga)
	ua := a.datagrams(t)
	var handle *verbs.AH
	for i, name := range []string{"w2", "another w2"} {
		socket, own := s.worker(2, "--gid", moving)
		b := boot(t, socket, own)
		ub := b.datagrams(t)
		if handle == nil {
			handle, err = a.pd.CreateAH(verbs.Path{
				SrcMAC: a.guest.NIC.MAC(), DstMAC: b.guest.NIC.MAC(), Src: a.addr, Dst: netip.AddrFrom16(g),
			})
			t.Must(err)
		}
		text := fmt.Sprint("to ", name)
		a.mr.Buffer.Write(0, []byte(text))
		arrived := t.Eventually("a datagram", func() bool {
			t.Must(ub.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{b.mr.Buffer.SGE(0, 100, b.mr.Key)}}))
			t.Must(ua.PostSend(verbs.SendWR{
				ID: 1, Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{a.mr.Buffer.SGE(0, len(text), a.mr.Key)},
				AH: handle, RemoteQPN: ub.QPN, RemoteQKey: qkey,
			}))
			if wc, err := a.cq.PollN(1, verdict.Patience); err != nil || wc[0].Status != verbs.Success {
				t.Fatalf("%+v, %v", wc, err)
			}
			wc, err := b.cq.PollN(1, 200*time.Millisecond)
			return err == nil && wc[0].Status == verbs.Success
		})
		if got := string(b.mr.Buffer.Read(40, len(text))); got != text {
			t.Errorf("%q arrived", got)
		}
		t.Logf("%s: a datagram arrived after %s", name, arrived)
		b.guest.Kill()
		s.last.End(syscall.SIGTERM)
		t.Eventually("its leave", func() bool { return s.healthy(1) })
	}
}

// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

// A guest dies in the middle of transfers; its peer finds out by its own
// timeout, nothing more is written to the dead guest's memory, and the next
// guest on the same socket works with the same peer.
func TestGuestDiesAndTheNextOneWorks(t *testing.T) {
	for _, mesh := range []bool{false, true} {
		t.Run(fmt.Sprintf("mesh=%v", mesh), func(t *testing.T) {
			nodes, guests := topology{mesh: mesh}.build(t)
			for round := range 3 {
				g := guests[0]
				victim := newEnd(t, nodes[0], g, false, nodes[0].addr)
				peer := victim // the peer of a guest that talks to itself dies with it
				if mesh {
					peer = newEnd(t, nodes[1], guests[1], false, nodes[1].addr)
				}
				qv, qp := connected(victim, peer, verbs.RC, quickly)
				const size = 256 << 10
				mv, mp := victim.mr(size, anyAccess), peer.mr(size, anyAccess)
				write := func() {
					must(t, qp.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{mp.Buffer.SGE(0, size, mp.Key)}, RemoteAddr: mv.Buffer.VA, RKey: mv.Key}))
				}
				for range 20 {
					write()
				}
				must(t, qv.PostRecv(verbs.RecvWR{}))
				time.Sleep(time.Duration(round) * time.Millisecond)
				g.Client.Drop() // as kill -9
				ram := g.Client.RAM()
				// The worker has let go when it serves the next guest.
				guests[0] = nodes[0].boot(guest.Options{})
				before := bytes.Clone(ram.Bytes(4<<30, 32<<20))
				if mesh {
					write() // nobody is left to answer this one, however fast the others were
					wc := peer.poll(1)
					for wc[0].Status == verbs.Success {
						wc = peer.poll(1)
					}
					if wc[0].Status != verbs.RetryExceeded {
						t.Errorf("peer of a dead guest: %v, want %v", wc[0].Status, verbs.RetryExceeded)
					}
				}
				if !bytes.Equal(before, ram.Bytes(4<<30, 32<<20)) {
					t.Error("memory of the dead guest changed")
				}
				g.Kill()
				a := newEnd(t, nodes[0], guests[0], false, nodes[0].addr)
				b := a
				if mesh {
					b = newEnd(t, nodes[1], guests[1], false, nodes[1].addr)
				}
				sendOnce(t, a, b)
			}
		})
	}
}

// sendOnce is a short proof that two ends work.
func sendOnce(t *testing.T, a, b *end) {
	t.Helper()
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	mb := b.mr(64, verbs.LocalWrite)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 64, mb.Key)}}))
	must(t, qa.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: pattern(64, 3)}))
	if a == b || a.cq == b.cq {
		a.want(2)
	} else {
		a.want(1)
		b.want(1)
	}
	if !bytes.Equal(mb.Buffer.Read(0, 64), pattern(64, 3)) {
		t.Error("payload differs")
	}
}

func TestDriversUnloadAndLoadAgain(t *testing.T) {
	n := startNode(t, 1, "")
	for range 3 {
		g, err := guest.Boot(t.Context(), n.socket, guest.Options{Driver: driver.Options{Slack: slack}})
		must(t, err)
		buf := unloadUnder(t, n, g)
		// One reset has ended everything, with transfers under way: what is free
		// now is filled with a pattern, which the end of the guest checks.
		must(t, g.RDMA.Close())
		buf.Free()
		time.Sleep(5 * time.Millisecond)
		must(t, g.NIC.Remove())
		g.Client.Close()
	}
}

// unloadUnder is a user that is busy and that nobody cleans up after. The buffer
// of its transfers is returned.
func unloadUnder(t *testing.T, n *node, g *guest.Guest) *verbs.Buffer {
	t.Helper()
	e := &end{t: t, node: n, guest: g, ctx: g.RDMA.Kernel(), addr: n.addr}
	var err error
	e.pd, err = e.ctx.AllocPD()
	must(t, err)
	e.cq, err = e.ctx.CreateCQ(100, 0)
	must(t, err)
	cfg := verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 32, MaxRecv: 32, MaxSendSGE: 1, MaxRecvSGE: 1}
	qa, err := e.pd.CreateQP(cfg)
	must(t, err)
	qb, err := e.pd.CreateQP(cfg)
	must(t, err)
	connect(e, e, qa, qb, verbs.ConnectOptions{})
	buf, err := e.ctx.NewBuffer(1<<20, 0)
	must(t, err)
	mr, err := e.pd.RegMR(buf, anyAccess)
	must(t, err)
	for range 30 {
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, SGEs: []verbs.SGE{buf.SGE(0, 1<<19, mr.Key)}, RemoteAddr: buf.VA + 1<<19, RKey: mr.Key}))
	}
	must(t, qb.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{buf.SGE(0, 10, mr.Key)}}))
	return buf
}

func TestThousandQueuePairs(t *testing.T) {
	for _, mesh := range []bool{false, true} {
		t.Run(fmt.Sprintf("mesh=%v", mesh), func(t *testing.T) {
			nodes, guests := topology{mesh: mesh}.build(t)
			a := newEnd(t, nodes[0], guests[0], false, nodes[0].addr)
			b := newEnd(t, nodes[1], guests[1], false, nodes[1].addr)
			const pairs, rounds, size = 500, 4, 3000
			a.cq, b.cq = a.newCQ(4*pairs), b.newCQ(4*pairs)
			small := func(c *verbs.QPConfig) { c.MaxSend, c.MaxRecv, c.MaxInline = 4, 4, 0 }
			ma, mb := a.mr(pairs*size, 0), b.mr(pairs*size, verbs.LocalWrite)
			qa, qb := make([]*verbs.QP, pairs), make([]*verbs.QP, pairs)
			start := time.Now()
			for i := range pairs {
				qa[i], qb[i] = a.qp(verbs.RC, small), b.qp(verbs.RC, small)
				connect(a, b, qa[i], qb[i], verbs.ConnectOptions{})
			}
			t.Logf("%d queue pairs connected in %v", 2*pairs, time.Since(start))
			for round := range rounds {
				for i := range pairs {
					ma.Buffer.Write(i*size, pattern(size, i+round))
					must(t, qb[i].PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{mb.Buffer.SGE(i*size, size, mb.Key)}}))
					must(t, qa[i].PostSend(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(i*size, size, ma.Key)}}))
				}
				seen := make(map[uint64]bool)
				for _, w := range b.want(pairs) {
					seen[w.ID] = true
				}
				if len(seen) != pairs {
					t.Errorf("round %d: %d of %d queue pairs received", round, len(seen), pairs)
				}
				a.want(pairs)
				for i := range pairs {
					if !bytes.Equal(mb.Buffer.Read(i*size, size), pattern(size, i+round)) {
						t.Fatalf("round %d: queue pair %d received something else", round, i)
					}
				}
			}
		})
	}
}

// Many users at once, each with its own queue pair and its own mind.
func TestUsersInParallel(t *testing.T) {
	nodes, guests := topology{mesh: true}.build(t)
	var wg sync.WaitGroup
	for i := range 8 {
		a := newEnd(t, nodes[i%2], guests[i%2], i%4 < 2, nodes[i%2].addr)
		b := newEnd(t, nodes[(i+i/2)%2], guests[(i+i/2)%2], i%3 == 0, nodes[(i+i/2)%2].addr)
		qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
		ma, mb := a.mr(50000, anyAccess), b.mr(50000, anyAccess)
		wg.Go(func() {
			for n := range 100 {
				size := 1 + (n*7919+i*104729)%50000
				ma.Buffer.Write(0, pattern(size, n))
				errs := []error{
					qb.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{mb.Buffer.SGE(0, size, mb.Key)}}),
					qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, size, ma.Key)}}),
				}
				_, err := b.cq.PollN(1, patience)
				errs = append(errs, err)
				_, err = a.cq.PollN(1, patience)
				for _, err := range append(errs, err) {
					if err != nil {
						t.Errorf("user %d message %d: %v", i, n, err)
						return
					}
				}
				if !bytes.Equal(mb.Buffer.Read(0, size), pattern(size, n)) {
					t.Errorf("user %d message %d of %d bytes: payload differs", i, n, size)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSecondGuestIsRefusedWhileOneIsThere(t *testing.T) {
	n := startNode(t, 1, "")
	first := n.boot(guest.Options{})
	if g, err := guest.Boot(t.Context(), n.socket, guest.Options{}); err == nil {
		g.Kill()
		t.Error("a second guest was let in")
	}
	a := newEnd(t, n, first, false, n.addr)
	sendOnce(t, a, a)
}

// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker"
)

// patience bounds every wait for something that must happen soon.
const patience = time.Minute

// slack multiplies the driver's timeouts: the tests run beside others.
const slack = 12

// node is a worker with its socket.
type node struct {
	t      testing.TB
	socket string
	mac    [6]byte
	addr   netip.Addr // IPv4 address configured on the worker
	fabric string     // host:port of its fabric listener, "" without a mesh
}

// startManager runs a manager on a loopback port and returns its address.
func startManager(t testing.TB) string {
	t.Helper()
	s, err := manager.New(manager.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	background(t, "manager", func(ctx context.Context) error { return s.Serve(ctx, l) })
	return l.Addr().String()
}

// background runs a part until the test ends, and reports how it ended.
func background(t testing.TB, what string, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s did not end", what)
		}
	})
}

// startNode runs worker number n, in the mesh of a manager or on its own.
func startNode(t testing.TB, n int, managerAddr string) *node {
	t.Helper()
	return startNodeAt(t, n, managerAddr, "")
}

// startNodeAt runs a worker that tells its peers to reach it at advertise, at
// its own listener if that is "".
func startNodeAt(t testing.TB, n int, managerAddr, advertise string) *node {
	t.Helper()
	p, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	nd := &node{
		t: t, socket: filepath.Join(t.TempDir(), fmt.Sprintf("w%d.sock", n)),
		mac: [6]byte{0x02, 0xe2, 0, 0, 0, byte(n)}, addr: netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}),
	}
	c := worker.Config{
		Name: fmt.Sprintf("w%d", n), Socket: nd.socket, MAC: nd.mac, Profile: p,
		GIDs: []gid.GID{nd.addr.As16()}, Fabric: worker.FabricLoopback, Instance: [16]byte{1, byte(n)},
		Advertise: advertise,
	}
	if managerAddr != "" {
		c.Fabric, c.Manager = worker.FabricMesh, managerAddr
	}
	w, err := worker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	nd.fabric = listensAt(t, w)
	background(t, c.Name, w.Run)
	return nd
}

// listensAt is the address of a worker's fabric listener.
func listensAt(t testing.TB, w *worker.Worker) string {
	t.Helper()
	for _, s := range w.Stats(0) {
		for _, f := range s.Fields {
			if f.Name == "listen" {
				return f.Text
			}
		}
	}
	t.Fatal("the worker does not tell where it listens")
	return ""
}

// boot starts a guest on the node; unless the test ends it, it is shut down at
// the end and every mistake of the device fails the test.
func (n *node) boot(o guest.Options) *guest.Guest {
	n.t.Helper()
	o.Driver.Slack = slack
	g, err := guest.Boot(n.t.Context(), n.socket, o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		select {
		case <-g.Client.Done():
			return
		default:
		}
		if err := g.Shutdown(); err != nil {
			n.t.Errorf("guest of %s: %v", n.socket, err)
		}
	})
	return g
}

// end is one of the two users of a scenario.
type end struct {
	t     testing.TB
	node  *node
	guest *guest.Guest
	ctx   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	addr  netip.Addr // its GID
}

func newEnd(t testing.TB, n *node, g *guest.Guest, kernel bool, addr netip.Addr) *end {
	t.Helper()
	e := &end{t: t, node: n, guest: g, ctx: g.RDMA.Kernel(), addr: addr}
	if !kernel {
		c, err := g.RDMA.OpenUser()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		e.ctx = c
	}
	var err error
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.pd.Free)
	e.cq = e.newCQ(256)
	return e
}

func (e *end) newCQ(entries int) *verbs.CQ {
	e.t.Helper()
	cq, err := e.ctx.CreateCQ(entries, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.alive() {
			if err := cq.Destroy(); err != nil {
				e.t.Error(err)
			}
		}
	})
	return cq
}

// alive reports whether the end's guest still runs.
func (e *end) alive() bool {
	select {
	case <-e.guest.Client.Done():
		return false
	default:
		return e.guest.NIC.Err() == nil
	}
}

// mr makes a buffer of n bytes, a little into a page, and registers it.
func (e *end) mr(n int, access verbs.Access) *verbs.MR {
	e.t.Helper()
	b, err := e.ctx.NewBuffer(n, 136)
	if err != nil {
		e.t.Fatal(err)
	}
	m, err := e.pd.RegMR(b, access)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.alive() {
			if err := m.Dereg(); err != nil {
				e.t.Error(err)
			}
			b.Free()
		}
	})
	return m
}

const anyAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.BindMW

// qp makes a queue pair with room for everything a scenario does.
func (e *end) qp(kind verbs.Type, change ...func(*verbs.QPConfig)) *verbs.QP {
	e.t.Helper()
	cfg := verbs.QPConfig{
		Type: kind, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 64, MaxRecv: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 200,
	}
	for _, f := range change {
		f(&cfg)
	}
	qp, err := e.pd.CreateQP(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.alive() {
			if err := qp.Destroy(); err != nil {
				e.t.Error(err)
			}
		}
	})
	return qp
}

// pathTo is the way from one end to the other.
func (e *end) pathTo(p *end) verbs.Path {
	return verbs.Path{
		SrcMAC: e.guest.NIC.MAC(), DstMAC: p.guest.NIC.MAC(), Src: e.addr, Dst: p.addr, TrafficClass: 0x68,
	}
}

// connected makes a pair of queue pairs in RTS.
func connected(a, b *end, kind verbs.Type, o verbs.ConnectOptions) (qa, qb *verbs.QP) {
	a.t.Helper()
	qa, qb = a.qp(kind), b.qp(kind)
	connect(a, b, qa, qb, o)
	return qa, qb
}

var connections atomic.Uint32

func connect(a, b *end, qa, qb *verbs.QP, o verbs.ConnectOptions) {
	a.t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 18 // a second: a busy machine is no reason to send again
	}
	// Numbers of a new connection are far from those of the last, as those of a
	// real one are: packets of the old may still be under way. One side wraps early.
	n := connections.Add(1)
	psnA, psnB := (0xfffff0-n<<16)&0xffffff, (0x000123+n<<16)&0xffffff
	if n%4 == 1 {
		psnA = 0xfffff0
	}
	if err := qa.Connect(a.pathTo(b), psnA, verbs.Connection{QPN: qb.QPN, PSN: psnB}, o); err != nil {
		a.t.Fatal(err)
	}
	if err := qb.Connect(b.pathTo(a), psnB, verbs.Connection{QPN: qa.QPN, PSN: psnA}, o); err != nil {
		a.t.Fatal(err)
	}
}

// want polls n completions and checks that they are successes.
func (e *end) want(n int) []verbs.WC {
	e.t.Helper()
	wc := e.poll(n)
	for _, w := range wc {
		if w.Status != verbs.Success {
			e.t.Fatalf("completion %+v: %v", w, w.Status)
		}
	}
	return wc
}

// poll polls n completions of any status.
func (e *end) poll(n int) []verbs.WC {
	e.t.Helper()
	wc, err := e.cq.PollN(n, patience)
	if err != nil {
		e.t.Fatal(err)
	}
	return wc
}

// quiet checks that no completion is there.
func (e *end) quiet() {
	e.t.Helper()
	var wc [1]verbs.WC
	if n, err := e.cq.Poll(wc[:]); n != 0 || err != nil {
		e.t.Errorf("unexpected completion %+v (%v), %v", wc[0], wc[0].Status, err)
	}
}

// ready posts receives and waits until the worker knows of them, so that a
// datagram that is sent next finds them.
func (e *end) ready(qp *verbs.QP, wrs ...verbs.RecvWR) {
	e.t.Helper()
	must(e.t, qp.PostRecv(wrs...))
	must(e.t, e.guest.NIC.Sync())
}

// counter reads a hardware counter of the end's guest.
func (e *end) counter(name string) uint64 {
	e.t.Helper()
	c, err := e.guest.RDMA.Counters()
	if err != nil {
		e.t.Fatal(err)
	}
	v, ok := c[name]
	if !ok {
		e.t.Fatalf("no counter %q among %d", name, len(c))
	}
	return v
}

// awaitCounter waits until a hardware counter is above before.
func (e *end) awaitCounter(name string, before uint64) {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	for e.counter(name) <= before {
		if time.Now().After(deadline) {
			e.t.Fatalf("counter %s stays at %d", name, before)
		}
		time.Sleep(time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pattern is n bytes that depend on their place and on seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31+i>>8*7) ^ byte(seed)
	}
	return b
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"net/netip"
	"os"

	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

const messageSize = 40000

// end is a guest with a process in it.
type end struct {
	t     *verdict.T
	guest *guest.Guest
	pd    *verbs.PD
	cq    *verbs.CQ
	mr    *verbs.MR // two messages: what is sent and what is received
	addr  netip.Addr
}

// boot starts a guest on a worker.
func (w *worker) boot() {
	t := w.mesh.t
	t.Helper()
	t.Eventually("the socket of "+w.host.name, func() bool {
		if !w.Running() {
			t.Fatalf("worker %s ended:\n%s", w.host.name, w.Tail())
		}
		_, err := os.Stat(w.socket)
		return err == nil
	})
	g, err := guest.Boot(t.Context(), w.socket, guest.Options{Driver: driver.Options{Slack: 5}})
	t.Must(err)
	e := &end{t: t, guest: g, addr: netip.AddrFrom16(w.addr)}
	t.Cleanup(g.Kill)
	ctx, err := g.RDMA.OpenUser()
	t.Must(err)
	e.pd, err = ctx.AllocPD()
	t.Must(err)
	e.cq, err = ctx.CreateCQ(256, 0)
	t.Must(err)
	b, err := ctx.NewBuffer(2*messageSize, 0)
	t.Must(err)
	e.mr, err = e.pd.RegMR(b, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	t.Must(err)
	w.guest = e
}

// pair is a connection between two guests.
type pair struct {
	t    *verdict.T
	ends [2]*end
	qps  [2]*verbs.QP
	sent int
}

// enduring makes a queue pair try again for about 34 s: 4.096 us * 2^20 * 8.
var enduring = verbs.ConnectOptions{Timeout: 20, Retry: 7}

// connect makes a reliable connection.
func connect(t *verdict.T, a, b *worker, o verbs.ConnectOptions) *pair {
	t.Helper()
	p := &pair{t: t, ends: [2]*end{a.guest, b.guest}}
	for i, e := range p.ends {
		var err error
		p.qps[i], err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1})
		t.Must(err)
	}
	for i, e := range p.ends {
		peer := p.ends[1-i]
		path := verbs.Path{SrcMAC: e.guest.NIC.MAC(), DstMAC: peer.guest.NIC.MAC(), Src: e.addr, Dst: peer.addr}
		t.Must(p.qps[i].Connect(path, 1000, verbs.Connection{QPN: p.qps[1-i].QPN, PSN: 1000}, o))
	}
	return p
}

func (p *pair) close() {
	p.t.Helper()
	for _, qp := range p.qps {
		p.t.Must(qp.Destroy())
	}
}

// start sends one message each way, each with content of its own.
func (p *pair) start() {
	p.t.Helper()
	p.sent++
	for i, e := range p.ends {
		e.mr.Buffer.Write(0, message(p.sent, i))
		e.mr.Buffer.Write(messageSize, make([]byte, messageSize))
		p.t.Must(p.qps[i].PostRecv(verbs.RecvWR{ID: uint64(p.sent), SGEs: []verbs.SGE{e.mr.Buffer.SGE(messageSize, messageSize, e.mr.Key)}}))
	}
	for i, e := range p.ends {
		p.t.Must(p.qps[i].PostSend(verbs.SendWR{
			ID: uint64(p.sent), Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{e.mr.Buffer.SGE(0, messageSize, e.mr.Key)},
		}))
	}
}

// finish waits for what start sent and compares it.
func (p *pair) finish() {
	p.t.Helper()
	for i, e := range p.ends {
		wc, err := e.cq.PollN(2, verdict.Patience)
		p.t.Must(err)
		for _, w := range wc {
			if w.Status != verbs.Success || w.ID != uint64(p.sent) {
				p.t.Fatalf("end %d: completion %+v: %v", i, w, w.Status)
			}
		}
		if !bytes.Equal(e.mr.Buffer.Read(messageSize, messageSize), message(p.sent, 1-i)) {
			p.t.Fatalf("end %d: message %d arrived with another content", i, p.sent)
		}
	}
}

// exchange sends messages both ways and compares them.
func (p *pair) exchange(times int) {
	p.t.Helper()
	for range times {
		p.start()
		p.finish()
	}
}

// message is the content of a message of one end.
func message(number, end int) []byte {
	b := make([]byte, messageSize)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ byte(number*16+end)
	}
	return b
}

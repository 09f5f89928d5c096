// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var datagramScenarios = []scenario{
	{name: "UD/send with header and payload", run: datagrams},
	{name: "UD/what does not fit is dropped", run: datagramDrops},
	{name: "UD/VLAN tag", run: datagramVLAN},
	{name: "GSI/management datagrams", run: managementDatagrams, only: func(p topology) bool { return p.kernel }},
}

const (
	qkey    = 0x11223344
	grhSize = 40
)

func (e *end) ah(p verbs.Path) *verbs.AH {
	e.t.Helper()
	h, err := e.pd.CreateAH(p)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.alive() {
			if err := h.Destroy(); err != nil {
				e.t.Error(err)
			}
		}
	})
	return h
}

// checkDatagram checks a receive completion of a datagram from one end to another.
func checkDatagram(t *testing.T, w verbs.WC, m *verbs.MR, from, to *end, src uint32, data []byte) {
	t.Helper()
	if w.Len != uint32(grhSize+len(data)) || w.SrcQPN != src || !w.HasGRH || !bytes.Equal(w.SrcMAC[:], from.guest.NIC.MAC()) {
		t.Errorf("completion %+v, want %d bytes from queue pair %d", w, grhSize+len(data), src)
	}
	if w.IPv4 != from.addr.Is4() {
		t.Errorf("completion says IPv4 %v, the address is %v", w.IPv4, from.addr)
	}
	g, err := verbs.ParseGRH(m.Buffer.Read(0, grhSize), w.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	extra := 0
	if w.HasImm {
		extra = 4
	}
	const udpBTHDETH, icrc = 8 + 12 + 8, 4
	if want := udpBTHDETH + extra + (len(data)+3)&^3 + icrc; g.Length != want {
		t.Errorf("header says %d bytes follow, want %d", g.Length, want)
	}
	if g.Src != from.addr || g.Dst != to.addr || g.HopLimit != 64 || g.TrafficClass != 0x68 {
		t.Errorf("header %+v, want from %v to %v", g, from.addr, to.addr)
	}
	if got := m.Buffer.Read(grhSize, len(data)); !bytes.Equal(got, data) {
		t.Errorf("payload % x, want % x", got, data)
	}
}

func datagrams(t *testing.T, a, b *end) {
	qa, qb := a.qp(verbs.UD), b.qp(verbs.UD)
	must(t, qa.Activate(qkey, 3))
	must(t, qb.Activate(qkey, 4))
	ma, mb := a.mr(8192, 0), b.mr(8192, verbs.LocalWrite)
	h := a.ah(a.pathTo(b))
	for i, n := range []int{1, 40, 1001, 1024, 4096} {
		data := pattern(n, i)
		ma.Buffer.Write(0, data)
		canary(mb)
		// The header and the payload land in different pieces.
		b.ready(qb, verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{mb.Buffer.SGE(0, 7, mb.Key), mb.Buffer.SGE(7, 5000, mb.Key)}})
		wr := verbs.SendWR{
			ID: uint64(i), Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, n, ma.Key)},
			AH: h, RemoteQPN: qb.QPN, RemoteQKey: qkey,
		}
		if i%2 == 1 {
			wr.Op, wr.Imm = verbs.OpSendImm, uint32(n)
		}
		must(t, qa.PostSend(wr))
		w := b.want(1)[0]
		if w.ID != uint64(i) || w.HasImm != (i%2 == 1) || w.HasImm && w.Imm != uint32(n) || w.Tagged || w.VLAN != 0 {
			t.Errorf("completion %+v", w)
		}
		checkDatagram(t, w, mb, a, b, qa.QPN, data)
		a.want(1)
	}
}

func datagramDrops(t *testing.T, a, b *end) {
	qa, qb := a.qp(verbs.UD), b.qp(verbs.UD)
	must(t, qa.Activate(qkey, 0))
	must(t, qb.Activate(qkey, 0))
	mb := b.mr(4096, verbs.LocalWrite)
	canary(mb)
	h := a.ah(a.pathTo(b))
	nobody := a.pathTo(b)
	nobody.Dst, nobody.DstMAC = nobody.Src.Prev().Prev(), []byte{2, 9, 9, 9, 9, 9}
	lost := a.ah(nobody)
	send := func(h *verbs.AH, qpn, key uint32, n int) {
		t.Helper()
		must(t, qa.PostSend(verbs.SendWR{
			Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: pattern(n, 0), AH: h, RemoteQPN: qpn, RemoteQKey: key,
		}))
		a.want(1) // whatever becomes of it
	}
	// Each drop is counted on the side that makes it, so the test can wait for it.
	drop := func(e *end, counter string, h *verbs.AH, qpn, key uint32, n int) {
		t.Helper()
		before := e.counter(counter)
		send(h, qpn, key, n)
		e.awaitCounter(counter, before)
	}
	drop(b, "rx_rdma_drop_no_buffer", h, qb.QPN, qkey, 10)
	b.ready(qb, verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(0, grhSize+20, mb.Key)}})
	drop(b, "rx_rdma_drop_qkey", h, qb.QPN, qkey+1, 10)
	drop(b, "rx_rdma_mtu_discard_pkts", h, qb.QPN, qkey, 21)
	drop(b, "rx_rdma_drop_no_qp", h, 0xfffff0, qkey, 10)
	drop(a, "tx_rdma_drop_no_route", lost, qb.QPN, qkey, 10)
	onlyTouched(t, mb, 0, nil)
	send(h, qb.QPN, 0x8000_0000|77, 10) // the sender's own key is used: it is right
	w := b.want(1)[0]
	checkDatagram(t, w, mb, a, b, qa.QPN, pattern(10, 0))
	b.quiet()
	b.ready(qb, verbs.RecvWR{ID: 2, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 4096, mb.Key)}})
	send(h, qb.QPN, qkey, 100)
	if w := b.want(1)[0]; w.ID != 2 || w.Len != grhSize+100 {
		t.Errorf("completion %+v", w)
	}
	if at, err := qb.Query(); err != nil || at.State != verbs.RTS || at.QKey != qkey {
		t.Errorf("receiver: %+v, %v", at, err)
	}
}

func datagramVLAN(t *testing.T, a, b *end) {
	qa, qb := a.qp(verbs.UD), b.qp(verbs.UD)
	must(t, qa.Activate(qkey, 0))
	must(t, qb.Activate(qkey, 0))
	mb := b.mr(200, verbs.LocalWrite)
	p := a.pathTo(b)
	p.Tagged, p.VLAN = true, 5<<13|42
	h := a.ah(p)
	b.ready(qb, verbs.RecvWR{SGEs: []verbs.SGE{mb.Buffer.SGE(0, 200, mb.Key)}})
	must(t, qa.PostSend(verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: []byte("tagged"), AH: h, RemoteQPN: qb.QPN, RemoteQKey: qkey,
	}))
	w := b.want(1)[0]
	checkDatagram(t, w, mb, a, b, qa.QPN, []byte("tagged"))
	if !w.Tagged || w.VLAN != 5<<13|42 {
		t.Errorf("completion %+v, want tag %#x", w, 5<<13|42)
	}
	a.want(1)
}

func managementDatagrams(t *testing.T, a, b *end) {
	const gsiKey = 0x80010000
	ga := a.qp(verbs.GSI)
	must(t, ga.Activate(gsiKey, 0))
	gb := ga
	if b.guest != a.guest {
		gb = b.qp(verbs.GSI)
		must(t, gb.Activate(gsiKey, 0))
	}
	// All memory of the kernel is reached by key 0 and bus addresses.
	out, err := a.ctx.NewBuffer(256, 0)
	must(t, err)
	in, err := b.ctx.NewBuffer(296, 0)
	must(t, err)
	out.Write(0, pattern(256, 5))
	b.ready(gb, verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{in.SGE(0, 296, 0)}})
	must(t, ga.PostSend(verbs.SendWR{
		ID: 2, Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{out.SGE(0, 24, 0), out.SGE(24, 232, 0)},
		AH: a.ah(a.pathTo(b)), RemoteQPN: 1, RemoteQKey: gsiKey,
	}))
	if b.guest == a.guest {
		// One queue pair, whose completions go to the queue of end a.
		wc := a.want(2)
		if wc[0].ID+wc[1].ID != 3 {
			t.Errorf("completions %+v", wc)
		}
	} else {
		w := b.want(1)[0]
		checkDatagram(t, w, &verbs.MR{Buffer: in}, a, b, 1, pattern(256, 5))
		a.want(1)
	}
	if got := in.Read(grhSize, 256); !bytes.Equal(got, pattern(256, 5)) {
		t.Error("payload differs")
	}
}

// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var unreliableScenarios = []scenario{
	{name: "UC/send and write", run: unreliable},
	{name: "UC/what the responder refuses is dropped", run: unreliableDrops},
}

func unreliable(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.UC, verbs.ConnectOptions{})
	ma, mb := a.mr(regionSize, 0), b.mr(regionSize, anyAccess)
	for i, n := range []int{1, 1024, 4097, 300000} {
		data := pattern(n, i)
		ma.Buffer.Write(0, data)
		canary(mb)
		b.ready(qb, verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{mb.Buffer.SGE(3, n, mb.Key)}})
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSendImm, Imm: 5, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, n, ma.Key)}}))
		if w := b.want(1)[0]; w.ID != uint64(i) || w.Len != uint32(n) || !w.HasImm || w.SrcQPN != qa.QPN {
			t.Errorf("completion %+v", w)
		}
		a.want(1)
		onlyTouched(t, mb, 3, data)

		canary(mb)
		b.ready(qb, verbs.RecvWR{ID: uint64(i)})
		must(t, qa.PostSend(verbs.SendWR{
			Op: verbs.OpWriteImm, Imm: 6, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, n, ma.Key)}, RemoteAddr: mb.Buffer.VA + 9, RKey: mb.Key,
		}))
		if w := b.want(1)[0]; w.Op != verbs.WCRecvWriteImm || w.Imm != 6 || w.Len != uint32(n) {
			t.Errorf("completion %+v", w)
		}
		a.want(1)
		onlyTouched(t, mb, 9, data)
	}
}

func unreliableDrops(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.UC, verbs.ConnectOptions{})
	ma, mb := a.mr(9000, 0), b.mr(9000, anyAccess)
	canary(mb)
	signaled := func(wr verbs.SendWR) {
		t.Helper()
		wr.Flags |= verbs.Signaled
		must(t, qa.PostSend(wr))
		a.want(1)
	}
	sge := func(n int) []verbs.SGE { return []verbs.SGE{ma.Buffer.SGE(0, n, ma.Key)} }
	before := b.counter("rx_rdma_drop_no_buffer")
	signaled(verbs.SendWR{Op: verbs.OpSend, SGEs: sge(10)}) // no receive
	b.awaitCounter("rx_rdma_drop_no_buffer", before)
	signaled(verbs.SendWR{Op: verbs.OpWrite, SGEs: sge(9000), RemoteAddr: mb.Buffer.VA, RKey: mb.Key ^ 1})
	signaled(verbs.SendWR{Op: verbs.OpWrite, SGEs: sge(9000), RemoteAddr: mb.Buffer.VA + 1, RKey: mb.Key})
	b.ready(qb, verbs.RecvWR{ID: 8, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 100, mb.Key)}})
	ma.Buffer.Write(0, bytes.Repeat([]byte{0x77}, 64))
	signaled(verbs.SendWR{Op: verbs.OpSend, SGEs: sge(64)})
	if w := b.want(1)[0]; w.ID != 8 || w.Len != 64 {
		t.Errorf("completion %+v: the queue pair must go on", w)
	}
	// Messages of one queue pair stay in order: the refused ones have been there.
	onlyTouched(t, mb, 0, bytes.Repeat([]byte{0x77}, 64))
}

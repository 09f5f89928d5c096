// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"slices"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var errorScenarios = []scenario{
	{name: "RC/refused remote accesses change nothing and flush both sides", run: refusedAccesses},
	{name: "RC/bad local keys", run: localKeys},
	{name: "RC/receive too small", run: receiveTooSmall},
	{name: "RC/receive buffer without a right", run: receiveBadKey},
	{name: "RC/misaligned atomic", run: misalignedAtomic},
	{name: "RC/RNR waits for the receive", run: rnrWaits},
	{name: "RC/RNR retry exceeded", run: rnrExceeded},
	{name: "RC/retry exceeded towards a queue pair that is gone", run: retryExceeded},
	{name: "RC/retry exceeded towards nobody", run: retryNobody},
	{name: "RC/peer not ready looks like loss", run: peerLate},
	{name: "RC/flush at the move to ERR", run: flushOnErr},
	{name: "RC/reset and use again", run: resetReuse},
	{name: "RC/earlier messages succeed before a failing one", run: errorAfterSuccess},
}

// flushed checks that all completions are flushes with the given ids in order.
func flushed(t *testing.T, wc []verbs.WC, ids ...uint64) {
	t.Helper()
	var got []uint64
	for _, w := range wc {
		if w.Status != verbs.Flushed {
			t.Errorf("completion %+v: %v, want a flush", w, w.Status)
		}
		got = append(got, w.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("flushed %v, want %v", got, ids)
	}
}

func refusedAccesses(t *testing.T, a, b *end) {
	otherPD, err := b.ctx.AllocPD()
	must(t, err)
	t.Cleanup(otherPD.Free)
	noFlag := verbs.ConnectOptions{Access: verbs.RemoteRead}
	for _, c := range []struct {
		name   string
		op     verbs.Opcode
		access verbs.Access // of the target region
		o      verbs.ConnectOptions
		want   verbs.Status
		target func(m *verbs.MR) (addr uint64, key uint32)
	}{
		{name: "unknown key", op: verbs.OpWrite, access: anyAccess, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) { return m.Buffer.VA, m.Key + 0x100*5000 }},
		{name: "wrong key byte", op: verbs.OpWrite, access: anyAccess, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) { return m.Buffer.VA, m.Key ^ 0x55 }},
		{name: "one byte beyond", op: verbs.OpWrite, access: anyAccess, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) { return m.Buffer.VA + 8192 - 1999, m.Key }},
		{name: "one byte before", op: verbs.OpRead, access: anyAccess, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) { return m.Buffer.VA - 1, m.Key }},
		{name: "address wraps", op: verbs.OpWrite, access: anyAccess, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) { return ^uint64(0) - 5, m.Key }},
		{name: "write without the right", op: verbs.OpWrite, access: verbs.LocalWrite | verbs.RemoteRead, want: verbs.RemoteAccess},
		{name: "read without the right", op: verbs.OpRead, access: verbs.LocalWrite | verbs.RemoteWrite, want: verbs.RemoteAccess},
		{name: "atomic without the right", op: verbs.OpFetchAdd, access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead, want: verbs.RemoteAccess},
		{name: "write against the queue pair's flag", op: verbs.OpWrite, access: anyAccess, o: noFlag, want: verbs.RemoteAccess},
		{name: "atomic against the queue pair's flag", op: verbs.OpCmpSwap, access: anyAccess, o: noFlag, want: verbs.RemoteAccess},
		{name: "other domain", op: verbs.OpWrite, want: verbs.RemoteAccess,
			target: func(m *verbs.MR) (uint64, uint32) {
				r, err := otherPD.RegMR(m.Buffer, anyAccess)
				must(t, err)
				t.Cleanup(func() { must(t, r.Dereg()) })
				return m.Buffer.VA, r.Key
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := a.in(t), b.in(t)
			qa, qb := connected(a, b, verbs.RC, c.o)
			ma, mb := a.mr(8192, verbs.LocalWrite), b.mr(8192, c.access)
			canary(ma)
			canary(mb)
			addr, key := mb.Buffer.VA+8, mb.Key
			if c.target != nil {
				addr, key = c.target(mb)
			}
			must(t, qb.PostRecv(verbs.RecvWR{ID: 70}, verbs.RecvWR{ID: 71}))
			must(t, qa.PostRecv(verbs.RecvWR{ID: 80}))
			n := 2000
			if c.op >= verbs.OpCmpSwap {
				n = 8
			}
			must(t, qa.PostSend(
				verbs.SendWR{ID: 1, Op: c.op, SGEs: []verbs.SGE{ma.Buffer.SGE(0, n, ma.Key)}, RemoteAddr: addr, RKey: key},
				verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.Signaled},
				verbs.SendWR{ID: 3, Op: verbs.OpSend}))
			wc := a.poll(4)
			if wc[0].ID != 1 || wc[0].Status != c.want {
				t.Fatalf("first completion %+v: %v, want %v", wc[0], wc[0].Status, c.want)
			}
			flushed(t, wc[1:], 2, 3, 80)
			flushed(t, b.poll(2), 70, 71)
			onlyTouched(t, mb, 0, nil)
			onlyTouched(t, ma, 0, nil)
			for name, qp := range map[string]*verbs.QP{"requester": qa, "responder": qb} {
				if at, err := qp.Query(); err != nil || at.State != verbs.Err {
					t.Errorf("%s is in %v, %v", name, at.State, err)
				}
			}
			b.awaitEvent(qb.QPN, verbs.EventAccess, verbs.EventRequest)
		})
	}
}

// in returns the end for a subtest.
func (e *end) in(t *testing.T) *end {
	c := *e
	c.t = t
	c.cq = c.newCQ(256)
	return &c
}

// awaitEvent waits for an asynchronous event of a queue pair.
func (e *end) awaitEvent(qpn uint32, codes ...uint8) {
	e.t.Helper()
	timeout := time.After(patience)
	for {
		list, changed := e.guest.RDMA.QPEvents()
		for _, ev := range list {
			if ev.QPN == qpn && slices.Contains(codes, ev.Code) {
				return
			}
		}
		select {
		case <-changed:
		case <-timeout:
			e.t.Fatalf("no event %v of queue pair %d in %v", codes, qpn, list)
		}
	}
}

func localKeys(t *testing.T, a, b *end) {
	for name, c := range map[string]struct {
		op     verbs.Opcode
		access verbs.Access
		sge    func(m *verbs.MR) verbs.SGE
	}{
		"unknown key":                {verbs.OpSend, verbs.LocalWrite, func(m *verbs.MR) verbs.SGE { return m.Buffer.SGE(0, 8, m.Key^0x3000) }},
		"wrong key byte":             {verbs.OpWrite, verbs.LocalWrite, func(m *verbs.MR) verbs.SGE { return m.Buffer.SGE(0, 8, m.Key^1) }},
		"beyond the region":          {verbs.OpSend, verbs.LocalWrite, func(m *verbs.MR) verbs.SGE { return verbs.SGE{Addr: m.Buffer.VA + 4090, Length: 8, LKey: m.Key} }},
		"read into read-only memory": {verbs.OpRead, 0, func(m *verbs.MR) verbs.SGE { return m.Buffer.SGE(0, 8, m.Key) }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := a.in(t), b.in(t)
			qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
			ma, mb := a.mr(4096, c.access), b.mr(4096, anyAccess)
			canary(ma)
			canary(mb)
			must(t, qb.PostRecv(verbs.RecvWR{ID: 9, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 4096, mb.Key)}}))
			must(t, qa.PostSend(
				verbs.SendWR{ID: 1, Op: c.op, SGEs: []verbs.SGE{c.sge(ma)}, RemoteAddr: mb.Buffer.VA, RKey: mb.Key},
				verbs.SendWR{ID: 2, Op: verbs.OpSend}))
			wc := a.poll(2)
			if wc[0].ID != 1 || wc[0].Status != verbs.LocalProtection {
				t.Errorf("completion %+v: %v, want %v", wc[0], wc[0].Status, verbs.LocalProtection)
			}
			flushed(t, wc[1:], 2)
			onlyTouched(t, ma, 0, nil)
			onlyTouched(t, mb, 0, nil)
		})
	}
}

func receiveTooSmall(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(70000, 0), b.mr(70000, verbs.LocalWrite)
	canary(mb)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 65535, mb.Key)}}, verbs.RecvWR{ID: 2}))
	must(t, qa.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpSend, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 65536, ma.Key)}}))
	if w := a.poll(1)[0]; w.ID != 3 || w.Status != verbs.RemoteInvalid {
		t.Errorf("requester: %+v: %v, want %v", w, w.Status, verbs.RemoteInvalid)
	}
	wc := b.poll(2)
	if wc[0].ID != 1 || wc[0].Status != verbs.LocalLength {
		t.Errorf("responder: %+v: %v, want %v", wc[0], wc[0].Status, verbs.LocalLength)
	}
	flushed(t, wc[1:], 2)
	if got := mb.Buffer.Read(65535, 4465); slices.ContainsFunc(got, func(b byte) bool { return b != 0xc5 }) {
		t.Error("bytes beyond the receive buffer changed")
	}
}

func receiveBadKey(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(100, 0), b.mr(100, verbs.RemoteRead) // no local write
	canary(mb)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 100, mb.Key)}}, verbs.RecvWR{ID: 2}))
	must(t, qa.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpSend, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 100, ma.Key)}}))
	if w := a.poll(1)[0]; w.Status != verbs.RemoteOperation {
		t.Errorf("requester: %v, want %v", w.Status, verbs.RemoteOperation)
	}
	wc := b.poll(2)
	if wc[0].ID != 1 || wc[0].Status != verbs.LocalProtection {
		t.Errorf("responder: %+v: %v, want %v", wc[0], wc[0].Status, verbs.LocalProtection)
	}
	flushed(t, wc[1:], 2)
	onlyTouched(t, mb, 0, nil)
}

func misalignedAtomic(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(64, verbs.LocalWrite), b.mr(64, anyAccess)
	canary(mb)
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpFetchAdd, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 8, ma.Key)}, RemoteAddr: mb.Buffer.VA + 4, RKey: mb.Key, Swap: 1}))
	if w := a.poll(1)[0]; w.Status != verbs.RemoteInvalid {
		t.Errorf("completion %v, want %v", w.Status, verbs.RemoteInvalid)
	}
	onlyTouched(t, mb, 0, nil)
}

func rnrWaits(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{MinRNR: 8}) // 0.16 ms; retry for ever
	ma, mb := a.mr(100, 0), b.mr(100, verbs.LocalWrite)
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 100, ma.Key)}}))
	time.Sleep(20 * time.Millisecond) // longer than seven waits
	a.quiet()
	must(t, qb.PostRecv(verbs.RecvWR{ID: 2, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 100, mb.Key)}}))
	b.want(1)
	a.want(1)
}

func rnrExceeded(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{RNRRetry: 2, MinRNR: 8})
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend}, verbs.SendWR{ID: 2, Op: verbs.OpSend}))
	wc := a.poll(2)
	if wc[0].ID != 1 || wc[0].Status != verbs.RNRExceeded {
		t.Errorf("completion %+v: %v, want %v", wc[0], wc[0].Status, verbs.RNRExceeded)
	}
	flushed(t, wc[1:], 2)
	if at, err := qb.Query(); err != nil || at.State != verbs.RTS {
		t.Errorf("responder is in %v, %v: it must not notice", at.State, err)
	}
	b.quiet()
}

// quickly gives up after about 0.3 s: 4.096 us * 2^14 * 4.
var quickly = verbs.ConnectOptions{Timeout: 14, Retry: 3}

func retryExceeded(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, quickly)
	must(t, qb.ToReset())
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend}, verbs.SendWR{ID: 2, Op: verbs.OpSend}))
	wc := a.poll(2)
	if wc[0].ID != 1 || wc[0].Status != verbs.RetryExceeded {
		t.Errorf("completion %+v: %v, want %v", wc[0], wc[0].Status, verbs.RetryExceeded)
	}
	flushed(t, wc[1:], 2)
}

func retryNobody(t *testing.T, a, b *end) {
	qa := a.qp(verbs.RC)
	path := a.pathTo(b)
	path.Dst = path.Src.Prev().Prev() // nobody's
	path.DstMAC = []byte{2, 9, 9, 9, 9, 9}
	must(t, qa.Connect(path, 0, verbs.Connection{QPN: 77}, quickly))
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend}))
	if w := a.poll(1)[0]; w.Status != verbs.RetryExceeded {
		t.Errorf("completion %v, want %v", w.Status, verbs.RetryExceeded)
	}
}

func peerLate(t *testing.T, a, b *end) {
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	mb := b.mr(8, verbs.LocalWrite)
	must(t, qa.Connect(a.pathTo(b), 5, verbs.Connection{QPN: qb.QPN, PSN: 9}, verbs.ConnectOptions{Timeout: 12}))
	must(t, qb.ToInit(anyAccess))
	must(t, qb.PostRecv(verbs.RecvWR{ID: 3, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 8, mb.Key)}}))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: []byte("late one")}))
	time.Sleep(10 * time.Millisecond)
	a.quiet()
	must(t, qb.ToRTR(b.pathTo(a), verbs.Connection{QPN: qa.QPN, PSN: 5}, verbs.ConnectOptions{}))
	b.want(1)
	a.want(1)
	if got := mb.Buffer.Read(0, 8); string(got) != "late one" {
		t.Errorf("payload %q", got)
	}
	b.awaitEvent(qb.QPN, verbs.EventCommEst)
}

func flushOnErr(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	must(t, qa.PostRecv(verbs.RecvWR{ID: 10}, verbs.RecvWR{ID: 11}))
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend}, verbs.SendWR{ID: 2, Op: verbs.OpSend})) // no receive: they wait
	must(t, qb.PostRecv())
	must(t, qa.ToErr())
	flushed(t, a.poll(4), 1, 2, 10, 11)
	// Requests that are posted later flush as well.
	must(t, qa.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpWrite}))
	must(t, qa.PostRecv(verbs.RecvWR{ID: 12}))
	flushed(t, a.poll(2), 3, 12)
	if at, err := qb.Query(); err != nil || at.State != verbs.RTS {
		t.Errorf("peer is in %v, %v", at.State, err)
	}
}

func resetReuse(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	mb := b.mr(64, verbs.LocalWrite)
	for round := range 6 {
		for i := range 5 + round {
			must(t, qb.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{mb.Buffer.SGE(0, 64, mb.Key)}}))
			must(t, qa.PostSend(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: pattern(9, round+i)}))
			if w := b.want(1)[0]; w.ID != uint64(i) || w.Len != 9 {
				t.Fatalf("round %d message %d: %+v", round, i, w)
			}
			a.want(1)
		}
		// Leave something on both queues, which the reset drops silently.
		must(t, qb.PostRecv(verbs.RecvWR{ID: 99}))
		must(t, qa.PostRecv(verbs.RecvWR{ID: 98}))
		if round%2 == 0 {
			must(t, qa.ToErr())
			must(t, qb.ToErr())
		}
		again(a, b, qa, qb)
		a.quiet()
		b.quiet()
	}
}

func errorAfterSuccess(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(4096, 0), b.mr(4096, anyAccess)
	write := func(id uint64, flags verbs.SendFlags, key uint32) verbs.SendWR {
		return verbs.SendWR{ID: id, Op: verbs.OpWrite, Flags: flags, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 4096, ma.Key)}, RemoteAddr: mb.Buffer.VA, RKey: key}
	}
	must(t, qa.PostSend(write(1, 0, mb.Key), write(2, verbs.Signaled, mb.Key), write(3, 0, mb.Key), write(4, 0, mb.Key^1), write(5, verbs.Signaled, mb.Key)))
	wc := a.poll(3)
	if wc[0].ID != 2 || wc[0].Status != verbs.Success || wc[1].ID != 4 || wc[1].Status != verbs.RemoteAccess {
		t.Errorf("completions %+v", wc)
	}
	flushed(t, wc[2:], 5)
}

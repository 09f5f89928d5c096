// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var memoryScenarios = []scenario{
	{name: "MR/keys end with the region", run: deregistered},
	{name: "MR/addresses other than the buffer's", run: otherAddress},
	{name: "MR/fast registration and invalidation", run: fastRegistration, only: inKernel},
	{name: "MR/invalidation behind unsignalled messages", run: invalidationBehindUnsignalled, only: inKernel},
	{name: "MR/remote invalidation", run: remoteInvalidation, only: inKernel},
	{name: "MR/key 0 of the kernel", run: keyZero, only: inKernel},
	{name: "MR/key 0 is nobody's in a process", run: keyZeroRefused, only: inProcess},
	{name: "MW/type 1", run: windowType1, only: inProcess},
	{name: "MW/type 2", run: windowType2, only: inProcess},
}

// write writes n bytes to an address under a key and returns the completion's status.
func write(a *end, qa *verbs.QP, m *verbs.MR, n int, addr uint64, key uint32) verbs.Status {
	a.t.Helper()
	must(a.t, qa.PostSend(verbs.SendWR{
		Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{m.Buffer.SGE(0, n, m.Key)}, RemoteAddr: addr, RKey: key,
	}))
	return a.poll(1)[0].Status
}

func deregistered(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma := a.mr(5000, 0)
	buf, err := b.ctx.NewBuffer(5000, 0)
	must(t, err)
	r, err := b.pd.RegMR(buf, anyAccess)
	must(t, err)
	if s := write(a, qa, ma, 5000, buf.VA, r.Key); s != verbs.Success {
		t.Fatalf("write: %v", s)
	}
	must(t, r.Dereg())
	buf.Free() // filled with a pattern that is checked when the guest ends
	if s := write(a, qa, ma, 5000, buf.VA, r.Key); s != verbs.RemoteAccess {
		t.Errorf("write with the old key: %v, want %v", s, verbs.RemoteAccess)
	}
	must(t, b.guest.NIC.Memory().Check())
}

func otherAddress(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(9000, 0), b.mr(9000, 0)
	ma.Buffer.Write(0, pattern(9000, 1))
	const va = 0xffff_8000_0000_0000
	r, err := b.pd.RegMRAt(mb.Buffer, va+136, anyAccess)
	must(t, err)
	t.Cleanup(func() { must(t, r.Dereg()) })
	canary(mb)
	if s := write(a, qa, ma, 8000, va+136+500, r.Key); s != verbs.Success {
		t.Fatalf("write: %v", s)
	}
	onlyTouched(t, mb, 500, pattern(8000, 1))
}

func fastRegistration(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma := a.mr(12000, 0)
	ma.Buffer.Write(0, pattern(12000, 4))
	r, err := b.pd.AllocFastMR()
	must(t, err)
	t.Cleanup(func() { must(t, r.Dereg()) })
	if s := write(a, qa, ma, 10, 0, r.Key); s != verbs.RemoteAccess {
		t.Fatalf("write to a region without pages: %v", s)
	}
	b.drain()
	qa, qb = again(a, b, qa, qb)
	for i, size := range []int{100, 12000} {
		buf, err := b.ctx.NewBuffer(size, 300)
		must(t, err)
		t.Cleanup(buf.Free)
		must(t, r.Map(buf))
		va := uint64(0x7000_0000_0000) + 300
		// The registration is unsignaled, the way storage drivers post it: the
		// message after it completes only if the registration did.
		must(t, qb.PostSend(verbs.SendWR{Op: verbs.OpRegMR, MR: r, NewKey: byte(40 + i), VA: va, Access: anyAccess}))
		must(t, qa.PostRecv(verbs.RecvWR{}))
		must(t, qb.PostSend(verbs.SendWR{ID: 9, Op: verbs.OpSend, Flags: verbs.Signaled}))
		b.want(1)
		a.want(1)
		if r.Key&0xff != uint32(40+i) {
			t.Errorf("key %#x", r.Key)
		}
		if s := write(a, qa, ma, size-7, va+7, r.Key); s != verbs.Success {
			t.Fatalf("write of %d bytes: %v", size-7, s)
		}
		if got := buf.Read(7, size-7); !bytes.Equal(got, pattern(12000, 4)[:size-7]) {
			t.Error("payload differs")
		}
		must(t, qb.PostSend(verbs.SendWR{ID: 10, Op: verbs.OpLocalInv, Flags: verbs.Signaled, InvKey: r.Key}))
		if w := b.want(1)[0]; w.ID != 10 || w.Op != verbs.WCLocalInv {
			t.Errorf("completion %+v", w)
		}
		if s := write(a, qa, ma, 1, va, r.Key); s != verbs.RemoteAccess {
			t.Errorf("write after the invalidation: %v", s)
		}
		b.drain()
		qa, qb = again(a, b, qa, qb)
	}
	// Invalidating what is invalid already is an error of the queue pair.
	must(t, qb.PostSend(verbs.SendWR{ID: 11, Op: verbs.OpLocalInv, InvKey: r.Key}, verbs.SendWR{ID: 12, Op: verbs.OpSend}))
	wc := b.poll(2)
	if wc[0].ID != 11 || wc[0].Status != verbs.MemoryMgmt {
		t.Errorf("completion %+v: %v, want %v", wc[0], wc[0].Status, verbs.MemoryMgmt)
	}
	flushed(t, wc[1:], 12)
}

// Work is taken off the send queue in order, so an invalidation is told only with
// the messages before it, which nobody asked to hear of.
func invalidationBehindUnsignalled(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(100, 0), b.mr(100, anyAccess)
	r, err := a.pd.AllocFastMR()
	must(t, err)
	buf, err := a.ctx.NewBuffer(4096, 0)
	must(t, err)
	t.Cleanup(buf.Free)
	must(t, r.Map(buf))
	t.Cleanup(func() { must(t, r.Dereg()) })
	quiet := verbs.SendWR{ID: 2, Op: verbs.OpWrite, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 100, ma.Key)}, RemoteAddr: mb.Buffer.VA, RKey: mb.Key}
	for i := range 100 { // the queue has room for 64
		must(t, qa.PostSend(
			verbs.SendWR{ID: 1, Op: verbs.OpRegMR, MR: r, NewKey: byte(i), VA: buf.VA, Access: anyAccess},
			quiet, quiet,
			verbs.SendWR{ID: 3, Op: verbs.OpLocalInv, Flags: verbs.Signaled, InvKey: r.Key&^0xff | uint32(i)},
		))
		if w := a.want(1)[0]; w.ID != 3 || w.Op != verbs.WCLocalInv {
			t.Fatalf("completion %+v", w)
		}
	}
}

func remoteInvalidation(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma := a.mr(100, 0)
	r, err := b.pd.AllocFastMR()
	must(t, err)
	buf, err := b.ctx.NewBuffer(8192, 0)
	must(t, err)
	t.Cleanup(buf.Free)
	must(t, r.Map(buf))
	t.Cleanup(func() { must(t, r.Dereg()) })
	must(t, qb.PostSend(verbs.SendWR{Op: verbs.OpRegMR, Flags: verbs.Signaled, MR: r, NewKey: 77, VA: buf.VA, Access: anyAccess}))
	b.want(1)
	if s := write(a, qa, ma, 100, buf.VA, r.Key); s != verbs.Success {
		t.Fatalf("write: %v", s)
	}
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1}))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSendInv, Flags: verbs.Signaled, InvKey: r.Key}))
	if w := b.want(1)[0]; !w.HasInv || w.InvKey != r.Key || w.HasImm {
		t.Errorf("completion %+v, want the invalidation of %#x", w, r.Key)
	}
	a.want(1)
	if s := write(a, qa, ma, 100, buf.VA, r.Key); s != verbs.RemoteAccess {
		t.Errorf("write after the invalidation: %v", s)
	}
}

func keyZero(t *testing.T, a, b *end) {
	open := func(c *verbs.QPConfig) { c.UnsafeGlobalKey = true }
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC, open)
	connect(a, b, qa, qb, verbs.ConnectOptions{})
	from, err := a.ctx.NewBuffer(6000, 10)
	must(t, err)
	t.Cleanup(from.Free)
	to, err := b.ctx.NewBuffer(6000, 20)
	must(t, err)
	t.Cleanup(to.Free)
	from.Write(0, pattern(6000, 6))
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{from.SGE(0, 6000, 0)}, RemoteAddr: to.VA}))
	a.want(1)
	if !bytes.Equal(to.Read(0, 6000), pattern(6000, 6)) {
		t.Error("payload differs")
	}
	// Without the flag a peer's key 0 is no key.
	qa, qb = connected(a, b, verbs.RC, verbs.ConnectOptions{})
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, SGEs: []verbs.SGE{from.SGE(0, 6000, 0)}, RemoteAddr: to.VA}))
	if w := a.poll(1)[0]; w.Status != verbs.RemoteAccess {
		t.Errorf("key 0 of a queue pair without the flag: %v", w.Status)
	}
	if at, err := qb.Query(); err != nil || at.State != verbs.Err {
		t.Errorf("responder is in %v, %v", at.State, err)
	}
}

func keyZeroRefused(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, SGEs: []verbs.SGE{{Addr: 0x1000, Length: 8}}}))
	if w := a.poll(1)[0]; w.Status != verbs.LocalProtection {
		t.Errorf("key 0 in a process: %v, want %v", w.Status, verbs.LocalProtection)
	}
}

// bind binds a window and checks the completion.
func bind(e *end, qp *verbs.QP, w *verbs.MW, m *verbs.MR, key byte, va, n uint64, access verbs.Access) verbs.Status {
	e.t.Helper()
	must(e.t, qp.PostSend(verbs.SendWR{ID: 60, Op: verbs.OpBindMW, Flags: verbs.Signaled, MW: w, MR: m, NewKey: key, VA: va, Length: n, Access: access}))
	c := e.poll(1)[0]
	if c.ID != 60 || c.Status == verbs.Success && c.Op != verbs.WCBindMW {
		e.t.Errorf("completion %+v", c)
	}
	return c.Status
}

func windowType1(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(4000, 0), b.mr(20000, anyAccess)
	ma.Buffer.Write(0, pattern(4000, 7))
	w, err := b.pd.AllocMW(false)
	must(t, err)
	t.Cleanup(func() { must(t, w.Dealloc()) })
	canary(mb)
	va := mb.Buffer.VA + 5000
	if s := bind(b, qb, w, mb, 21, va, 4000, verbs.RemoteWrite); s != verbs.Success {
		t.Fatalf("bind: %v", s)
	}
	first := w.Key
	if s := write(a, qa, ma, 4000, va, w.Key); s != verbs.Success {
		t.Fatalf("write through the window: %v", s)
	}
	onlyTouched(t, mb, 5000, pattern(4000, 7))
	// Bound again elsewhere: the old key is void.
	if s := bind(b, qb, w, mb, 22, mb.Buffer.VA, 100, verbs.RemoteWrite); s != verbs.Success {
		t.Fatalf("bind again: %v", s)
	}
	if s := write(a, qa, ma, 100, mb.Buffer.VA, w.Key); s != verbs.Success {
		t.Fatalf("write through the new window: %v", s)
	}
	if s := write(a, qa, ma, 100, va, first); s != verbs.RemoteAccess {
		t.Errorf("write with the old key: %v", s)
	}
}

func windowType2(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(1000, 0), b.mr(20000, anyAccess)
	w, err := b.pd.AllocMW(true)
	must(t, err)
	t.Cleanup(func() { must(t, w.Dealloc()) })
	if s := bind(b, qb, w, mb, 31, mb.Buffer.VA+100, 1000, verbs.RemoteWrite); s != verbs.Success {
		t.Fatalf("bind: %v", s)
	}
	if s := write(a, qa, ma, 1000, mb.Buffer.VA+100, w.Key); s != verbs.Success {
		t.Fatalf("write: %v", s)
	}
	must(t, qb.PostSend(verbs.SendWR{Op: verbs.OpLocalInv, Flags: verbs.Signaled, InvKey: w.Key}))
	b.want(1)
	if s := write(a, qa, ma, 10, mb.Buffer.VA+100, w.Key); s != verbs.RemoteAccess {
		t.Errorf("write after the invalidation: %v", s)
	}
	b.drain()
	_, qb = again(a, b, qa, qb)
	// A window cannot give more than its region.
	narrow := b.mr(100, verbs.LocalWrite|verbs.BindMW)
	if s := bind(b, qb, w, narrow, 32, narrow.Buffer.VA, 101, verbs.RemoteWrite); s != verbs.MemoryMgmt {
		t.Errorf("window beyond its region: %v, want %v", s, verbs.MemoryMgmt)
	}
}

// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var reliableScenarios = []scenario{
	{name: "RC/send moves every size", run: sendSizes},
	{name: "RC/send gathers and scatters", run: sendGathers},
	{name: "RC/send with immediate", run: sendImmediate},
	{name: "RC/inline payload", run: sendInline},
	{name: "RC/write moves every size and nothing else", run: writeSizes},
	{name: "RC/write with immediate", run: writeImmediate},
	{name: "RC/read moves every size", run: readSizes},
	{name: "RC/atomics", run: atomics},
	{name: "RC/many laps of the rings in order", run: manyLaps},
	{name: "RC/both ways at once", run: bothWays},
	{name: "RC/fence after a read", run: fenced},
	{name: "RC/mixed operations complete in order", run: mixedOrder},
}

// sizes are message sizes around the limits of MTU, page and chunk.
var sizes = []int{0, 1, 3, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 262143, 262144, 262145, 1 << 20}

const regionSize = 1<<20 + 4096

// canary surrounds what a message may touch.
func canary(m *verbs.MR) { m.Buffer.Write(0, bytes.Repeat([]byte{0xc5}, m.Buffer.Len)) }

// onlyTouched checks that the n bytes at off hold want and that all others are canaries.
func onlyTouched(t *testing.T, m *verbs.MR, off int, want []byte) {
	t.Helper()
	got := m.Buffer.Read(0, m.Buffer.Len)
	for i, v := range got {
		w := byte(0xc5)
		if i >= off && i < off+len(want) {
			w = want[i-off]
		}
		if v != w {
			t.Fatalf("byte %d of the region is %#02x, want %#02x (message of %d bytes at %d)", i, v, w, len(want), off)
		}
	}
}

func sendSizes(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(regionSize, 0), b.mr(regionSize, verbs.LocalWrite)
	for i, n := range sizes {
		data := pattern(n, i)
		ma.Buffer.Write(11, data)
		canary(mb)
		must(t, qb.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []verbs.SGE{mb.Buffer.SGE(5, n+7, mb.Key)}}))
		must(t, qa.PostSend(verbs.SendWR{ID: 100, Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(11, n, ma.Key)}}))
		if n == 0 {
			// The kernel makes 2 GiB of an element of no bytes; see below.
			if a.ctx == a.guest.RDMA.Kernel() {
				if w := a.poll(1)[0]; w.Status == verbs.Success {
					t.Errorf("message of 2 GiB from a region of %d bytes: %v", ma.Buffer.Len, w.Status)
				}
				qa, qb = again(a, b, qa, qb)
				continue
			}
		}
		w := b.want(1)[0]
		if w.ID != uint64(i) || w.Len != uint32(n) || w.Op != verbs.WCRecv || w.SrcQPN != qa.QPN || w.HasImm || w.HasInv || w.HasGRH {
			t.Errorf("%d bytes: receive completion %+v", n, w)
		}
		if w := a.want(1)[0]; w.ID != 100 || w.Op != verbs.WCSend || w.Len != uint32(n) {
			t.Errorf("%d bytes: send completion %+v", n, w)
		}
		onlyTouched(t, mb, 5, data)
	}
}

// again resets and reconnects a pair whose queues are in error, and drops what
// was flushed.
func again(a, b *end, qa, qb *verbs.QP) (*verbs.QP, *verbs.QP) {
	a.t.Helper()
	must(a.t, qa.ToReset())
	must(a.t, qb.ToReset())
	a.drain()
	b.drain()
	connect(a, b, qa, qb, verbs.ConnectOptions{})
	return qa, qb
}

// drain reads whatever completions are there.
func (e *end) drain() {
	e.t.Helper()
	var wc [64]verbs.WC
	for {
		n, err := e.cq.Poll(wc[:])
		if err != nil {
			e.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

func sendGathers(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, ma2, mb := a.mr(20000, 0), a.mr(5000, 0), b.mr(20000, verbs.LocalWrite)
	ma.Buffer.Write(0, pattern(20000, 1))
	ma2.Buffer.Write(0, pattern(5000, 2))
	from := []verbs.SGE{ma.Buffer.SGE(17, 4000, ma.Key), ma2.Buffer.SGE(1, 1, ma2.Key), ma.Buffer.SGE(9000, 3001, ma.Key), ma2.Buffer.SGE(100, 4900, ma2.Key)}
	for pieces := 1; pieces <= 4; pieces++ {
		var want []byte
		for _, s := range from[:pieces] {
			m := ma
			if s.LKey == ma2.Key {
				m = ma2
			}
			want = append(want, m.Buffer.Read(int(s.Addr-m.Buffer.VA), int(s.Length))...)
		}
		canary(mb)
		// The receive list is cut elsewhere, and has room left.
		into := []verbs.SGE{mb.Buffer.SGE(0, 1, mb.Key), mb.Buffer.SGE(1, 2999, mb.Key), mb.Buffer.SGE(3000, 17000, mb.Key)}
		must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: into}))
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: from[:pieces]}))
		if w := b.want(1)[0]; w.Len != uint32(len(want)) {
			t.Errorf("%d pieces: %d bytes, want %d", pieces, w.Len, len(want))
		}
		a.want(1)
		onlyTouched(t, mb, 0, want)
	}
}

func sendImmediate(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(64, 0), b.mr(64, verbs.LocalWrite)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(0, 64, mb.Key)}}, verbs.RecvWR{ID: 2}))
	must(t, qa.PostSend(
		verbs.SendWR{Op: verbs.OpSendImm, Imm: 0xdeadbeef, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 64, ma.Key)}},
		verbs.SendWR{Op: verbs.OpSendImm, Imm: 7, Flags: verbs.Signaled}))
	wc := b.want(2)
	if !wc[0].HasImm || wc[0].Imm != 0xdeadbeef || wc[0].Len != 64 || !wc[1].HasImm || wc[1].Imm != 7 || wc[1].Len != 0 {
		t.Errorf("receive completions %+v", wc)
	}
	a.want(1)
}

func sendInline(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	mb := b.mr(512, verbs.LocalWrite)
	for i, n := range []int{0, 1, 32, 200} {
		canary(mb)
		data := pattern(n, i)
		must(t, qb.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{mb.Buffer.SGE(3, 300, mb.Key)}}))
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signaled | verbs.Inline, Data: data}))
		if w := b.want(1)[0]; w.Len != uint32(n) {
			t.Errorf("%d inline bytes: %+v", n, w)
		}
		a.want(1)
		onlyTouched(t, mb, 3, data)
		canary(mb)
		must(t, qa.PostSend(verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signaled | verbs.Inline, Data: data, RemoteAddr: mb.Buffer.VA + 9, RKey: b.mrKey(mb, anyAccess),
		}))
		a.want(1)
		onlyTouched(t, mb, 9, data)
	}
}

// mrKey registers a region's buffer once more, with other rights.
func (e *end) mrKey(m *verbs.MR, access verbs.Access) uint32 {
	e.t.Helper()
	r, err := e.pd.RegMR(m.Buffer, access)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.alive() {
			if err := r.Dereg(); err != nil {
				e.t.Error(err)
			}
		}
	})
	return r.Key
}

func writeSizes(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(regionSize, 0), b.mr(regionSize, anyAccess)
	for i, n := range sizes {
		if n == 0 {
			continue
		}
		data := pattern(n, i)
		ma.Buffer.Write(1, data)
		canary(mb)
		must(t, qa.PostSend(verbs.SendWR{
			ID: uint64(n), Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(1, n, ma.Key)},
			RemoteAddr: mb.Buffer.VA + 13, RKey: mb.Key,
		}))
		if w := a.want(1)[0]; w.ID != uint64(n) || w.Op != verbs.WCWrite {
			t.Errorf("completion %+v", w)
		}
		onlyTouched(t, mb, 13, data)
	}
	// A message without bytes needs no key.
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: 99, RKey: 12345}))
	a.want(1)
	b.quiet()
}

func writeImmediate(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(5000, 0), b.mr(5000, anyAccess)
	canary(mb)
	data := pattern(4500, 3)
	ma.Buffer.Write(0, data)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 5}))
	must(t, qa.PostSend(verbs.SendWR{
		Op: verbs.OpWriteImm, Flags: verbs.Signaled, Imm: 0x01020304, SGEs: []verbs.SGE{ma.Buffer.SGE(0, 4500, ma.Key)},
		RemoteAddr: mb.Buffer.VA + 100, RKey: mb.Key,
	}))
	if w := b.want(1)[0]; w.ID != 5 || w.Op != verbs.WCRecvWriteImm || !w.HasImm || w.Imm != 0x01020304 || w.Len != 4500 {
		t.Errorf("receive completion %+v", w)
	}
	a.want(1)
	onlyTouched(t, mb, 100, data)
}

func readSizes(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(regionSize, verbs.LocalWrite), b.mr(regionSize, anyAccess)
	for i, n := range sizes {
		if n < 2 {
			continue
		}
		data := pattern(n, i)
		mb.Buffer.Write(21, data)
		canary(ma)
		sges := []verbs.SGE{ma.Buffer.SGE(2, n/2, ma.Key), ma.Buffer.SGE(2+n/2, n-n/2, ma.Key)}
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signaled, SGEs: sges, RemoteAddr: mb.Buffer.VA + 21, RKey: mb.Key}))
		if w := a.want(1)[0]; w.Op != verbs.WCRead {
			t.Errorf("completion %+v", w)
		}
		onlyTouched(t, ma, 2, data)
	}
	b.quiet()
}

func atomics(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(256, verbs.LocalWrite), b.mr(256, anyAccess)
	const start = 0x1122334455667788
	canary(mb)
	word := make([]byte, 8)
	put := func(v uint64) []byte {
		for i := range word {
			word[i] = byte(v >> (8 * i))
		}
		return word
	}
	mb.Buffer.Write(24, put(start))
	op := func(o verbs.Opcode, compare, swap uint64) uint64 {
		t.Helper()
		canary(ma)
		must(t, qa.PostSend(verbs.SendWR{
			Op: o, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(8, 8, ma.Key)},
			RemoteAddr: mb.Buffer.VA + 24, RKey: mb.Key, Compare: compare, Swap: swap,
		}))
		a.want(1)
		old := ma.Buffer.Load64(8)
		onlyTouched(t, ma, 8, put(old))
		return old
	}
	steps := []struct {
		op            verbs.Opcode
		compare, swap uint64
		after         uint64
	}{
		{verbs.OpFetchAdd, 0, 1, start + 1},
		{verbs.OpCmpSwap, start, 5, start + 1}, // differs: nothing happens
		{verbs.OpCmpSwap, start + 1, 0xffffffffffffffff, 0xffffffffffffffff},
		{verbs.OpFetchAdd, 0, 3, 2},
	}
	before := uint64(start)
	for i, s := range steps {
		if old := op(s.op, s.compare, s.swap); old != before {
			t.Errorf("step %d returned %#x, want %#x", i, old, before)
		}
		if now := mb.Buffer.Load64(24); now != s.after {
			t.Errorf("step %d left %#x, want %#x", i, now, s.after)
		}
		before = s.after
	}
	onlyTouched(t, mb, 24, put(before))
}

func manyLaps(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	const total, burst = 1000, 20
	ma, mb := a.mr(64*burst, 0), b.mr(64*burst, verbs.LocalWrite)
	for base := 0; base < total; base += burst {
		for i := range burst {
			ma.Buffer.Write(64*i, pattern(64, base+i))
			must(t, qb.PostRecv(verbs.RecvWR{ID: uint64(base + i), SGEs: []verbs.SGE{mb.Buffer.SGE(64*i, 64, mb.Key)}}))
		}
		wrs := make([]verbs.SendWR, burst)
		for i := range wrs {
			wrs[i] = verbs.SendWR{ID: uint64(base + i), Op: verbs.OpSend, SGEs: []verbs.SGE{ma.Buffer.SGE(64*i, 64, ma.Key)}}
		}
		wrs[burst-1].Flags = verbs.Signaled
		must(t, qa.PostSend(wrs...))
		for i, w := range b.want(burst) {
			if w.ID != uint64(base+i) {
				t.Fatalf("receive %d completed as %d", base+i, w.ID)
			}
			if got := mb.Buffer.Read(64*i, 64); !bytes.Equal(got, pattern(64, base+i)) {
				t.Fatalf("message %d has the wrong payload", base+i)
			}
		}
		if w := a.want(1)[0]; w.ID != uint64(base+burst-1) {
			t.Fatalf("send completion %d, want only the signaled %d", w.ID, base+burst-1)
		}
	}
	a.quiet()
}

func bothWays(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	const n, size = 40, 100 << 10
	type side struct {
		e       *end
		qp      *verbs.QP
		out, in *verbs.MR
		peer    *verbs.MR
	}
	sides := []*side{{e: a, qp: qa}, {e: b, qp: qb}}
	for _, s := range sides {
		s.out, s.in = s.e.mr(size, 0), s.e.mr(size, anyAccess)
	}
	sides[0].peer, sides[1].peer = sides[1].in, sides[0].in
	for i, s := range sides {
		s.out.Buffer.Write(0, pattern(size, i))
		for range n {
			must(t, s.qp.PostSend(verbs.SendWR{
				Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{s.out.Buffer.SGE(0, size, s.out.Key)},
				RemoteAddr: s.peer.Buffer.VA, RKey: s.peer.Key,
			}))
		}
	}
	for _, s := range sides {
		s.e.want(n)
	}
	for i, s := range sides {
		if !bytes.Equal(s.peer.Buffer.Read(0, size), pattern(size, i)) {
			t.Errorf("side %d: payload differs", i)
		}
	}
}

func fenced(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	const size = 300 << 10
	ma, mb := a.mr(size, verbs.LocalWrite), b.mr(2*size, anyAccess)
	data := pattern(size, 9)
	mb.Buffer.Write(0, data)
	// What the read brought is sent back: without the fence old bytes would go.
	must(t, qa.PostSend(
		verbs.SendWR{Op: verbs.OpRead, SGEs: []verbs.SGE{ma.Buffer.SGE(0, size, ma.Key)}, RemoteAddr: mb.Buffer.VA, RKey: mb.Key},
		verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signaled | verbs.Fence, SGEs: []verbs.SGE{ma.Buffer.SGE(0, size, ma.Key)},
			RemoteAddr: mb.Buffer.VA + size, RKey: mb.Key,
		}))
	a.want(1)
	if !bytes.Equal(mb.Buffer.Read(size, size), data) {
		t.Error("the write did not wait for the read")
	}
}

func mixedOrder(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	ma, mb := a.mr(8192, verbs.LocalWrite), b.mr(8192, anyAccess)
	for round := range 20 {
		must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{mb.Buffer.SGE(4096, 4096, mb.Key)}}, verbs.RecvWR{ID: 2}))
		remote := func(o verbs.Opcode, n int) verbs.SendWR {
			return verbs.SendWR{
				Op: o, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(8*round, n, ma.Key)}, RemoteAddr: mb.Buffer.VA + 8, RKey: mb.Key, Swap: 1,
			}
		}
		wrs := []verbs.SendWR{
			remote(verbs.OpRead, 2000), remote(verbs.OpWrite, 2000), remote(verbs.OpFetchAdd, 8),
			remote(verbs.OpSend, 2000), remote(verbs.OpRead, 3), remote(verbs.OpWriteImm, 8), remote(verbs.OpCmpSwap, 8),
		}
		ops := []verbs.Operation{verbs.WCRead, verbs.WCWrite, verbs.WCFetchAdd, verbs.WCSend, verbs.WCRead, verbs.WCWrite, verbs.WCCompareSwap}
		for i := range wrs {
			wrs[i].ID = uint64(i)
		}
		must(t, qa.PostSend(wrs...))
		for i, w := range a.want(len(wrs)) {
			if w.ID != uint64(i) || w.Op != ops[i] {
				t.Fatalf("round %d: completion %d is %+v", round, i, w)
			}
		}
		if wc := b.want(2); wc[0].ID != 1 || wc[1].ID != 2 || wc[1].Op != verbs.WCRecvWriteImm {
			t.Fatalf("round %d: receives %+v", round, wc)
		}
	}
}

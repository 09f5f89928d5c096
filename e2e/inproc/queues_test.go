// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"errors"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
)

var queueScenarios = []scenario{
	{name: "QP/query tells what was set", run: query},
	{name: "QP/destroy with work in flight", run: destroyBusy},
	{name: "CQ/completions wait for room", run: completionsWait},
	{name: "SQ/a full queue refuses", run: fullQueue},
	{name: "SQ/a drain ends what was begun", run: drain},
	{name: "QP/a rate limit is kept", run: rateLimit},
	{name: "counters move", run: counters},
	{name: "counters of one queue pair", run: ownCounters},
	{name: "AQ/more commands than an event ring holds", run: manyCommands},
}

func query(t *testing.T, a, b *end) {
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	must(t, qa.Connect(a.pathTo(b), 0xfffff0, verbs.Connection{QPN: qb.QPN, PSN: 0x123}, verbs.ConnectOptions{
		Access: verbs.RemoteRead | verbs.RemoteAtomic, MTULog2: 12, Timeout: 17, Retry: 5, RNRRetry: 6, MinRNR: 9, RdAtomic: 16,
	}))
	at, err := qa.Query()
	must(t, err)
	want := verbs.Attr{
		State: verbs.RTS, MTULog2: 12, Retry: 5, RNRRetry: 6, SQPSN: 0xfffff0, RQPSN: 0x123,
		MinRNR: 9, Timeout: 17, DestQPN: qb.QPN, QKey: qb.QPN, Access: verbs.RemoteRead | verbs.RemoteAtomic,
	}
	if at.State != want.State || at.MTULog2 != want.MTULog2 || at.Retry != want.Retry || at.RNRRetry != want.RNRRetry ||
		at.SQPSN != want.SQPSN || at.RQPSN != want.RQPSN ||
		at.MinRNR != want.MinRNR || at.Timeout != want.Timeout || at.DestQPN != want.DestQPN || at.Access != want.Access {
		t.Errorf("query says %+v,\nwant %+v", at, want)
	}
	// The kernel reads a depth n as 2^n - 1; programs check that it is not less
	// than what they set.
	if r, d := 1<<at.RawRdAtomic-1, 1<<at.RawDestAtomic-1; r < 16 || d < 16 || r > 64 || d > 64 {
		t.Errorf("query says %d reads out and %d in, 16 were set", r, d)
	}
	fresh := a.qp(verbs.RC)
	if at, err := fresh.Query(); err != nil || at.State != verbs.Reset {
		t.Errorf("a new queue pair is in %v, %v", at.State, err)
	}
}

func destroyBusy(t *testing.T, a, b *end) {
	const size = 1 << 20
	ma, mb := a.mr(size, 0), b.mr(size, anyAccess)
	for round := range 8 {
		qa, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1})
		must(t, err)
		qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1})
		must(t, err)
		connect(a, b, qa, qb, quickly)
		for range 4 {
			must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, SGEs: []verbs.SGE{ma.Buffer.SGE(0, size, ma.Key)}, RemoteAddr: mb.Buffer.VA, RKey: mb.Key}))
		}
		time.Sleep(time.Duration(round) * 100 * time.Microsecond)
		// Either side may go first, under way.
		if round%2 == 0 {
			must(t, qa.Destroy())
			must(t, qb.Destroy())
		} else {
			must(t, qb.Destroy())
			must(t, qa.Destroy())
		}
		a.quiet()
		b.quiet()
	}
	must(t, a.guest.NIC.Memory().Check())
}

// completionsWait asks for more completions than the queue holds and reads none
// until all are due.
func completionsWait(t *testing.T, a, b *end) {
	small, big := a.newCQ(1), b.newCQ(2000)
	const depth = 300 // the queue has 128 entries
	cfg := func(cq *verbs.CQ) verbs.QPConfig {
		return verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: depth, MaxRecv: depth, MaxSendSGE: 1, MaxRecvSGE: 1}
	}
	qa, err := a.pd.CreateQP(cfg(small))
	must(t, err)
	defer func() { must(t, qa.Destroy()) }()
	qb, err := b.pd.CreateQP(cfg(big))
	must(t, err)
	defer func() { must(t, qb.Destroy()) }()
	connect(a, b, qa, qb, verbs.ConnectOptions{})
	for i := range depth {
		must(t, qb.PostRecv(verbs.RecvWR{ID: uint64(i)}))
		must(t, qa.PostSend(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.Signaled}))
	}
	if _, err := big.PollN(depth, patience); err != nil {
		t.Fatal(err)
	}
	wc, err := small.PollN(depth, patience)
	must(t, err)
	for i, w := range wc {
		if w.ID != uint64(i) || w.Status != verbs.Success {
			t.Fatalf("completion %d is %+v", i, w)
		}
	}
}

func fullQueue(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	n := 0
	for ; n < 1000; n++ {
		if err := qa.PostSend(verbs.SendWR{ID: uint64(n), Op: verbs.OpSend, Flags: verbs.Signaled}); err != nil {
			if !errors.Is(err, verbs.ErrQueueFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 64 || n == 1000 {
		t.Fatalf("%d requests posted to a queue of 64", n)
	}
	posted := 0
	for got := 0; got < n; {
		for posted < n && qb.PostRecv(verbs.RecvWR{}) == nil {
			posted++
		}
		got += len(b.want(1))
	}
	a.want(n)
}

func counters(t *testing.T, a, b *end) {
	tx, rx := a.counter("tx_rdma_ucast_pkts"), b.counter("rx_rdma_ucast_pkts")
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	for range 10 {
		ping(t, qa, qb, verbs.Signaled)
		a.want(1)
		b.want(1)
	}
	// At least ten more each, the last maybe a moment after its completion.
	a.awaitCounter("tx_rdma_ucast_pkts", tx+9)
	b.awaitCounter("rx_rdma_ucast_pkts", rx+9)
}

func manyCommands(t *testing.T, a, _ *end) {
	qp := a.qp(verbs.RC)
	for range 1100 {
		if _, err := qp.Query(); err != nil {
			t.Fatal(err)
		}
	}
}

// drain stops a send queue in the middle of a message that the peer is not
// ready for.
func drain(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{MinRNR: 1})
	waits := a.counter("req_rx_rnr_retry_err")
	must(t, qa.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signaled}))
	a.awaitCounter("req_rx_rnr_retry_err", waits)
	before := a.qpEvents(qa, verbs.EventSQDrained)
	must(t, qa.Drain(true))
	at, err := qa.Query()
	must(t, err)
	if at.State != verbs.SQD || !at.Draining || !at.SQDNotify {
		t.Errorf("while it drains: %v, draining %v, notify %v", at.State, at.Draining, at.SQDNotify)
	}
	must(t, qa.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.Signaled}))
	must(t, qb.PostRecv(verbs.RecvWR{}))
	must(t, qb.PostRecv(verbs.RecvWR{}))
	if wc := a.want(1); wc[0].ID != 1 {
		t.Errorf("request %d is done", wc[0].ID)
	}
	a.awaitQPEvents(qa, verbs.EventSQDrained, before+1)
	if at, err = qa.Query(); err != nil || at.State != verbs.SQD || at.Draining {
		t.Errorf("drained: %v, draining %v, %v", at.State, at.Draining, err)
	}
	a.quiet()
	must(t, qa.Resume())
	if wc := a.want(1); wc[0].ID != 2 {
		t.Errorf("request %d is done", wc[0].ID)
	}
	b.want(2)
}

// qpEvents is how often an event was raised for the queue pair's number.
func (e *end) qpEvents(qp *verbs.QP, code uint8) (n int) {
	list, _ := e.guest.RDMA.QPEvents()
	for _, ev := range list {
		if ev.QPN == qp.QPN && ev.Code == code {
			n++
		}
	}
	return n
}

func (e *end) awaitQPEvents(qp *verbs.QP, code uint8, n int) {
	e.t.Helper()
	limit := time.After(patience)
	for {
		_, changed := e.guest.RDMA.QPEvents()
		if e.qpEvents(qp, code) >= n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			e.t.Fatalf("%d events %d of queue pair %d, want %d", e.qpEvents(qp, code), code, qp.QPN, n)
		}
	}
}

// rateLimit proves that a limit slows down, and that it can be lifted; how
// exactly it is kept is proven on a clock of the test's own.
func rateLimit(t *testing.T, a, b *end) {
	qa, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	const size, kbps = 1 << 20, 80 << 10 // 0.1 s
	ma, mb := a.mr(size, 0), b.mr(size, anyAccess)
	must(t, qa.Modify(verbs.Attr{State: verbs.RTS, RateLimit: kbps}, verbs.MaskState|verbs.MaskRateLimit))
	if at, err := qa.Query(); err != nil || at.RateLimit != kbps {
		t.Errorf("query tells a limit of %d, %v", at.RateLimit, err)
	}
	begin := time.Now()
	must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signaled, SGEs: []verbs.SGE{ma.Buffer.SGE(0, size, ma.Key)}, RemoteAddr: mb.Buffer.VA, RKey: mb.Key}))
	a.want(1)
	// The last quarter leaves at once, and 10 ms may be caught up.
	if d, least := time.Since(begin), 65*time.Millisecond; d < least {
		t.Errorf("%d bytes at %d kbit/s took %v, want at least %v", size, kbps, d, least)
	}
	must(t, qa.Modify(verbs.Attr{State: verbs.RTS}, verbs.MaskState|verbs.MaskRateLimit))
	if at, err := qa.Query(); err != nil || at.RateLimit != 0 {
		t.Errorf("query tells a limit of %d, %v", at.RateLimit, err)
	}
}

func ownCounters(t *testing.T, a, b *end) {
	qa, qb := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	other, _ := connected(a, b, verbs.RC, verbs.ConnectOptions{})
	for range 3 {
		ping(t, qa, qb, verbs.Signaled)
		a.want(1)
		b.want(1)
	}
	deadline := time.Now().Add(patience)
	for {
		own, err := qa.Counters()
		must(t, err)
		// On a busy machine an answer may take so long that a message goes again.
		sent, again := own["tx_rdma_ucast_pkts"], own["tx_rdma_retx_pkts"]
		if sent == 3+again {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue pair has sent %d messages, %d of them again, want 3", sent, again)
		}
		time.Sleep(time.Millisecond)
	}
	idle, err := other.Counters()
	must(t, err)
	if len(idle) < 30 {
		t.Errorf("%d counters of a queue pair", len(idle))
	}
	for name, v := range idle {
		if v != 0 {
			t.Errorf("%s of a queue pair that did nothing is %d", name, v)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"bytes"
	"net/netip"
	"sync"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/driver/guest"
	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/e2e/verdict"
)

const size = 40000

// end is a guest with one end of a reliable connection.
type end struct {
	guest *guest.Guest
	addr  netip.Addr
	ctx   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	mr    *verbs.MR // two messages: what is sent and what is received
	qp    *verbs.QP
}

func boot(t *verdict.T, socket string, addr [16]byte) *end {
	t.Helper()
	g, err := guest.Boot(t.Context(), socket, guest.Options{Memory: 128 << 20, Driver: driver.Options{Slack: 5}})
	t.Must(err)
	t.Cleanup(g.Kill)
	e := &end{guest: g, addr: netip.AddrFrom16(addr)}
	e.ctx, err = g.RDMA.OpenUser()
	t.Must(err)
	e.pd, err = e.ctx.AllocPD()
	t.Must(err)
	e.cq, err = e.ctx.CreateCQ(256, 0)
	t.Must(err)
	e.mr = e.region(t, 2*size)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1})
	t.Must(err)
	return e
}

// region returns memory that peers may write to.
func (e *end) region(t *verdict.T, size int) *verbs.MR {
	t.Helper()
	b, err := e.ctx.NewBuffer(size, 0)
	t.Must(err)
	mr, err := e.pd.RegMR(b, verbs.LocalWrite|verbs.RemoteWrite)
	t.Must(err)
	return mr
}

const qkey = 0x11223344

// datagrams returns a queue pair for datagrams.
func (e *end) datagrams(t *verdict.T) *verbs.QP {
	t.Helper()
	qp, err := e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 1024, MaxSendSGE: 1, MaxRecvSGE: 1})
	t.Must(err)
	t.Must(qp.Activate(qkey, 3))
	return qp
}

// join connects two ends.
func join(t *verdict.T, a, b *end) {
	t.Helper()
	for _, ends := range [][2]*end{{a, b}, {b, a}} {
		e, peer := ends[0], ends[1]
		path := verbs.Path{SrcMAC: e.guest.NIC.MAC(), DstMAC: peer.guest.NIC.MAC(), Src: e.addr, Dst: peer.addr}
		// It tries again for about 34 s: 4.096 us * 2^20 * 8.
		t.Must(e.qp.Connect(path, 1000, verbs.Connection{QPN: peer.qp.QPN, PSN: 1000}, verbs.ConnectOptions{Timeout: 20, Retry: 7}))
	}
}

// traffic sends messages both ways, one after another, and compares each.
type traffic struct {
	t    *verdict.T
	ends [2]*end
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards what follows
	count   int
	longest time.Duration
	failed  error
}

func startTraffic(t *verdict.T, a, b *end) *traffic {
	t.Helper()
	join(t, a, b)
	tr := &traffic{t: t, ends: [2]*end{a, b}, stop: make(chan struct{}), done: make(chan struct{})}
	go tr.run()
	t.Cleanup(tr.end)
	return tr
}

func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	<-tr.done
}

func (tr *traffic) run() {
	defer close(tr.done)
	for {
		select {
		case <-tr.stop:
			return
		default:
		}
		begin := time.Now()
		err := tr.exchange(tr.count + 1)
		tr.mu.Lock()
		tr.count++
		tr.longest = max(tr.longest, time.Since(begin))
		tr.failed = err
		tr.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (tr *traffic) exchange(number int) error {
	for i, e := range tr.ends {
		e.mr.Buffer.Write(0, message(number, i))
		e.mr.Buffer.Write(size, make([]byte, size))
		if err := e.qp.PostRecv(verbs.RecvWR{ID: uint64(number), SGEs: []verbs.SGE{e.mr.Buffer.SGE(size, size, e.mr.Key)}}); err != nil {
			return err
		}
	}
	for _, e := range tr.ends {
		err := e.qp.PostSend(verbs.SendWR{
			ID: uint64(number), Op: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{e.mr.Buffer.SGE(0, size, e.mr.Key)},
		})
		if err != nil {
			return err
		}
	}
	for i, e := range tr.ends {
		wc, err := e.cq.PollN(2, verdict.Patience)
		if err != nil {
			return err
		}
		for _, w := range wc {
			if w.Status != verbs.Success || w.ID != uint64(number) {
				return &badCompletion{w}
			}
		}
		if !bytes.Equal(e.mr.Buffer.Read(size, size), message(number, 1-i)) {
			return errContent
		}
	}
	return nil
}

// proceed waits until a number of further exchanges are done.
func (tr *traffic) proceed(n int) {
	tr.t.Helper()
	from := tr.exchanges()
	tr.t.Eventually("traffic", func() bool { return tr.exchanges() >= from+n })
}

// slowest returns the longest exchange since it was asked last.
func (tr *traffic) slowest() time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	longest := tr.longest
	tr.longest = 0
	return longest.Round(time.Microsecond)
}

// exchanges returns how many there were.
func (tr *traffic) exchanges() int {
	tr.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.failed != nil {
		tr.t.Fatalf("exchange %d: %v", tr.count, tr.failed)
	}
	return tr.count
}

// message is the content of a message of one end.
func message(number, end int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ byte(number*16+end)
	}
	return b
}

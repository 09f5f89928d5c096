// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// hole is a link that loses everything: the device completes nothing by itself,
// and the test writes completions in its place.
type hole struct{}

func (hole) Transmit(_ *packet.Address, p *packet.Packet) qp.Verdict {
	p.Release()
	return qp.Lost
}

// openDevice brings up a device behind a real socket.
func openDevice(t testing.TB) *Device {
	t.Helper()
	return openDeviceWith(t, rdma.Config{Link: hole{}})
}

// openDeviceWith is openDevice with an engine of its own kind.
func openDeviceWith(t testing.TB, config rdma.Config) *Device {
	t.Helper()
	var engine *rdma.Engine
	nic, err := ionic.New(ionic.Config{
		Profile: profile.Compat(), MAC: [6]byte{2, 0, 0, 0, 0, 1},
		RDMA: func(b *intr.Bank) (ionic.RDMA, error) {
			var err error
			config.Interrupts = b
			if engine, err = rdma.New(config); err == nil {
				if m, ok := config.Link.(*mirror); ok {
					m.to = engine
				}
			}
			return engine, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "nic.sock")
	l, err := vfiouser.Listen(path, vfiouser.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var s vfiouser.Server
	go func() { done <- s.Serve(ctx, l, nic) }()
	c, err := vfioclient.Dial(ctx, path, vfioclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := errors.Join(<-done, nic.Close()); err != nil {
			t.Error(err)
		}
		engine.Close()
	})
	pci, err := c.Realize()
	if err != nil {
		t.Fatal(err)
	}
	n, err := driver.Probe(c, pci, driver.Options{Slack: 12})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(n)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bench is a queue pair in RTS whose completions the test writes.
type bench struct {
	t    *testing.T
	d    *Device
	cq   *CQ
	qp   *QP
	half *halfCQ
	at   int // next completion of the half
	lap  uint32
}

func newBench(t *testing.T, kernel bool, kind Type) *bench {
	t.Helper()
	d := openDevice(t)
	c := d.Kernel()
	if !kernel {
		var err error
		if c, err = d.OpenUser(); err != nil {
			t.Fatal(err)
		}
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, d: d, lap: 1}
	if b.cq, err = c.CreateCQ(20, 0); err != nil {
		t.Fatal(err)
	}
	b.qp, err = pd.CreateQP(QPConfig{Type: kind, SendCQ: b.cq, RecvCQ: b.cq, MaxSend: 63, MaxRecv: 63, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.half = b.qp.sendHalf
	if kind.datagram() {
		err = b.qp.Activate(1, 0)
	} else {
		a := netip.AddrFrom4([4]byte{10, 0, 0, 9})
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
		// The requester waits for ever.
		err = b.qp.Connect(Path{SrcMAC: mac, DstMAC: mac, Src: a, Dst: a}, 0, Connection{QPN: 99}, ConnectOptions{Timeout: 31})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cqe writes a completion as the device would.
func (b *bench) cqe(kind, flags uint32, fill func(e []byte)) {
	e := b.half.ring.at(b.at)
	clear(e)
	if fill != nil {
		fill(e)
	}
	be.PutUint32(e[28:], b.qp.QPN<<8|kind<<5|flags|b.lap)
	if b.at = b.half.ring.next(b.at); b.at == 0 {
		b.lap ^= 1
	}
}

func (b *bench) msn(n uint32)  { b.cqe(cqeSendMSN, 0, func(e []byte) { be.PutUint32(e[4:], n) }) }
func (b *bench) npg(id uint64) { b.cqe(cqeSendNPG, 0, func(e []byte) { le.PutUint64(e[16:], id) }) }
func (b *bench) fail(kind uint32, status Status, fill func(e []byte)) {
	b.cqe(kind, cqeError, func(e []byte) {
		be.PutUint32(e[24:], uint32(status))
		if fill != nil {
			fill(e)
		}
	})
}
func (b *bench) recv(token uint64) { b.cqe(cqeRecv, 0, func(e []byte) { le.PutUint64(e, token) }) }

// post posts writes with the given ids, signaled.
func (b *bench) post(ids ...uint64) {
	b.t.Helper()
	for _, id := range ids {
		if err := b.qp.PostSend(SendWR{ID: id, Op: OpWrite, Flags: Signaled}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) postRecv(ids ...uint64) {
	b.t.Helper()
	for _, id := range ids {
		if err := b.qp.PostRecv(RecvWR{ID: id}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// poll polls what is there.
func (b *bench) poll() ([]WC, error) {
	wc := make([]WC, 64)
	n, err := b.cq.Poll(wc)
	return wc[:n], err
}

// want polls and checks the ids and statuses.
func (b *bench) want(what ...any) {
	b.t.Helper()
	wc, err := b.poll()
	if err != nil {
		b.t.Fatal(err)
	}
	if len(wc) != len(what)/2 {
		b.t.Fatalf("completions %+v, want %v", wc, what)
	}
	for i, w := range wc {
		if w.ID != uint64(what[2*i].(int)) || w.Status != what[2*i+1].(Status) {
			b.t.Fatalf("completion %d is %+v (%v), want %v", i, w, w.Status, what[2*i:2*i+2])
		}
	}
}

// wedged polls and wants an error that says what; the device must be of no use after.
func (b *bench) wedged(what string) {
	b.t.Helper()
	_, err := b.poll()
	if err == nil || !strings.Contains(err.Error(), what) {
		b.t.Errorf("error %v, want one that says %q", err, what)
	}
	if b.d.nic.Err() == nil {
		b.t.Error("the device goes on")
	}
}

func TestMessageNumberIsCumulative(t *testing.T) {
	b := newBench(t, false, RC)
	b.post(1, 2, 3, 4)
	b.msn(3)
	b.want(1, Success, 2, Success, 3, Success)
	b.msn(4)
	b.want(4, Success)
}

func TestFailedMessageMakesEarlierOnesSucceedAndFlushesTheRest(t *testing.T) {
	b := newBench(t, false, RC)
	b.post(1, 2, 3, 4)
	b.fail(cqeSendMSN, RemoteAccess, func(e []byte) { be.PutUint32(e[4:], 3) })
	b.want(1, Success, 2, Success, 3, RemoteAccess, 4, Flushed)
	// Whatever comes for the queue later is of no interest.
	b.msn(4)
	b.fail(cqeSendNPG, Flushed, nil)
	b.want()
}

func TestWhatWedgesTheConsumersEndsTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		kind Type
		play func(b *bench)
		want string
	}{
		"message number repeated":           {RC, func(b *bench) { b.post(1, 2); b.msn(1); b.want(1, Success); b.msn(1) }, "repeats or runs ahead"},
		"message number too large":          {RC, func(b *bench) { b.post(1, 2); b.msn(3) }, "repeats or runs ahead"},
		"message number of nothing":         {RC, func(b *bench) { b.msn(1) }, "repeats or runs ahead"},
		"unknown type":                      {RC, func(b *bench) { b.cqe(4, 0, nil) }, "completion type 4"},
		"admin type":                        {RC, func(b *bench) { b.cqe(cqeAdmin, 0, nil) }, "completion type 0"},
		"reserved bits":                     {RC, func(b *bench) { b.post(1); b.cqe(cqeSendMSN, 0x4, nil) }, "reserved bits"},
		"failure with status 0":             {RC, func(b *bench) { b.post(1); b.fail(cqeSendMSN, Success, func(e []byte) { e[7] = 1 }) }, "status 0"},
		"local completion of message":       {RC, func(b *bench) { b.post(1); b.npg(0) }, "which is a message"},
		"local completion of nothing":       {UD, func(b *bench) { b.npg(0) }, "outstanding are"},
		"local completion with a timestamp": {RC, func(b *bench) { b.npg(1 << 16) }, "in a ring of"},
		"receive on an empty queue":         {RC, func(b *bench) { b.recv(0) }, "empty receive queue"},
		"receive with a timestamp":          {RC, func(b *bench) { b.postRecv(1); b.recv(1 << 16) }, "in a ring of"},
		"receive that is not outstanding":   {RC, func(b *bench) { b.postRecv(1); b.recv(5) }, "not outstanding"},
		"receives out of order":             {RC, func(b *bench) { b.postRecv(1, 2); b.recv(1) }, "the oldest is 0"},
		"failed receive on an empty queue":  {RC, func(b *bench) { b.fail(cqeRecv, LocalLength, nil) }, "empty receive queue"},
		"datagram flags when connected": {RC, func(b *bench) {
			b.postRecv(1)
			b.cqe(cqeRecv, 0, func(e []byte) { e[8] = 0x80 })
		}, "connected queue pair"},
		"datagram shorter than its header": {UD, func(b *bench) { b.postRecv(1); b.recv(0) }, "40-byte header"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false, c.kind)
			c.play(b)
			b.wedged(c.want)
		})
	}
}

func TestOverwrittenRequestIsNoticed(t *testing.T) {
	b := newBench(t, true, RC)
	b.post(1)
	b.qp.sq.ring.at(0)[0] = 7
	b.msn(1)
	if _, err := b.poll(); err != nil {
		t.Fatal(err)
	}
	if err := b.d.nic.Err(); err == nil || !strings.Contains(err.Error(), "wrote to send request 0") {
		t.Errorf("device error %v", err)
	}
}

func TestLocalRequestsCompleteOneByOne(t *testing.T) {
	b := newBench(t, false, UD)
	h := &AH{pd: b.qp.pd}
	for id := range 3 {
		flags := Signaled
		if id == 1 {
			flags = 0
		}
		if err := b.qp.PostSend(SendWR{ID: uint64(id), Op: OpSend, Flags: flags, AH: h}); err != nil {
			t.Fatal(err)
		}
	}
	// The real device completes them, too: it has dropped the datagrams.
	wc, err := b.cq.PollN(2, 10*time.Second)
	if err != nil || wc[0].ID != 0 || wc[1].ID != 2 {
		t.Errorf("completions %+v, %v", wc, err)
	}
}

func TestFlushCompletesFromTheConsumersRecords(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		b := newBench(t, kernel, RC)
		b.post(1, 2)
		b.postRecv(10, 11, 12)
		token := le.Uint64(b.qp.rq.ring.at(0))
		b.recv(token)
		b.want(10, Success)
		b.fail(cqeSendNPG, Flushed, nil)
		b.fail(cqeRecv, Flushed, nil)
		b.want(1, Flushed, 2, Flushed, 11, Flushed, 12, Flushed)
		// The queues stay in flush: what is posted later goes the same way.
		b.post(3)
		b.postRecv(13)
		b.want(3, Flushed, 13, Flushed)
	}
}

func TestKernelGivesSlotsAndProvidersGiveIndexesAsReceiveIDs(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		b := newBench(t, kernel, RC)
		b.postRecv(0, 1, 2)
		b.recv(0)
		b.recv(1)
		b.want(0, Success, 1, Success)
		// The free list is a stack: the next request takes the slot of the last.
		b.postRecv(3)
		got, want := le.Uint64(b.qp.rq.ring.at(3)), uint64(3)
		if kernel {
			want = 1
		}
		if got != want {
			t.Errorf("kernel %v: fourth receive has id %d, want %d", kernel, got, want)
		}
		b.recv(2)
		b.recv(got)
		b.want(2, Success, 3, Success)
	}
}

func TestFlushWithoutRoomIsNotForgotten(t *testing.T) {
	b := newBench(t, false, RC)
	b.post(1, 2, 3)
	b.msn(2)
	b.fail(cqeSendNPG, Flushed, nil)
	var got []uint64
	for range 8 {
		var wc [1]WC
		n, err := b.cq.Poll(wc[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wc[:n] {
			got = append(got, w.ID)
		}
	}
	if len(got) != 3 || got[0] != 1 || got[2] != 3 {
		t.Errorf("completions %v, want 1, 2, 3", got)
	}
}

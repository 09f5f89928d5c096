// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/driver"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/netport/memport"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

var stationMAC = [6]byte{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0x01}

// host serves a NIC without an RDMA half.
type host struct {
	t     *testing.T
	nic   *ionic.NIC
	wire  *memport.End // the host's end of the LIF's wire
	batch *netport.Batch
	path  string
	// detached is called when the device has let go of a guest whose memory is
	// still mapped.
	detached atomic.Pointer[func()]
}

// served is the NIC as the server sees it.
type served struct {
	*ionic.NIC
	host *host
}

// Detach implements [vfiouser.Attacher].
func (s served) Detach(reason error) {
	s.NIC.Detach(reason)
	if f := s.host.detached.Load(); f != nil {
		(*f)()
	}
}

// sent returns the next frame of the guest.
func (h *host) sent() []byte {
	h.t.Helper()
	if n, err := h.wire.Receive(0, h.batch); n != 1 || err != nil {
		h.t.Fatalf("receive from the guest: %d, %v", n, err)
	}
	return bytes.Clone(h.batch.Frame(0))
}

// send passes a frame to the guest.
func (h *host) send(f []byte) {
	h.t.Helper()
	if err := h.wire.Send(0, f); err != nil {
		h.t.Fatalf("send to the guest: %v", err)
	}
}

func newHost(t *testing.T, p profile.Profile) *host {
	t.Helper()
	near, far := memport.Pair("wire", 1)
	h := &host{t: t, wire: far, batch: netport.NewBatch(1, 16384), path: filepath.Join(t.TempDir(), "nic.sock")}
	var err error
	if h.nic, err = ionic.New(ionic.Config{Profile: p, MAC: stationMAC, Port: near}); err != nil {
		t.Fatal(err)
	}
	l, err := vfiouser.Listen(h.path, vfiouser.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var s vfiouser.Server
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, served{h.nic, h}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("server: %v", err)
		}
		if err := h.nic.Close(); err != nil {
			t.Errorf("close NIC: %v", err)
		}
	})
	return h
}

// boot starts a guest on the host's socket and probes the driver.
func (h *host) boot(t *testing.T, o driver.Options) (*vfioclient.Client, *driver.Device) {
	t.Helper()
	o.Slack = int(patience / vfioclient.DefaultTimeout)
	c, err := vfioclient.Dial(t.Context(), h.path, vfioclient.Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	dev, err := c.Realize()
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.Probe(c, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-c.Done():
		default:
			if err := d.Err(); err != nil {
				t.Error(err)
			}
		}
	})
	return c, d
}

// patience bounds every wait for something that must happen.
const patience = time.Minute

// statsInterval is how often the statistics blocks are written.
const statsInterval = 10 * time.Millisecond

func profiles(offloads bool) profile.Profile {
	p := profile.Compat()
	p.Offloads = offloads
	p.StatsIntervalMS = int(statsInterval.Milliseconds())
	return p
}

// frame is an Ethernet frame of n bytes with a recognisable payload.
func frame(dst, src []byte, n, seed int) []byte {
	f := make([]byte, n)
	copy(f, dst)
	copy(f[6:], src)
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	for i := 14; i < n; i++ {
		f[i] = byte(i*7 + seed)
	}
	return f
}

var peerMAC = []byte{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}

func TestProbeAndRemoveLeaveNothingBehind(t *testing.T) {
	h := newHost(t, profiles(false))
	for i := range 3 {
		c, d := h.boot(t, driver.Options{})
		if !bytes.Equal(d.MAC(), stationMAC[:]) || d.FWVersion() == "" || !d.LinkUp() || d.LinkSpeed() != 100000 {
			t.Errorf("MAC %v, firmware %q, link %v at %d Mb/s", d.MAC(), d.FWVersion(), d.LinkUp(), d.LinkSpeed())
		}
		if err := d.SetName(fmt.Sprintf("ens%d", i)); err != nil {
			t.Error(err)
		}
		if err := d.Up(d.Sizes().QueuePairs, 64); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
		if n := d.Memory().InUse(); n != 0 {
			t.Errorf("%d pages in use after remove", n)
		}
		c.Close()
	}
}

func TestFramesPassBothWays(t *testing.T) {
	h := newHost(t, profiles(false))
	_, d := h.boot(t, driver.Options{})
	got := make(chan driver.Packet, 4096)
	d.OnReceive(func(p driver.Packet) { got <- p })
	if err := d.Up(2, 64); err != nil {
		t.Fatal(err)
	}
	const n = 500 // several laps of the rings
	for i := range n {
		f := frame(peerMAC, d.MAC(), 60+i%1400, i)
		if err := d.Transmit(i%2, driver.TxFrame{Data: f}); err != nil {
			t.Fatal(err)
		}
		if sent := h.sent(); !bytes.Equal(sent, f) {
			t.Fatalf("frame %d of %d bytes left as %d bytes", i, len(f), len(sent))
		}
		h.send(frame(d.MAC(), peerMAC, 60+i%1400, i))
		select {
		case p := <-got:
			if want := frame(d.MAC(), peerMAC, 60+i%1400, i); !bytes.Equal(p.Data, want) {
				t.Fatalf("frame %d arrived as %d bytes, want %d", i, len(p.Data), len(want))
			}
		case <-time.After(patience):
			t.Fatalf("frame %d did not arrive", i)
		}
	}
	for q := range 2 {
		if err := d.FlushTransmit(q, patience); err != nil {
			t.Error(err)
		}
	}
	// The statistics block follows.
	deadline := time.Now().Add(patience)
	for d.Stat(136) < n || d.Stat(8) < n {
		if time.Now().After(deadline) {
			t.Fatalf("statistics: %d frames out, %d in", d.Stat(136), d.Stat(8))
		}
		time.Sleep(time.Millisecond)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
}

func TestJumboFramesUseScatterGather(t *testing.T) {
	h := newHost(t, profiles(true))
	_, d := h.boot(t, driver.Options{MTU: 9000})
	got := make(chan driver.Packet, 16)
	d.OnReceive(func(p driver.Packet) { got <- p })
	if err := d.Up(1, 16); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{60, 4096, 4097, 8192, 8193, 9018} {
		f := frame(peerMAC, d.MAC(), size, size)
		if err := d.Transmit(0, driver.TxFrame{Data: f, Fragments: 16}); err != nil {
			t.Fatal(err)
		}
		if sent := h.sent(); !bytes.Equal(sent, f) {
			t.Errorf("frame of %d bytes left as %d bytes", size, len(sent))
		}
		want := frame(d.MAC(), peerMAC, size, size)
		h.send(want)
		if p := <-got; !bytes.Equal(p.Data, want) {
			t.Errorf("frame of %d bytes arrived as %d bytes", size, len(p.Data))
		}
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
}

func TestLinkFlapKeepsTheQueues(t *testing.T) {
	h := newHost(t, profiles(false))
	_, d := h.boot(t, driver.Options{})
	got := make(chan driver.Packet, 64)
	d.OnReceive(func(p driver.Packet) { got <- p })
	if err := d.Up(1, 16); err != nil {
		t.Fatal(err)
	}
	before, _ := d.Events()
	for i := range 40 {
		h.nic.SetLink(false)
		awaitLink(t, d, false)
		if err := d.DisableQueues(); err != nil {
			t.Fatal(err)
		}
		h.nic.SetLink(true)
		awaitLink(t, d, true)
		if err := d.EnableQueues(); err != nil {
			t.Fatal(err)
		}
		f := frame(d.MAC(), peerMAC, 100, i)
		h.send(f)
		select {
		case p := <-got:
			if !bytes.Equal(p.Data, f) {
				t.Fatalf("flap %d: frame arrived as % x", i, p.Data[:20])
			}
		case <-time.After(patience):
			t.Fatalf("flap %d: frame did not arrive", i)
		}
	}
	if events, _ := d.Events(); len(events)-len(before) < 80 {
		t.Errorf("%d link events, want one for each of 80 changes", len(events)-len(before))
	}
}

func awaitLink(t *testing.T, d *driver.Device, up bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for d.LinkUp() != up {
		if time.Now().After(deadline) {
			t.Fatalf("link is not up=%v", up)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// A guest that dies under traffic may be written to until the device hears of it,
// and not any more when Detach has returned.
func TestDeathOfTheGuestLeavesItsMemoryAlone(t *testing.T) {
	h := newHost(t, profiles(false))
	gone, checked := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(checked) })
	t.Cleanup(goOn)
	hold := sync.OnceFunc(func() {
		close(gone)
		<-checked // meanwhile the device could still reach the memory
	})
	h.detached.Store(&hold)
	c, d := h.boot(t, driver.Options{})
	if err := d.Up(1, 64); err != nil {
		t.Fatal(err)
	}
	ram := c.RAM()
	const watched = 32 << 20
	h.flood(100)
	c.Drop()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the device was not told that its guest is gone")
	}
	before := bytes.Clone(ram.Bytes(0, watched))
	// More than the wire holds, so that the NIC has taken some of them, and for
	// longer than some intervals of the statistics.
	for end := time.Now().Add(5 * statsInterval); time.Now().Before(end); {
		h.flood(2 * memport.Depth)
	}
	if !bytes.Equal(before, ram.Bytes(0, watched)) {
		t.Error("memory of the dead guest changed after the device let go of it")
	}
	goOn()
	_, next := h.boot(t, driver.Options{})
	if err := next.Up(1, 64); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, ram.Bytes(0, watched)) {
		t.Error("memory of the dead guest changed during the life of the next")
	}
}

// flood passes n frames to the NIC, as fast as it takes them.
func (h *host) flood(n int) {
	h.t.Helper()
	f := frame(stationMAC[:], peerMAC, 200, n)
	for end := time.Now().Add(patience); n > 0; {
		switch err := h.wire.Send(0, f); {
		case err == nil:
			n--
		case !errors.Is(err, netport.ErrFull):
			h.t.Fatalf("send to the guest: %v", err)
		case time.Now().After(end):
			h.t.Fatal("the NIC takes no frames")
		default:
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/ionic/eth/learn"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/netport/memport"
)

var (
	station = [6]byte{2, 0, 0, 0, 0, 1}
	peer    = [6]byte{2, 0, 0, 0, 0, 2}
	allOnes = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	group   = [6]byte{0x33, 0x33, 0, 0, 0, 1}
)

// rig is a LIF, its guest with a driver, and the other end of its wire.
type rig struct {
	*ethtest.Driver
	lif  *eth.LIF
	bank *intr.Bank
	wire *memport.End
	heard
}

// heard is an observer that remembers.
type heard struct {
	sync.Mutex
	lines []string
}

func (h *heard) AddressSeen(mac [6]byte, ip netip.Addr, s learn.Source) {
	h.add("%x %v %v", mac, ip, s)
}
func (h *heard) MACFilter(mac [6]byte, added bool) { h.add("filter %x %v", mac, added) }

func (h *heard) add(f string, a ...any) {
	h.Lock()
	defer h.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(f, a...))
}

func (h *heard) all() []string {
	h.Lock()
	defer h.Unlock()
	return append([]string{}, h.lines...)
}

// lifDevice joins the LIF and the interrupt bank for the driver.
type lifDevice struct {
	*eth.LIF
	bank *intr.Bank
}

func (d lifDevice) WriteIntr(off uint64, val uint32) { d.bank.Write(off, val) }
func (d lifDevice) ReadIntr(off uint64) uint32       { return d.bank.Read(off) }

// newRig returns a rig whose guest is attached with bus mastering on. tune may
// change the configuration.
func newRig(tb testing.TB, tune func(*eth.Config)) *rig {
	tb.Helper()
	r := &rig{bank: intr.New(32)}
	near, far := memport.Pair("rig", 1)
	c := eth.Config{
		MAC: station, MTUMax: 9198, Speed: 100000, Queues: 4, Vectors: 32,
		StatsInterval: time.Second, Bank: r.bank, Port: near, Observer: &r.heard, Log: zerolog.Nop(),
	}
	if tune != nil {
		tune(&c)
	}
	lif, err := eth.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	r.lif, r.wire = lif, far
	r.Driver = ethtest.NewDriver(tb, lifDevice{lif, r.bank}, 64<<20)
	tb.Cleanup(func() { lif.Close() })
	lif.Attach(r.Mem)
	r.bank.SetSignal(r.Signal)
	lif.BusMaster(true)
	return r
}

// upRig is a rig whose driver has brought n queue pairs up.
func upRig(tb testing.TB, n int, features abi.Features) *rig {
	tb.Helper()
	r := newRig(tb, func(c *eth.Config) { c.Offload = features })
	r.Probe(features)
	r.Up(n, 8, 1500)
	return r
}

// frame returns an Ethernet frame of size bytes; the payload counts.
func frame(dst, src [6]byte, typ uint16, size int) []byte {
	f := append(append([]byte{}, dst[:]...), src[:]...)
	f = append(f, byte(typ>>8), byte(typ))
	for i := len(f); i < size; i++ {
		f = append(f, byte(i))
	}
	return f
}

// wireFrame waits for the next frame the LIF sent.
func (r *rig) wireFrame(tb testing.TB) []byte {
	tb.Helper()
	got := make(chan []byte, 1)
	go func() {
		b := netport.NewBatch(1, 16<<10)
		if n, err := r.wire.Receive(0, b); err == nil && n == 1 {
			got <- bytes.Clone(b.Frame(0))
		}
	}()
	select {
	case f := <-got:
		return f
	case <-time.After(ethtest.Patience):
		tb.Fatal("the LIF sent nothing")
		return nil
	}
}

// inject puts a frame on the wire to the LIF.
func (r *rig) inject(tb testing.TB, f []byte) {
	tb.Helper()
	if err := r.wire.Send(0, f); err != nil {
		tb.Fatal(err)
	}
}

// eventually waits until done.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for limit := time.Now().Add(ethtest.Patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			tb.Fatalf("%s did not happen", what)
		}
	}
}

// lifStat reads a counter from the device, without waiting for the tick.
func (r *rig) lifStat(s abi.LIFStat) uint64 {
	lif, _ := r.lif.Stats()
	return lif[s]
}

func (r *rig) portStat(s abi.PortStat) uint64 {
	_, port := r.lif.Stats()
	return port[s]
}

// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

// A link flap disables and enables without Q_INIT: posted buffers, descriptors,
// indices and colour go on.
func TestQControl_DisableKeepsIndicesAndColour(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.Up(1, 3, 1500)
	p := r.Pairs[0]
	for i := range 30 {
		r.inject(t, frame(station, peer, uint16(i), 60))
		if got := p.Receive(); be.Uint16(got.Data[12:]) != uint16(i) {
			t.Fatalf("frame %d arrived as %x", i, got.Data[12:14])
		}
		p.Fill()
		p.Send(frame(peer, station, uint16(i), 60))
		r.wireFrame(t)
		p.AwaitTx()
		if i%3 == 0 {
			p.Disable()
			// Doorbells during the pause are remembered.
			p.Send(frame(peer, station, 0x1111, 61))
			p.RingRx()
			p.Enable()
			r.wireFrame(t)
			p.AwaitTx()
		}
	}
}

func TestQControl_TwiceIsNoError(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	p.Enable()
	p.Disable()
	p.Disable()
	p.Enable()
	p.Send(frame(peer, station, 1, 60))
	r.wireFrame(t)
	p.AwaitTx()
}

func TestDoorbell_BeforeEnableIsRemembered(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	p := r.InitPair(0, 4, 1500)
	r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
	p.Fill()
	p.Send(frame(peer, station, 1, 60))
	time.Sleep(5 * time.Millisecond)
	if p.Retire() != 0 || p.RxPending() {
		t.Fatal("a queue that is not enabled worked")
	}
	p.Enable()
	r.wireFrame(t)
	p.AwaitTx()
	r.inject(t, frame(station, peer, 1, 60))
	p.Receive()
}

// ethtool -L and -G: new rings over old queues, again and again.
func TestQInit_ReplacesTheOldQueue(t *testing.T) {
	r := upRig(t, 4, 0)
	for _, tc := range []struct {
		n    int
		log2 uint8
	}{{1, 6}, {4, 2}, {2, 9}, {3, 5}} {
		for _, p := range r.Pairs {
			p.Disable()
		}
		r.MustAdmin(ethtest.SetAttr(abi.LIFAttrState, []byte{byte(abi.LIFQuiesce)}))
		r.Up(tc.n, tc.log2, 1500)
		for _, p := range r.Pairs {
			for range 10 {
				p.Send(frame(peer, station, 1, 60))
				r.wireFrame(t)
				p.AwaitTx()
			}
		}
		for i := range 20 {
			f := udp4(peer, station, 64)
			be.PutUint16(f[36:], uint16(i*977))
			r.inject(t, f)
		}
		total := 0
		eventually(t, "20 frames", func() bool {
			for _, p := range r.Pairs {
				for p.RxPending() {
					p.Receive()
					p.Fill()
					total++
				}
			}
			return total == 20 || uint64(total) == 20-r.lifStat(abi.RxQueueEmpty)
		})
	}
}

func TestQInit_OfAnEnabledQueueDisablesItFirst(t *testing.T) {
	r := upRig(t, 1, 0)
	old := r.Pairs[0]
	p := r.InitPair(0, 4, 1500)
	p.Send(frame(peer, station, 1, 60))
	time.Sleep(5 * time.Millisecond)
	if p.Retire() != 0 || old.Retire() != 0 {
		t.Fatal("the queue works before it is enabled")
	}
	p.Enable()
	r.wireFrame(t)
	p.AwaitTx()
}

// stops are the ways to end DMA.
var stops = []struct {
	name string
	stop func(r *rig)
	all  bool // all of memory is the guest's again, not only the queues'
}{
	{"Q_CONTROL disable", func(r *rig) {
		for i := range uint32(len(r.Pairs)) {
			r.MustDevCmd(qcontrol(abi.QTypeTx, i, abi.QDisable), nil)
			r.MustDevCmd(qcontrol(abi.QTypeRx, i, abi.QDisable), nil)
		}
	}, false},
	{"LIF_RESET", func(r *rig) { r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil) }, false},
	{"LIF_RESET and PORT_RESET", func(r *rig) {
		r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
		r.MustDevCmd(ethtest.Op(abi.OpPortReset), nil)
	}, true},
	{"RESET", func(r *rig) { r.MustDevCmd(ethtest.Op(abi.OpReset), nil) }, true},
	{"function-level reset", func(r *rig) { r.lif.Reset() }, true},
	{"bus master off", func(r *rig) { r.lif.BusMaster(false) }, true},
	{"detach", func(r *rig) { r.lif.Detach() }, true},
	{"close", func(r *rig) { r.lif.Close() }, true},
}

// flood sends and receives as fast as it can until the end of the test.
func (r *rig) flood(t *testing.T, admin bool) {
	var stop atomic.Bool
	done := make(chan struct{})
	t.Cleanup(func() { stop.Store(true); <-done })
	go func() {
		defer close(done)
		f := udp4(peer, station, 1400)
		for i := 0; !stop.Load(); i++ {
			be.PutUint16(f[36:], uint16(i))
			r.wire.Send(0, f)
			for q := range r.Pairs {
				// Every index: the guest's rings are full of descriptors.
				r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(uint32(q), uint16(i)&63))
				r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(uint32(q), uint16(i+5)&63))
			}
			if admin { // the commands in the ring run again, enabling queues
				r.lif.Doorbell(abi.QTypeAdmin, abi.MakeDoorbell(0, uint16(i)&15))
			}
		}
	}()
}

// After each of these nothing of the device may touch the guest's memory: the
// driver frees and reuses it at once.
func TestStop_NoWriteAfterCompletion(t *testing.T) {
	for _, tc := range stops {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(c *eth.Config) { c.StatsInterval = time.Millisecond })
			r.Probe(0)
			r.Up(4, 6, 1500)
			for _, p := range r.Pairs {
				for range 63 {
					p.Post(ethtest.Tx{Pieces: [][]byte{frame(peer, station, 1, 1400)}})
				}
			}
			r.flood(t, tc.name != "Q_CONTROL disable")
			eventually(t, "flow of the flood", func() bool {
				return r.lifStat(abi.RxUcastPackets) > 0 && r.lifStat(abi.TxUcastPackets) > 0
			})
			tc.stop(r)
			if tc.all {
				r.canary(t, r.RAM())
				return
			}
			for _, p := range r.Pairs {
				// Rings and buffers of a pair lie behind one another.
				last := p.Buffers[len(p.Buffers)-1]
				end := last.Addr[len(last.Addr)-1] + abi.PageSize
				r.canary(t, r.Bytes(p.TxRing, int(end-p.TxRing)))
			}
			if tc.name == "LIF_RESET" {
				r.canary(t, r.Bytes(r.LIFInfo, abi.LIFInfoSize))
			}
		})
	}
}

// canary fills memory with a pattern and sees that it stays.
func (r *rig) canary(t *testing.T, mem []byte) {
	t.Helper()
	const pattern = 0xdb
	mem[0] = pattern
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
	time.Sleep(20 * time.Millisecond)
	if n := bytes.Count(mem, []byte{pattern}); n != len(mem) {
		t.Fatalf("%d bytes were written after the device had stopped", len(mem)-n)
	}
}

// Between request_irq and the addition of its NAPI an interrupt is a nil call in
// the guest: only the guest opens a vector.
func TestStop_LeavesEveryVectorMasked(t *testing.T) {
	r := upRig(t, 4, 0)
	r.inject(t, frame(station, peer, 1, 60))
	r.Pairs[0].Receive()
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	before := r.bank.Asserts()
	for v := range r.bank.Len() {
		if r.bank.Read(uint64(v)*32+abi.IntrMask) != 1 || r.bank.Read(uint64(v)*32+abi.IntrCredits) != 0 {
			t.Fatalf("vector %d is not in reset state", v)
		}
		r.bank.Post(v, 1)
	}
	if r.bank.Asserts() != before {
		t.Fatal("an interrupt came from a vector in reset state")
	}
}

func TestBusMaster_PausesAndGoesOn(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	r.lif.BusMaster(false)
	fired := r.bank.Asserts()
	p.Post(ethtest.Tx{Pieces: [][]byte{frame(peer, station, 1, 60)}})
	ram := bytes.Clone(r.RAM())
	p.RingTx()
	r.inject(t, frame(station, peer, 2, 60))
	r.lif.SetLink(false)
	r.lif.SetLink(true)
	r.lif.Publish()
	if got := r.DevCmd(ethtest.Op(abi.OpLIFInit), nil).Status(); got != abi.StatusEFault {
		t.Errorf("LIF_INIT while bus mastering is off: %v", got)
	}
	time.Sleep(5 * time.Millisecond)
	if !bytes.Equal(ram, r.RAM()) {
		t.Fatal("memory was written while bus mastering is off")
	}
	if r.bank.Asserts() != fired {
		t.Fatal("an interrupt was raised while bus mastering is off")
	}
	r.lif.BusMaster(true)
	r.wireFrame(t)
	p.AwaitTx()
	r.inject(t, frame(station, peer, 3, 60))
	p.Receive()
}

func TestAttach_NewGuestStartsFresh(t *testing.T) {
	r := upRig(t, 2, 0)
	r.Pairs[0].Send(frame(peer, station, 1, 60))
	r.wireFrame(t)
	r.lif.Detach()
	r.lif.BusMaster(false)
	for range 3 {
		g := ethtest.NewDriver(t, lifDevice{r.lif, r.bank}, 64<<20)
		r.bank.SetSignal(g.Signal)
		r.lif.Attach(g.Mem)
		r.lif.BusMaster(true)
		if got := r.lifStat(abi.TxUcastPackets); got != 0 {
			t.Errorf("the new guest starts with %d packets", got)
		}
		g.Probe(0)
		g.Up(2, 6, 1500)
		g.Pairs[1].Send(frame(peer, station, 1, 60))
		r.wireFrame(t)
		g.Pairs[1].AwaitTx()
		r.lif.Detach() // killed: no goodbye
		r.lif.BusMaster(false)
	}
}

// The guest may unmap what the queues use, by mistake or in a crash.
func TestUnmappedRings_AreCountedNotFatal(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	for range 10 {
		p.Post(ethtest.Tx{Pieces: [][]byte{frame(peer, station, 1, 60)}})
	}
	r.Mem.UnmapAll()
	r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(0, 10))
	eventually(t, "tx_desc_fetch_error", func() bool { return r.lifStat(abi.TxDescFetchError) == 10 })
	r.inject(t, frame(station, peer, 1, 60))
	eventually(t, "rx_dma_error", func() bool {
		return r.lifStat(abi.RxDMAError)+r.lifStat(abi.RxDescFetchError) == 1
	})
	r.lif.SetLink(false)
	r.lif.Publish()
	if got := r.DevCmd(abi.QInit{Type: abi.QTypeTx, Version: 1, RingLog2: 4, Ring: ethtest.Base, CQ: ethtest.Base}.Command(), nil).Status(); got != abi.StatusBadAddr {
		t.Errorf("Q_INIT in memory that is gone: %v", got)
	}
}

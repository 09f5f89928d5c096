// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

// event reads the notify event with id eid.
func (r *rig) event(eid uint64) (got uint64, code, status uint16, speed uint32) {
	at := r.Notify + (eid-1)%64*64
	body := r.Load(at + 8)
	return r.Load(at), uint16(body), uint16(body >> 16), uint32(body >> 32)
}

func TestLink_FlapIsInMemoryThenAnnounced(t *testing.T) {
	r := upRig(t, 1, 0)
	for i := range uint64(100) { // the ring has 64 events
		r.lif.SetLink(i%2 == 1)
		wantStatus, wantSpeed := uint16(abi.PortOperDown), uint32(0)
		if i%2 == 1 {
			wantStatus, wantSpeed = uint16(abi.PortOperUp), 100000
		}
		eid, code, status, speed := r.event(i + 1)
		if eid != i+1 || code != uint16(abi.NotifyLinkChange) || status != wantStatus || speed != wantSpeed {
			t.Fatalf("event %d: eid %d code %d status %d speed %d", i+1, eid, code, status, speed)
		}
		if r.Carrier() != (i%2 == 1) || r.lif.Link() != r.Carrier() {
			t.Fatalf("carrier is %v after event %d", r.Carrier(), i+1)
		}
		if got := r.Bytes(r.PortInfo+abi.PortInfoOper, 1)[0]; got != byte(wantStatus) {
			t.Fatalf("port_info says %d", got)
		}
		if down := le16(r.Bytes(r.LIFInfo+abi.LIFInfoLinkDownCount, 2)); down != uint16(i/2+1) {
			t.Fatalf("link_down_count is %d after event %d", down, i+1)
		}
		if got := r.Load(r.LIFInfo + abi.LIFInfoEID); got != i+1 {
			t.Fatalf("lif_info's eid is %d, want %d", got, i+1)
		}
	}
	r.lif.SetLink(true) // no change, no event
	if eid, _, _, _ := r.event(101); eid == 101 {
		t.Error("an event without a change")
	}
}

func le16(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }

func TestLink_GuestTakesThePortDown(t *testing.T) {
	r := upRig(t, 1, 0)
	r.MustDevCmd(ethtest.PortSetAttr(abi.PortAttrState, uint32(abi.PortAdminDown)), nil)
	if r.Carrier() {
		t.Error("carrier on a port that is down")
	}
	r.lif.SetLink(true)
	if r.Carrier() {
		t.Error("the host brought up a port that the guest took down")
	}
	r.inject(t, frame(station, peer, 1, 60))
	time.Sleep(5 * time.Millisecond)
	if r.Pairs[0].RxPending() {
		t.Error("a frame came through a port that is down")
	}
	r.MustDevCmd(ethtest.PortSetAttr(abi.PortAttrState, uint32(abi.PortAdminUp)), nil)
	if !r.Carrier() {
		t.Error("no carrier after the port came up")
	}
	r.inject(t, frame(station, peer, 2, 60))
	if got := r.Pairs[0].Receive(); be.Uint16(got.Data[12:]) != 2 {
		t.Error("a frame from before the link came up was kept")
	}
}

// Queues stay initialised over a link flap.
func TestLink_FlapKeepsTraffic(t *testing.T) {
	r := upRig(t, 2, 0)
	for range 5 {
		r.lif.SetLink(false)
		for _, p := range r.Pairs {
			p.Disable()
		}
		r.lif.SetLink(true)
		for _, p := range r.Pairs {
			p.Enable()
			p.Send(frame(peer, station, 1, 60))
			r.wireFrame(t)
			p.AwaitTx()
		}
		r.inject(t, frame(station, peer, 1, 60))
		eventually(t, "a frame", func() bool {
			for _, p := range r.Pairs {
				if p.RxPending() {
					p.Receive()
					p.Fill()
					return true
				}
			}
			return false
		})
	}
}

// A kdump kernel has no notify queue and lives on lif_info alone.
func TestLink_WithoutANotifyQueue(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
	init := ethtest.Op(abi.OpLIFInit)
	init.SetInfoAddress(r.LIFInfo)
	r.MustDevCmd(init, nil)
	r.lif.SetLink(false)
	if r.Carrier() {
		t.Error("carrier stays in lif_info")
	}
}

// The driver drops an event that comes while it works on the one before.
func TestLink_ChangeIsAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Probe(0)
		r.lif.SetLink(false)
		r.lif.SetLink(true)
		time.Sleep(5500 * time.Millisecond)
		if eid, _, status, _ := r.event(4); eid != 4 || status != uint16(abi.PortOperUp) {
			t.Errorf("event 4 is %d, status %d", eid, status)
		}
		if eid, _, _, _ := r.event(5); eid == 5 {
			t.Error("the change was announced more than twice again")
		}
		r.lif.Close()
	})
}

func TestStatistics_RewrittenAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *eth.Config) { c.StatsInterval = 3 * time.Second })
		r.Probe(0)
		r.Up(1, 4, 1500)
		if r.LIFStat(abi.TxUcastPackets) != 0 {
			t.Error("counters do not start at 0")
		}
		r.Pairs[0].Send(frame(peer, station, 1, 100))
		synctest.Wait()
		if got := r.LIFStat(abi.TxUcastPackets); got != 0 {
			t.Errorf("tx_ucast_packets is %d before the interval", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if p, b := r.LIFStat(abi.TxUcastPackets), r.LIFStat(abi.TxUcastBytes); p != 1 || b != 100 {
			t.Errorf("%d packets of %d bytes in lif_info, want 1 of 100", p, b)
		}
		if ok, all, oct, size, pri := r.PortStat(abi.FramesTxOK), r.PortStat(abi.FramesTxAll), r.PortStat(abi.OctetsTxTotal),
			r.PortStat(abi.FramesTx64+1), r.PortStat(abi.FramesTxPri0); ok != 1 || all != 1 || oct != 104 || size != 1 || pri != 1 {
			t.Errorf("port_info: ok %d all %d octets %d 65b_127b %d pri_0 %d", ok, all, oct, size, pri)
		}
		r.lif.Close()
	})
}

// PORT_RESET ends the port block alone, LIF_RESET the LIF block alone.
func TestStatistics_BlocksEndOnTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Probe(0)
		r.Up(1, 4, 1500)
		send := func() {
			r.Pairs[0].Send(frame(peer, station, 1, 100))
			synctest.Wait()
			r.Pairs[0].Retire()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		send()
		r.MustDevCmd(ethtest.Op(abi.OpPortReset), nil)
		send()
		if l, p := r.LIFStat(abi.TxUcastPackets), r.PortStat(abi.FramesTxOK); l != 2 || p != 1 {
			t.Errorf("after PORT_RESET: LIF %d, port %d, want 2 and the old 1", l, p)
		}
		r.InitPort() // counters of the port start at 0
		if p := r.PortStat(abi.FramesTxOK); p != 0 {
			t.Errorf("a new port block starts with %d", p)
		}
		send()
		if l, p := r.LIFStat(abi.TxUcastPackets), r.PortStat(abi.FramesTxOK); l != 3 || p != 1 {
			t.Errorf("LIF %d, port %d, want 3 and 1", l, p)
		}
		r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
		r.InitLIF(0)
		if l := r.LIFStat(abi.TxUcastPackets); l != 3 {
			t.Errorf("LIF counters are %d after LIF_RESET, want the kept 3", l)
		}
		r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
		r.InitPort()
		r.InitLIF(0)
		if l, p := r.LIFStat(abi.TxUcastPackets), r.PortStat(abi.FramesTxOK); l != 0 || p != 0 {
			t.Errorf("after RESET: LIF %d, port %d", l, p)
		}
		r.lif.Close()
	})
}

// The RDMA half's counters share the block.
func TestStatistics_TakesTheRDMACounters(t *testing.T) {
	rdma := &fakeRDMA{}
	r := newRig(t, func(c *eth.Config) { c.RDMA = rdma })
	r.Probe(0)
	r.lif.Publish()
	for i := range abi.NumLIFStats {
		want := uint64(0)
		if i >= int(abi.LIFStatEthEnd) {
			want = uint64(i) * 3
		}
		if got := r.LIFStat(abi.LIFStat(i)); got != want {
			t.Errorf("quadword %d is %d, want %d", i, got, want)
		}
	}
}

func TestRDMA_CommandsAndResetsReachTheOtherHalf(t *testing.T) {
	rdma := &fakeRDMA{}
	r := newRig(t, func(c *eth.Config) { c.RDMA = rdma })
	r.Probe(0)
	lif := ethtest.Op(abi.OpLIFIdentify)
	r.MustDevCmd(lif, nil)
	id := abi.LIFIdentity(r.Window[:])
	if id.Capabilities() != 3 || id.RDMA()[0] != 0x77 {
		t.Errorf("capabilities %#x, RDMA block %x", id.Capabilities(), id.RDMA()[:4])
	}
	if got := r.Admin(ethtest.Op(abi.OpRDMACreateEQ)); got.Status() != abi.StatusOK || got[4] != 0x42 {
		t.Errorf("CREATE_EQ: %x", got)
	}
	if got := r.Admin(ethtest.Op(abi.OpRDMACreateCQ)).Status(); got != abi.StatusENoMem {
		t.Errorf("CREATE_CQ refused as %v, want ENOMEM", got)
	}
	if got := r.DevCmd(ethtest.Op(abi.OpRDMAResetLIF), nil).Status(); got != abi.StatusOK {
		t.Errorf("RESET_LIF by device command: %v", got)
	}
	for name, f := range map[string]func(){
		"LIF_RESET": func() { r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil) },
		"RESET":     func() { r.MustDevCmd(ethtest.Op(abi.OpReset), nil) },
		"FLR":       r.lif.Reset, "detach": r.lif.Detach,
	} {
		before := rdma.resets
		f()
		if rdma.resets == before {
			t.Errorf("%s did not reset the RDMA half", name)
		}
	}
	// ifdown leaves it running.
	u := upRig(t, 1, 0)
	before := rdma.resets
	u.Pairs[0].Disable()
	u.MustAdmin(ethtest.SetAttr(abi.LIFAttrState, []byte{0}))
	if rdma.resets != before {
		t.Error("ifdown reset the RDMA half")
	}
}

type fakeRDMA struct{ resets int }

func (f *fakeRDMA) Identity(b []byte) { b[0] = 0x77 }
func (f *fakeRDMA) Reset()            { f.resets++ }

func (f *fakeRDMA) Command(cmd *[64]byte, comp *[16]byte) uint8 {
	comp[4] = 0x42
	if abi.Opcode(cmd[0]) == abi.OpRDMACreateCQ {
		return uint8(abi.StatusENoMem)
	}
	return 0
}

func (f *fakeRDMA) StatsInto(b []byte) {
	for i := range len(b) / 8 {
		b[8*i], b[8*i+1] = byte(i*3), byte(i*3>>8)
	}
}

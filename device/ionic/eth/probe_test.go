// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

func TestIdentify_TellsTheShape(t *testing.T) {
	r := newRig(t, nil)
	id := ethtest.Op(abi.OpIdentify)
	id[1] = 2
	comp := r.MustDevCmd(id, nil)
	dev := abi.DeviceIdentity(r.Window[:])
	if comp[1] != 2 || dev[0] != 2 || dev.Intrs() != 32 || dev.DoorbellPages() != 1024 || dev[4] != 1 {
		t.Errorf("device identity is %x", dev[:64])
	}
	if mult, div := dev[20], dev[24]; mult != 1 || div != 64 {
		t.Errorf("coalescing %d/%d, want 1/64", mult, div)
	}

	lif := ethtest.Op(abi.OpLIFIdentify)
	lif[2] = 1
	r.MustDevCmd(lif, nil)
	l := abi.LIFIdentity(bytes.Clone(r.Window[:]))
	if l.Capabilities() != abi.LIFCapEth || l.RSSTableSize() != 128 || l.MaxFrameSize() != 9216 || l.MaxUnicastFilters() != 128 {
		t.Errorf("LIF identity is %x", l[:136])
	}
	for q, n := range map[abi.QType]uint32{abi.QTypeAdmin: 1, abi.QTypeNotify: 1, abi.QTypeRx: 4, abi.QTypeTx: 4, abi.QTypeEQ: 0} {
		if got := l.Config().QueueCount(q); got != n {
			t.Errorf("%d queues of type %v, want %d", got, q, n)
		}
	}
	if !bytes.Equal(l.RDMA(), make([]byte, 256)) {
		t.Error("the RDMA block is not empty without an RDMA half")
	}
	r.Probe(0)
	r.MustDevCmd(lif, nil)
	if !bytes.Equal(l, r.Window[:]) {
		t.Error("a second LIF_IDENTIFY answered something else")
	}
}

func TestQIdentify_AnswersByTypeAndVersion(t *testing.T) {
	r := newRig(t, nil)
	for _, tc := range []struct {
		t       abi.QType
		asked   uint8
		version uint8
		sup     uint8
		sg, max uint16
	}{
		{abi.QTypeAdmin, 0, 0, 1, 0, 0},
		{abi.QTypeNotify, 0, 0, 1, 0, 0},
		{abi.QTypeRx, 2, 0, 1, 128, 8},
		{abi.QTypeTx, 3, 1, 3, 256, 15},
		{abi.QTypeTx, 1, 1, 3, 256, 15},
		{abi.QTypeTx, 0, 0, 3, 128, 8},
	} {
		c := ethtest.Op(abi.OpQIdentify)
		c[4], c[5] = byte(tc.t), tc.asked
		comp := r.MustDevCmd(c, nil)
		q := abi.DecodeQIdentity(r.Window[:])
		if q.Version != tc.version || comp[4] != tc.version || q.Supported != tc.sup || q.SGDescSize != tc.sg || q.MaxSG != tc.max {
			t.Errorf("%v asked %d: %+v", tc.t, tc.asked, q)
		}
	}
}

// The driver decides the carrier from lif_info right after LIF_INIT.
func TestLIFInit_LinkStandsInMemoryBeforeCompletion(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	if !r.Carrier() {
		t.Error("no carrier after LIF_INIT with a wire")
	}
	if got := r.Bytes(r.PortInfo+abi.PortInfoOper, 1)[0]; got != byte(abi.PortOperUp) {
		t.Errorf("port_info says %d", got)
	}
	if got := r.MAC; got != station {
		t.Errorf("station address %x", got)
	}

	none := newRig(t, func(c *eth.Config) { c.Port = nil })
	none.Probe(0)
	if none.Carrier() {
		t.Error("carrier without a wire: up and a black hole")
	}
	none.lif.SetLink(true)
	if none.Carrier() || none.lif.Link() {
		t.Error("a LIF without a wire was told to be up and is")
	}
}

func TestProbe_AgainWithoutGoodbye(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		r.Probe(0)
		r.Up(2, 6, 1500)
		r.Pairs[1].Send(frame(peer, station, 0x88b5, 100))
		r.wireFrame(t)
		r.Pairs[1].AwaitTx()
	}
}

// Firmware recovery goes from RESET to LIF_INIT without INIT.
func TestProbe_WithoutInit(t *testing.T) {
	r := newRig(t, nil)
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	r.InitPort()
	r.InitLIF(0)
	r.Up(1, 6, 1500)
}

func TestLIFReset_TwiceAndWithoutInit(t *testing.T) {
	r := newRig(t, nil)
	r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
	r.Probe(0)
	r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
	r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
	if r.bank.Read(abi.IntrMask) != 1 {
		t.Error("the admin vector is not masked after LIF_RESET")
	}
	r.InitLIF(0)
	r.Up(1, 6, 1500)
}

func TestPortInfo_ShowsTheTransceiver(t *testing.T) {
	for _, tc := range []struct {
		xcvr     eth.Xcvr
		speed    uint32
		phy, pid byte
	}{
		{eth.XcvrCopper, 100000, abi.PHYCopper, 1},
		{eth.XcvrCopper, 1000, abi.PHYCopper, 73},
		{eth.XcvrFiber, 400000, abi.PHYFiber, 81},
		{eth.XcvrFiber, 50000, abi.PHYFiber, 0},
		{eth.XcvrNone, 100000, abi.PHYNone, 0},
	} {
		r := newRig(t, func(c *eth.Config) { c.Xcvr, c.Speed = tc.xcvr, tc.speed })
		r.Probe(0)
		x := r.Bytes(r.PortInfo+abi.PortInfoXcvr, 4)
		if x[1] != tc.phy || x[2] != tc.pid {
			t.Errorf("%+v: transceiver %x", tc, x)
		}
		rom := r.Bytes(r.PortInfo+abi.PortInfoSprom, 256)
		if tc.xcvr == eth.XcvrNone {
			continue
		}
		var base, ext byte
		for _, c := range rom[128:191] {
			base += c
		}
		for _, c := range rom[192:223] {
			ext += c
		}
		if rom[0] != 0x11 || rom[191] != base || rom[223] != ext {
			t.Errorf("%+v: module memory %x", tc, rom)
		}
	}
}

// The driver fills the extra statistics with ones and takes them as absent.
func TestPortInit_LeavesTheExtraStatisticsAlone(t *testing.T) {
	r := newRig(t, nil)
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	r.PortInfo = r.Alloc(abi.PortInfoSize)
	extra := r.Bytes(r.PortInfo+abi.PortInfoExtraStats, abi.PortInfoSize-abi.PortInfoExtraStats)
	for i := range extra {
		extra[i] = 0xff
	}
	r.InitPort()
	for _, b := range extra {
		if b != 0xff {
			t.Fatal("the extra statistics were written")
		}
	}
}

func TestPortSetAttr_ShowsInMemory(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	for a, v := range map[abi.PortAttr]uint32{
		abi.PortAttrSpeed: 25000, abi.PortAttrMTU: 4000, abi.PortAttrAutoneg: 1, abi.PortAttrFEC: abi.FECFirecode,
		abi.PortAttrPause: abi.PauseLink | abi.PauseTx,
	} {
		r.MustDevCmd(ethtest.PortSetAttr(a, v), nil)
	}
	c := abi.PortConfig(r.Bytes(r.PortInfo, abi.PortConfigSize))
	if c.Speed() != 25000 || c.MTU() != 4000 || c.Autoneg() != 1 || c.FEC() != abi.FECFirecode || c.Pause() != 0x11 {
		t.Errorf("port configuration in memory is %x", c[:16])
	}
}

func TestLIFAttributes_ReadBackWhatWasSet(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.MustAdmin(ethtest.SetAttr(abi.LIFAttrMTU, []byte{0x28, 0x23, 0, 0}))
	if v := r.MustAdmin(ethtest.GetAttr(abi.LIFAttrMTU)); !bytes.Equal(v.Value()[:4], []byte{0x28, 0x23, 0, 0}) {
		t.Errorf("MTU reads %x", v.Value())
	}
	r.MustAdmin(ethtest.SetAttr(abi.LIFAttrMAC, peer[:]))
	if v := r.MustAdmin(ethtest.GetAttr(abi.LIFAttrMAC)); [6]byte(v.Value()) != peer {
		t.Errorf("MAC reads %x", v.Value())
	}
	r.MustAdmin(ethtest.SetAttr(abi.LIFAttrName, []byte("eth0\x00")))
	if name := r.Bytes(r.LIFInfo+4, 5); string(name) != "eth0\x00" {
		t.Errorf("name in lif_info is %q", name)
	}
	r.MustAdmin(ethtest.SetAttr(abi.LIFAttrState, []byte{byte(abi.LIFQuiesce)}))
	if v := r.MustAdmin(ethtest.GetAttr(abi.LIFAttrState)); v.Value()[0] != byte(abi.LIFQuiesce) {
		t.Error("the LIF is not quiesced")
	}
	r.SetFeatures(0x1ffbf)
	if r.Granted != 0 {
		t.Errorf("features %#x granted by a LIF that offers none", uint64(r.Granted))
	}
}

func TestFeatures_GrantsTheOfferedSubset(t *testing.T) {
	r := newRig(t, func(c *eth.Config) { c.Offload = eth.AllOffloads })
	r.Probe(0x1ffbf)
	if r.Granted != 0x7bf {
		t.Errorf("granted %#x of 0x1ffbf, want 0x7bf", uint64(r.Granted))
	}
}

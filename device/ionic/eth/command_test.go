// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

// with sets bytes of a command.
func with(c abi.Command, at int, b ...byte) abi.Command {
	copy(c[at:], b)
	return c
}

func TestCommands_RefuseWhatIsWrong(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	ring := r.Alloc(64 << 10)
	tx := abi.QInit{Type: abi.QTypeTx, Version: 1, RingLog2: 4, Flags: 5, Intr: 1, Ring: ring, CQ: ring, SG: ring}
	rx := abi.QInit{Type: abi.QTypeRx, RingLog2: 4, Flags: 5, Intr: 1, Ring: ring, CQ: ring, SG: ring}
	change := func(q abi.QInit, f func(*abi.QInit)) abi.Command { f(&q); return q.Command() }
	const far = 0x7000_0000_0000
	for _, tc := range []struct {
		name string
		cmd  abi.Command
		want abi.Status
	}{
		{"opcode that does not exist", ethtest.Op(99), abi.StatusEOpcode},
		{"GETATTR", ethtest.Op(abi.OpGetAttr), abi.StatusENoSupp},
		{"VF_SETATTR", ethtest.Op(abi.OpVFSetAttr), abi.StatusENoSupp},
		{"DISCOVER_CMB", ethtest.Op(abi.OpDiscoverCMB), abi.StatusENoSupp},
		{"QOS_RESET", ethtest.Op(abi.OpQoSReset), abi.StatusENoSupp},
		{"FW_DOWNLOAD", ethtest.Op(abi.OpFWDownload), abi.StatusENoSupp},
		{"FW_CONTROL", ethtest.Op(abi.OpFWControl), abi.StatusENoSupp},
		{"LIF_SETPHC", ethtest.Op(abi.OpLIFSetPHC), abi.StatusENoSupp},
		{"RDMA without an RDMA half", ethtest.Op(abi.OpRDMACreateEQ), abi.StatusENoSupp},
		{"IDENTIFY version 0", ethtest.Op(abi.OpIdentify), abi.StatusEVersion},
		{"PORT_IDENTIFY of another port", with(ethtest.Op(abi.OpPortIdentify), 1, 1), abi.StatusEInval},
		{"PORT_RESET of another port", with(ethtest.Op(abi.OpPortReset), 1, 1), abi.StatusEInval},
		{"PORT_SETATTR of another port", with(ethtest.Op(abi.OpPortSetAttr), 1, 1), abi.StatusEInval},
		{"PORT_SETATTR attribute", ethtest.PortSetAttr(77, 0), abi.StatusEInval},
		{"PORT_SETATTR state", ethtest.PortSetAttr(abi.PortAttrState, 3), abi.StatusEInval},
		{"PORT_SETATTR speed", ethtest.PortSetAttr(abi.PortAttrSpeed, 12345), abi.StatusEInval},
		{"PORT_SETATTR MTU", ethtest.PortSetAttr(abi.PortAttrMTU, 20000), abi.StatusERange},
		{"PORT_SETATTR FEC", ethtest.PortSetAttr(abi.PortAttrFEC, 9), abi.StatusEInval},
		{"PORT_SETATTR pause", ethtest.PortSetAttr(abi.PortAttrPause, 0xc0), abi.StatusEInval},
		{"PORT_SETATTR loopback", ethtest.PortSetAttr(abi.PortAttrLoopback, 1), abi.StatusENoSupp},
		{"PORT_INIT of speed 0", with(ethtest.Op(abi.OpPortInit), 8, 0, 0x10), abi.StatusEInval},
		{"LIF_IDENTIFY type", with(ethtest.Op(abi.OpLIFIdentify), 1, 1), abi.StatusEInval},
		{"LIF_INIT type", with(ethtest.Op(abi.OpLIFInit), 1, 1), abi.StatusEInval},
		{"LIF_INIT of another LIF", with(ethtest.Op(abi.OpLIFInit), 2, 1), abi.StatusEInval},
		{"LIF_RESET of another LIF", with(ethtest.Op(abi.OpLIFReset), 2, 1), abi.StatusEInval},
		{"LIF_GETATTR of another LIF", with(ethtest.GetAttr(abi.LIFAttrMAC), 2, 1), abi.StatusEInval},
		{"LIF_GETATTR attribute", ethtest.GetAttr(99), abi.StatusEInval},
		{"LIF_SETATTR attribute", ethtest.SetAttr(99, nil), abi.StatusEInval},
		{"LIF_SETATTR state", ethtest.SetAttr(abi.LIFAttrState, []byte{7}), abi.StatusEInval},
		{"LIF_SETATTR name without end", ethtest.SetAttr(abi.LIFAttrName, []byte("0123456789abcdef")), abi.StatusEInval},
		{"LIF_SETATTR MTU too small", ethtest.SetAttr(abi.LIFAttrMTU, []byte{67}), abi.StatusERange},
		{"LIF_SETATTR MTU too large", ethtest.SetAttr(abi.LIFAttrMTU, []byte{0xff, 0xff}), abi.StatusERange},
		{"LIF_SETATTR MAC zero", ethtest.SetAttr(abi.LIFAttrMAC, make([]byte, 6)), abi.StatusEInval},
		{"LIF_SETATTR MAC multicast", ethtest.SetAttr(abi.LIFAttrMAC, group[:]), abi.StatusEInval},
		{"LIF_SETATTR statistics", ethtest.SetAttr(abi.LIFAttrStatsCtrl, []byte{1}), abi.StatusEInval},
		{"LIF_SETATTR timestamping", ethtest.SetAttr(abi.LIFAttrTxStamp, []byte{1}), abi.StatusEInval},
		{"RSS types", with(ethtest.SetAttr(abi.LIFAttrRSS, nil), 4, 0x40), abi.StatusEInval},
		{"RSS table unreachable", with(ethtest.SetAttr(abi.LIFAttrRSS, nil), 4, 1), abi.StatusBadAddr},
		{"RX_MODE_SET bits", ethtest.RxMode(0x80), abi.StatusEInval},
		{"filter kind", with(ethtest.Op(abi.OpRxFilterAdd), 8, 9), abi.StatusEInval},
		{"filter VLAN", ethtest.VLANFilter(4096), abi.StatusEInval},
		{"filter steering", with(ethtest.Op(abi.OpRxFilterAdd), 8, 0x10), abi.StatusENoSupp},
		{"filter that is not there", with(ethtest.Op(abi.OpRxFilterDel), 4, 99), abi.StatusEExist},
		{"Q_IDENTIFY type", with(ethtest.Op(abi.OpQIdentify), 4, 4), abi.StatusEQType},
		{"Q_IDENTIFY LIF type", with(ethtest.Op(abi.OpQIdentify), 2, 1), abi.StatusEInval},
		{"Q_INIT type", change(tx, func(q *abi.QInit) { q.Type = abi.QTypeEQ }), abi.StatusEQType},
		{"Q_INIT index", change(tx, func(q *abi.QInit) { q.Index = 4 }), abi.StatusEQID},
		{"Q_INIT index huge", change(rx, func(q *abi.QInit) { q.Index = 1 << 31 }), abi.StatusEQID},
		{"Q_INIT second adminq", change(tx, func(q *abi.QInit) { q.Type, q.Version, q.Index = 0, 0, 1 }), abi.StatusEQID},
		{"Q_INIT of another LIF", change(tx, func(q *abi.QInit) { q.LIF = 1 }), abi.StatusEInval},
		{"Q_INIT version", change(tx, func(q *abi.QInit) { q.Version = 3 }), abi.StatusEVersion},
		{"Q_INIT ring too small", change(tx, func(q *abi.QInit) { q.RingLog2 = 1 }), abi.StatusEInval},
		{"Q_INIT ring too large", change(tx, func(q *abi.QInit) { q.RingLog2 = 17 }), abi.StatusEInval},
		{"Q_INIT ring size wraps", change(tx, func(q *abi.QInit) { q.RingLog2 = 255 }), abi.StatusEInval},
		{"Q_INIT in a CMB", change(tx, func(q *abi.QInit) { q.Flags |= abi.QFlagCMB }), abi.StatusENoSupp},
		{"Q_INIT on an EQ", change(rx, func(q *abi.QInit) { q.Flags |= abi.QFlagEQ }), abi.StatusENoSupp},
		{"Q_INIT timestamping", change(rx, func(q *abi.QInit) { q.Features = abi.QFeatureHWStamp }), abi.StatusENoSupp},
		{"Q_INIT of a user", change(rx, func(q *abi.QInit) { q.PID = 1 }), abi.StatusEInval},
		{"Q_INIT vector", change(tx, func(q *abi.QInit) { q.Intr = 32 }), abi.StatusEInval},
		{"Q_INIT ring unaligned", change(tx, func(q *abi.QInit) { q.Ring += 8 }), abi.StatusBadAddr},
		{"Q_INIT ring unmapped", change(tx, func(q *abi.QInit) { q.Ring = far }), abi.StatusBadAddr},
		{"Q_INIT completions unmapped", change(rx, func(q *abi.QInit) { q.CQ = far }), abi.StatusBadAddr},
		{"Q_INIT elements unmapped", change(rx, func(q *abi.QInit) { q.SG = far }), abi.StatusBadAddr},
		{"Q_INIT ring wraps", change(rx, func(q *abi.QInit) { q.Ring = ^uint64(0) &^ 15 }), abi.StatusBadAddr},
		{"Q_INIT ring leaves memory", change(tx, func(q *abi.QInit) { q.Ring = ethtest.Base + 64<<20 - 16 }), abi.StatusBadAddr},
		{"Q_INIT events wrap", change(tx, func(q *abi.QInit) { q.Type, q.Version, q.Flags, q.Ring = 1, 0, 3, ^uint64(0)&^4095 }), abi.StatusBadAddr},
		{"Q_CONTROL type", qcontrol(abi.QTypeAdmin, 0, abi.QEnable), abi.StatusEQType},
		{"Q_CONTROL index", qcontrol(abi.QTypeTx, 4, abi.QEnable), abi.StatusEQID},
		{"Q_CONTROL before Q_INIT", qcontrol(abi.QTypeRx, 3, abi.QDisable), abi.StatusEQID},
		{"Q_CONTROL hang reset", qcontrol(abi.QTypeTx, 0, abi.QHangReset), abi.StatusEInval},
	} {
		if got := r.DevCmd(tc.cmd, make([]byte, abi.CmdDataSize)).Status(); got != tc.want {
			t.Errorf("devcmd %s: %v, want %v", tc.name, got, tc.want)
		}
	}
	// Nothing of this broke anything.
	r.Up(2, 6, 1500)
	r.Pairs[0].Send(frame(peer, station, 0x88b5, 60))
	r.wireFrame(t)
	r.Pairs[0].AwaitTx()
}

func qcontrol(t abi.QType, i uint32, o abi.QOper) abi.Command {
	return abi.QControl{Type: t, Index: i, Oper: o}.Command()
}

func TestCommands_NeedAnInitialisedLIF(t *testing.T) {
	r := newRig(t, nil)
	for _, op := range []abi.Opcode{
		abi.OpLIFGetAttr, abi.OpLIFSetAttr, abi.OpRxModeSet, abi.OpRxFilterAdd, abi.OpRxFilterDel, abi.OpQInit, abi.OpQControl,
	} {
		if got := r.DevCmd(ethtest.Op(op), nil).Status(); got != abi.StatusEPerm {
			t.Errorf("%v before LIF_INIT: %v", op, got)
		}
	}
	if got := r.DevCmd(ethtest.Op(abi.OpNop), nil).Status(); got != abi.StatusOK {
		t.Errorf("NOP: %v", got)
	}
}

func TestCommands_BadBlocksAreRefused(t *testing.T) {
	r := newRig(t, nil)
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	r.MustDevCmd(ethtest.Op(abi.OpPortIdentify), nil)
	config := append([]byte{}, abi.PortIdentity(r.Window[:]).Config()...)
	end := uint64(ethtest.Base + 64<<20)
	for _, addr := range []uint64{0, 4, end - 8, end, ^uint64(0) &^ 7} {
		port, lif := ethtest.Op(abi.OpPortInit), ethtest.Op(abi.OpLIFInit)
		port.SetInfoAddress(addr)
		lif.SetInfoAddress(addr)
		if got := r.DevCmd(port, config).Status(); got != abi.StatusBadAddr {
			t.Errorf("PORT_INIT at %#x: %v", addr, got)
		}
		if got := r.DevCmd(lif, nil).Status(); got != abi.StatusBadAddr {
			t.Errorf("LIF_INIT at %#x: %v", addr, got)
		}
	}
	for _, b := range r.RAM() {
		if b != 0 {
			t.Fatal("a refused block was written")
		}
	}
}

func TestAdminQueue_RefusesDeviceCommands(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	for _, op := range []abi.Opcode{
		abi.OpIdentify, abi.OpInit, abi.OpReset, abi.OpPortIdentify, abi.OpPortInit, abi.OpPortReset, abi.OpPortSetAttr,
		abi.OpLIFIdentify, abi.OpLIFInit, abi.OpLIFReset, abi.OpQIdentify,
	} {
		if got := r.Admin(ethtest.Op(op)).Status(); got != abi.StatusDevCmd {
			t.Errorf("%v on the admin queue: %v", op, got)
		}
	}
	if got := r.Admin(ethtest.Op(200)).Status(); got != abi.StatusEOpcode {
		t.Errorf("unknown opcode on the admin queue: %v", got)
	}
}

// The ring has 16 slots; colour and index follow over many laps.
func TestAdminQueue_ManyLaps(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	for range 100 {
		r.MustAdmin(ethtest.GetAttr(abi.LIFAttrMAC))
	}
}

func TestFilters_HoldWhatTheIdentityPromises(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	first := r.MustAdmin(ethtest.MACFilter(station)).FilterID()
	ids := map[uint32]bool{first: true}
	mac := [6]byte{2, 1, 0, 0, 0, 0}
	for i := range 127 {
		mac[5] = byte(i)
		id := r.MustAdmin(ethtest.MACFilter(mac)).FilterID()
		if ids[id] {
			t.Fatalf("filter id %d given twice", id)
		}
		ids[id] = true
	}
	mac[5] = 200
	if got := r.Admin(ethtest.MACFilter(mac)).Status(); got != abi.StatusENoSpc {
		t.Fatalf("filter 129: %v", got)
	}
	for vid := uint16(0); vid < 4096; vid += 5 {
		r.MustAdmin(ethtest.VLANFilter(vid))
	}
	del := ethtest.Op(abi.OpRxFilterDel)
	del.SetRxFilterID(first)
	r.MustAdmin(del)
	if got := r.MustAdmin(ethtest.MACFilter(mac)).FilterID(); ids[got] {
		t.Fatal("an id was used again")
	}
}

func TestConfig_IsChecked(t *testing.T) {
	for name, spoil := range map[string]func(*eth.Config){
		"multicast station address": func(c *eth.Config) { c.MAC[0] = 1 },
		"no station address":        func(c *eth.Config) { c.MAC = [6]byte{} },
		"MTU":                       func(c *eth.Config) { c.MTUMax = 1499 },
		"no queues":                 func(c *eth.Config) { c.Queues = 0 },
		"too many queues":           func(c *eth.Config) { c.Queues = 65 },
		"one vector":                func(c *eth.Config) { c.Vectors = 1 },
		"more vectors than a bank":  func(c *eth.Config) { c.Vectors = 33 },
		"tunnel offload":            func(c *eth.Config) { c.Offload = abi.FeatureTSOGRE },
		"no interval":               func(c *eth.Config) { c.StatsInterval = 0 },
	} {
		r := newRig(t, nil)
		c := eth.Config{MAC: station, MTUMax: 9198, Speed: 100000, Queues: 4, Vectors: 32, StatsInterval: 1, Bank: r.bank}
		spoil(&c)
		if _, err := eth.New(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

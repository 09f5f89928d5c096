// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// The structures of ionic_if.h, field by field in header order; the header packs
// them. Offsets computed from these declarations are compared with the bytes the
// accessors touch.
type (
	cDevIdentity struct {
		Version, Type            uint8
		Rsvd                     [2]uint8
		Nports                   uint8
		Rsvd2                    [3]uint8
		Nlifs, Nintrs            uint32
		NdbpgsPerLIF             uint32
		IntrCoalMult             uint32
		IntrCoalDiv              uint32
		EQCount                  uint32
		HWStampMask              uint64
		HWStampMult, HWStampShif uint32
		Capabilities             uint64
	}
	cPortConfig struct {
		Speed, MTU           uint32
		State, AnEnable, FEC uint8
		Pause, Loopback      uint8
		Rsvd                 [243]uint8
	}
	cPortIdentity struct {
		Version, Type, NumLanes, Autoneg uint8
		MinFrame, MaxFrame               uint32
		FECType                          [4]uint8
		PauseType, LoopbackMode          [2]uint8
		Speeds                           [16]uint32
		Rsvd                             [44]uint8
		Config                           cPortConfig
	}
	cLIFConfig struct {
		State      uint8
		Rsvd       [3]uint8
		Name       [16]uint8
		MTU        uint32
		MAC        [6]uint8
		VLAN       uint16
		Features   uint64
		QueueCount [16]uint32
		Rsvd2      [152]uint8
	}
	cQType struct {
		QType       uint8
		Rsvd        [3]uint8
		Count, Base uint32
	}
	cLIFIdentity struct {
		Capabilities         uint64
		EthVersion           uint8
		Rsvd                 [3]uint8
		MaxUcast, MaxMcast   uint32
		RSSTableSize         uint16
		MinFrame, MaxFrame   uint32
		Rsvd2                [2]uint8
		HWStampTx, HWStampRx uint64
		Rsvd3                [88]uint8
		Config               cLIFConfig
		RDMA                 [256]uint8
	}
	cQIdentity struct {
		Version, Supported uint8
		Rsvd               [6]uint8
		Features           uint64
		DescSz, CompSz     uint16
		SGDescSz, MaxSG    uint16
		SGStride           uint16
	}
	cQInit struct {
		Opcode, Rsvd     uint8
		LIF              uint16
		Type, Ver        uint8
		Rsvd1            [2]uint8
		Index            uint32
		PID, Intr, Flags uint16
		COS, RingSize    uint8
		Ring, CQ, SG     uint64
		Rsvd2            [12]uint8
		Features         uint64
	}
	cQControl struct {
		Opcode, Type uint8
		LIF          uint16
		Index        uint32
		Oper         uint8
		Rsvd         [55]uint8
	}
	cLIFStatus struct {
		EID        uint64
		Port, Rsvd uint8
		LinkStatus uint16
		LinkSpeed  uint32
		DownCount  uint16
		Rsvd2      [46]uint8
	}
	cLIFInfo struct {
		Config cLIFConfig
		Status cLIFStatus
		Stats  [1024]uint8
	}
	cXcvr struct {
		State, PHY uint8
		PID        uint16
		Sprom      [256]uint8
	}
	cPortStatus struct {
		ID, Speed uint32
		Status    uint8
		DownCount uint16
		FEC       uint8
		Rsvd      [48]uint8
		Xcvr      cXcvr
	}
	cPortInfo struct {
		Config               cPortConfig
		Status               cPortStatus
		Stats                [89]uint64
		Page1, Page2, Page17 [128]uint8
		Rsvd                 [376]uint8
		Extra                [20]uint64
	}
	cDevInfoRegs struct {
		Signature         uint32
		Version, AsicType uint8
		AsicRev, FWStatus uint8
		Heartbeat         uint32
		FWVersion, Serial [32]uint8
		Rsvd              [948]uint8
		TickLow, TickHigh uint32
	}
	cDevCmdRegs struct {
		Doorbell, Done uint32
		Cmd            [64]uint8
		Comp           [16]uint8
		Rsvd           [48]uint8
		Data           [478]uint32
	}
	cIntrCtrl struct {
		CoalInit, Mask   uint32
		Credits          uint32
		MaskAssert, Coal uint32
		Rsvd             [3]uint32
	}
)

// size returns the packed size of a type.
func size(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Struct:
		n := 0
		for i := range t.NumField() {
			n += size(t.Field(i).Type)
		}
		return n
	case reflect.Array:
		return t.Len() * size(t.Elem())
	}
	return int(t.Size())
}

// place returns the packed offset and size of a field, "Outer.Inner" for nested.
func place(t *testing.T, v any, path string) (off, n int) {
	t.Helper()
	typ := reflect.TypeOf(v)
	for _, name := range strings.Split(path, ".") {
		found := false
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Name == name {
				typ, found = f.Type, true
				break
			}
			off += size(f.Type)
		}
		if !found {
			t.Fatalf("%T has no field %s", v, path)
		}
	}
	return off, size(typ)
}

func TestSizes_AreTheHeaders(t *testing.T) {
	for _, tc := range []struct {
		v    any
		want int
	}{
		{cPortConfig{}, PortConfigSize}, {cLIFConfig{}, LIFConfigSize}, {cPortIdentity{}, 384}, {cLIFIdentity{}, 648},
		{cQIdentity{}, QIdentitySize}, {cQInit{}, CommandSize}, {cQControl{}, CommandSize}, {cQType{}, 12},
		{cLIFInfo{}, LIFInfoSize}, {cLIFStatus{}, LIFInfoStatusSize}, {cPortInfo{}, PortInfoSize}, {cIntrCtrl{}, IntrCtrlSize},
		{cDevCmdRegs{}, RegCmdEnd - RegCmdDoorbell},
	} {
		if got := size(reflect.TypeOf(tc.v)); got != tc.want {
			t.Errorf("%T has %d bytes, want %d", tc.v, got, tc.want)
		}
	}
}

func TestOffsets_AreTheHeaders(t *testing.T) {
	for _, tc := range []struct {
		v     any
		field string
		base  int
		want  int
	}{
		{cDevInfoRegs{}, "Version", 0, RegVersion}, {cDevInfoRegs{}, "AsicType", 0, RegAsicType},
		{cDevInfoRegs{}, "AsicRev", 0, RegAsicRev}, {cDevInfoRegs{}, "FWStatus", 0, RegFWStatus},
		{cDevInfoRegs{}, "Heartbeat", 0, RegFWHeartbeat}, {cDevInfoRegs{}, "FWVersion", 0, RegFWVersion},
		{cDevInfoRegs{}, "Serial", 0, RegSerial}, {cDevInfoRegs{}, "TickLow", 0, RegTickLow},
		{cDevInfoRegs{}, "TickHigh", 0, RegTickHigh},
		{cDevCmdRegs{}, "Done", RegCmdDoorbell, RegCmdDone}, {cDevCmdRegs{}, "Cmd", RegCmdDoorbell, RegCmd},
		{cDevCmdRegs{}, "Comp", RegCmdDoorbell, RegCmdComp}, {cDevCmdRegs{}, "Data", RegCmdDoorbell, RegCmdData},
		{cIntrCtrl{}, "Mask", 0, IntrMask}, {cIntrCtrl{}, "Credits", 0, IntrCredits},
		{cIntrCtrl{}, "MaskAssert", 0, IntrMaskAssert}, {cIntrCtrl{}, "Coal", 0, IntrCoal},
		{cLIFIdentity{}, "RDMA", 0, LIFIdentityRDMAOffset},
		{cLIFInfo{}, "Status", 0, LIFInfoStatus}, {cLIFInfo{}, "Status.EID", 0, LIFInfoEID},
		{cLIFInfo{}, "Status.Port", 0, LIFInfoPort}, {cLIFInfo{}, "Status.LinkStatus", 0, LIFInfoLinkStatus},
		{cLIFInfo{}, "Status.LinkSpeed", 0, LIFInfoLinkSpeed}, {cLIFInfo{}, "Status.DownCount", 0, LIFInfoLinkDownCount},
		{cLIFInfo{}, "Stats", 0, LIFInfoStats},
		{cPortInfo{}, "Status.ID", 0, PortInfoID}, {cPortInfo{}, "Status.Speed", 0, PortInfoSpeed},
		{cPortInfo{}, "Status.Status", 0, PortInfoOper}, {cPortInfo{}, "Status.DownCount", 0, PortInfoLinkDownCount},
		{cPortInfo{}, "Status.FEC", 0, PortInfoFEC}, {cPortInfo{}, "Status.Xcvr.State", 0, PortInfoXcvrState},
		{cPortInfo{}, "Status.Xcvr.PHY", 0, PortInfoXcvrPHY}, {cPortInfo{}, "Status.Xcvr.PID", 0, PortInfoXcvrPID},
		{cPortInfo{}, "Status.Xcvr.Sprom", 0, PortInfoSprom}, {cPortInfo{}, "Stats", 0, PortInfoStats},
		{cPortInfo{}, "Page1", 0, PortInfoSpromPage1}, {cPortInfo{}, "Extra", 0, PortInfoExtraStats},
	} {
		off, _ := place(t, tc.v, tc.field)
		if tc.base+off != tc.want {
			t.Errorf("%T.%s is at %d, want %d", tc.v, tc.field, tc.base+off, tc.want)
		}
	}
}

// touches sees that a setter changes the bytes of one field and no others.
func touches(t *testing.T, v any, field string, buf []byte, set func()) {
	t.Helper()
	off, n := place(t, v, field)
	clear(buf)
	set()
	if bytes.Equal(buf[off:off+n], make([]byte, n)) {
		t.Errorf("%T.%s: the setter leaves bytes %d to %d at 0", v, field, off, off+n)
	}
	clear(buf[off : off+n])
	if i := bytes.IndexFunc(buf, func(r rune) bool { return r != 0 }); i >= 0 {
		t.Errorf("%T.%s: the setter changes byte %d", v, field, i)
	}
}

func TestSetters_TouchTheirFieldAlone(t *testing.T) {
	b := make([]byte, CmdDataSize)
	const x = 0x11223344
	mac := [6]byte{1, 2, 3, 4, 5, 6}

	d, dev := DeviceIdentity(b), cDevIdentity{}
	touches(t, dev, "Version", b, func() { d.SetVersion(2) })
	touches(t, dev, "Nports", b, func() { d.SetPorts(1) })
	touches(t, dev, "Nlifs", b, func() { d.SetLIFs(x) })
	touches(t, dev, "Nintrs", b, func() { d.SetIntrs(x) })
	touches(t, dev, "NdbpgsPerLIF", b, func() { d.SetDoorbellPages(x) })
	touches(t, dev, "IntrCoalMult", b, func() { d.SetCoalesce(x, 0) })
	touches(t, dev, "IntrCoalDiv", b, func() { d.SetCoalesce(0, x) })
	touches(t, dev, "Capabilities", b, func() { d.SetCapabilities(x << 32) })

	p, port := PortIdentity(b), cPortIdentity{}
	touches(t, port, "Version", b, func() { p.SetVersion(1) })
	touches(t, port, "Type", b, func() { p.SetType(1) })
	touches(t, port, "NumLanes", b, func() { p.SetLanes(4) })
	touches(t, port, "Autoneg", b, func() { p.SetAutoneg(1) })
	touches(t, port, "MinFrame", b, func() { p.SetFrameSize(x, 0) })
	touches(t, port, "MaxFrame", b, func() { p.SetFrameSize(0, x) })
	touches(t, port, "FECType", b, func() { p.SetFECTypes(1, 2, 3, 4) })
	touches(t, port, "PauseType", b, func() { p.SetPauseTypes(1, 2) })
	touches(t, port, "Speeds", b, func() { p.SetSpeed(15, x) })
	touches(t, port, "Config.Speed", b, func() { p.Config().SetSpeed(x) })
	touches(t, port, "Config.MTU", b, func() { p.Config().SetMTU(x) })
	touches(t, port, "Config.State", b, func() { p.Config().SetState(2) })
	touches(t, port, "Config.AnEnable", b, func() { p.Config().SetAutoneg(1) })
	touches(t, port, "Config.FEC", b, func() { p.Config().SetFEC(2) })
	touches(t, port, "Config.Pause", b, func() { p.Config().SetPause(1) })
	touches(t, port, "Config.Loopback", b, func() { p.Config().SetLoopback(1) })

	l, lif := LIFIdentity(b), cLIFIdentity{}
	touches(t, lif, "Capabilities", b, func() { l.SetCapabilities(3) })
	touches(t, lif, "EthVersion", b, func() { l.SetEthVersion(1) })
	touches(t, lif, "MaxUcast", b, func() { l.SetFilters(x, 0) })
	touches(t, lif, "MaxMcast", b, func() { l.SetFilters(0, x) })
	touches(t, lif, "RSSTableSize", b, func() { l.SetRSSTableSize(0x8080) })
	touches(t, lif, "MinFrame", b, func() { l.SetFrameSize(x, 0) })
	touches(t, lif, "MaxFrame", b, func() { l.SetFrameSize(0, x) })
	touches(t, lif, "Config.State", b, func() { l.Config().SetState(1) })
	touches(t, lif, "Config.Name", b, func() { l.Config().SetName([]byte("name")) })
	touches(t, lif, "Config.MTU", b, func() { l.Config().SetMTU(x) })
	touches(t, lif, "Config.MAC", b, func() { l.Config().SetMAC(mac) })
	touches(t, lif, "Config.Features", b, func() { l.Config().SetFeatures(x) })
	touches(t, lif, "Config.QueueCount", b, func() { l.Config().SetQueueCount(QTypeTx, x) })
	touches(t, lif, "RDMA", b, func() { l.RDMA()[0], l.RDMA()[255] = 1, 1 })

	for field, q := range map[string]QIdentity{
		"Version": {Version: 1}, "Supported": {Supported: 1}, "Features": {Features: 1 << 40}, "DescSz": {DescSize: 300},
		"CompSz": {CompSize: 300}, "SGDescSz": {SGDescSize: 300}, "MaxSG": {MaxSG: 300}, "SGStride": {SGDescStride: 300},
	} {
		touches(t, cQIdentity{}, field, b, func() { q.Encode(b) })
		if got := DecodeQIdentity(encoded(q)); got != q {
			t.Errorf("queue identity %+v reads back as %+v", q, got)
		}
	}
	for field, q := range map[string]QInit{
		"LIF": {LIF: 0x102}, "Type": {Type: 3}, "Ver": {Version: 1}, "Index": {Index: x}, "PID": {PID: 0x102},
		"Intr": {Intr: 0x102}, "Flags": {Flags: 0x105}, "COS": {COS: 1}, "RingSize": {RingLog2: 10}, "Ring": {Ring: x << 20},
		"CQ": {CQ: x << 20}, "SG": {SG: x << 20}, "Features": {Features: 1 << 16},
	} {
		touches(t, cQInit{}, field, b, func() {
			c := q.Command()
			c[0] -= byte(OpQInit)
			copy(b, c[:])
		})
		c := q.Command()
		if got := c.QInit(); got != q || c.Opcode() != OpQInit {
			t.Errorf("Q_INIT %+v reads back as %+v", q, got)
		}
	}
	for field, q := range map[string]QControl{"Type": {Type: 3}, "LIF": {LIF: 0x102}, "Index": {Index: x}, "Oper": {Oper: 1}} {
		touches(t, cQControl{}, field, b, func() {
			c := q.Command()
			c[0] -= byte(OpQControl)
			copy(b, c[:])
		})
		c := q.Command()
		if got := c.QControl(); got != q {
			t.Errorf("Q_CONTROL %+v reads back as %+v", q, got)
		}
	}
}

func encoded(q QIdentity) []byte {
	b := make([]byte, QIdentitySize)
	q.Encode(b)
	return b
}

func TestTxDesc_PacksTheCommandWord(t *testing.T) {
	d := TxDesc{Addr: 0xabcdef0123456, Len: 0x1234, Op: TxTSO, Flags: TxFlagVLAN | TxFlagEOT, SGs: 15, VLAN: 0x6005, CsumStart: 54, CsumOffset: 1448}
	b := make([]byte, TxDescSize)
	d.Encode(b)
	want := []byte{0x39, 0x6f, 0x45, 0x23, 0x01, 0xef, 0xcd, 0xab, 0x34, 0x12, 0x05, 0x60, 54, 0, 0xa8, 0x05}
	if !bytes.Equal(b, want) {
		t.Errorf("encoded %x, want %x", b, want)
	}
	if got := DecodeTxDesc(b); got != d {
		t.Errorf("reads back as %+v", got)
	}
}

func TestRxCompletion_ReadsBack(t *testing.T) {
	c := RxCompletion{Status: 2, SGs: 3, Index: 0x102, Hash: 0x11223344, Csum: 0x5566, VLAN: 0x7788, Len: 9018, Flags: 0xc0, Type: PktIPv6TCP}
	for _, color := range []bool{false, true} {
		var b [16]byte
		lo, hi := c.Words(color)
		le.PutUint64(b[0:], lo)
		le.PutUint64(b[8:], hi)
		want := [16]byte{2, 3, 2, 1, 0x44, 0x33, 0x22, 0x11, 0x66, 0x55, 0x88, 0x77, 0x3a, 0x23, 0xc0, 0x18}
		if color {
			want[15] |= 0x80
		}
		if b != want {
			t.Errorf("encoded %x, want %x", b, want)
		}
		if got, col := DecodeRxCompletion(b[:]); got != c || col != color {
			t.Errorf("reads back as %+v %v", got, col)
		}
	}
}

func TestDoorbell_ExampleOfTheDriver(t *testing.T) {
	d := MakeDoorbell(5, 1023)
	if d != 0x0000_0000_0500_03ff || d.QID() != 5 || d.Index() != 1023 || d.Ring() != 0 {
		t.Errorf("doorbell %#x", uint64(d))
	}
	if arm := Doorbell(0x2202_0001); arm.Ring() != 2 || arm.QID() != 0x22 {
		t.Errorf("ring %d of queue %d", arm.Ring(), arm.QID())
	}
}

func TestFilters_ReadBack(t *testing.T) {
	for _, f := range []RxFilter{
		{Match: RxMatchVLAN, VLAN: 4095, LIF: 1, QType: 2, QID: 3},
		{Match: RxMatchMAC, MAC: [6]byte{1, 2, 3, 4, 5, 6}},
		{Match: RxMatchMACVLAN, MAC: [6]byte{1, 2, 3, 4, 5, 6}, VLAN: 7},
	} {
		c := f.Command()
		if got := c.RxFilter(); got != f {
			t.Errorf("%+v reads back as %+v", f, got)
		}
	}
}

func TestStatNames_AreCompleteAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for i, n := range append(append([]string{}, LIFStatNames[:]...), PortStatNames[:]...) {
		if n == "" {
			if i >= NumLIFStats {
				t.Errorf("port counter %d has no name", i-NumLIFStats)
			}
			continue
		}
		if seen[n] {
			t.Errorf("%s is there twice", n)
		}
		seen[n] = true
	}
	for s, want := range map[PortStat]string{
		FramesRxOK: "frames_rx_ok", OctetsRxAll: "octets_rx_all", FramesRxVLANGood: "frames_rx_vlan_good",
		FramesRxDropped: "frames_rx_dropped", FramesRx64: "frames_rx_64b", FramesRx64 + SizeBuckets - 1: "frames_rx_other",
		FramesTxOK: "frames_tx_ok", OctetsTxTotal: "octets_tx_total", FramesTxVLAN: "frames_tx_vlan",
		FramesTx64: "frames_tx_64b", FramesTx64 + SizeBuckets - 1: "frames_tx_other", FramesTxPri0: "frames_tx_pri_0",
		FramesRxPri0 + 7: "frames_rx_pri_7", FramesRxTooLong: "frames_rx_too_long", NumPortStats - 1: "frames_tx_truncated",
	} {
		if PortStatNames[s] != want {
			t.Errorf("port counter %d is %s, want %s", s, PortStatNames[s], want)
		}
	}
	for s, want := range map[LIFStat]string{
		RxBcastDropPackets: "rx_bcast_drop_packets", RxDMAError: "rx_dma_error", TxUcastBytes: "tx_ucast_bytes",
		TxDMAError: "tx_dma_error", RxQueueDisabled: "rx_queue_disabled", TxQueueEmpty: "tx_queue_empty", 125: "rdma_resp_tx_rnr_retry_err",
	} {
		if LIFStatNames[s] != want {
			t.Errorf("LIF counter %d is %s, want %s", s, LIFStatNames[s], want)
		}
	}
}

func TestSizeBucket_Edges(t *testing.T) {
	for n, want := range map[int]string{
		64: "64b", 65: "65b_127b", 127: "65b_127b", 128: "128b_255b", 256: "256b_511b", 1023: "512b_1023b",
		1024: "1024b_1518b", 1518: "1024b_1518b", 1519: "1519b_2047b", 2048: "2048b_4095b", 4096: "4096b_8191b",
		8192: "8192b_9215b", 9215: "8192b_9215b", 9216: "other",
	} {
		if got := PortStatNames[FramesTx64+SizeBucket(n)]; got != "frames_tx_"+want {
			t.Errorf("%d bytes are in %s, want %s", n, got, want)
		}
	}
}

func TestNames_Print(t *testing.T) {
	for v, want := range map[fmt.Stringer]string{
		OpLIFSetAttr: "LIF_SETATTR", Opcode(99): "opcode 99", StatusENoSupp: "ENOSUPP", Status(77): "status 77",
		QTypeTx: "txq", QType(9): "queue type 9",
	} {
		if v.String() != want {
			t.Errorf("%v, want %s", v, want)
		}
	}
}

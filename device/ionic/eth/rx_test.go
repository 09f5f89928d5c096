// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

func TestReceive_FrameLandsAsSent(t *testing.T) {
	r := upRig(t, 1, 0)
	for _, size := range []int{14, 42, 60, 256, 1514, 1518} {
		f := frame(station, peer, 0x88b5, size)
		r.inject(t, f)
		got := r.Pairs[0].Receive()
		if !bytes.Equal(got.Data, f) || got.Comp.SGs != 0 || got.Comp.Flags != 0 {
			t.Fatalf("%d bytes: %+v %x", size, got.Comp, got.Data)
		}
	}
}

func TestReceive_ManyLapsInOrder(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	for i := range 1000 {
		r.inject(t, frame(station, peer, uint16(i), 60+i%1000))
		got := p.Receive()
		if len(got.Data) != 60+i%1000 || be.Uint16(got.Data[12:]) != uint16(i) {
			t.Fatalf("frame %d: %d bytes of type %x", i, len(got.Data), got.Data[12:14])
		}
		if i%16 == 15 {
			p.Fill()
		}
	}
}

func TestReceive_JumboUsesElements(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.Up(1, 4, 9000)
	for _, tc := range []struct {
		size int
		sgs  uint8
	}{{1514, 0}, {4096, 0}, {4097, 1}, {8192, 1}, {8193, 2}, {9018, 2}} {
		f := frame(station, peer, 0x88b5, tc.size)
		r.inject(t, f)
		got := r.Pairs[0].Receive()
		if !bytes.Equal(got.Data, f) || got.Comp.SGs != tc.sgs {
			t.Errorf("%d bytes: %d elements and %d bytes", tc.size, got.Comp.SGs, len(got.Data))
		}
		r.Pairs[0].Fill()
	}
}

// Bytes behind each buffer are somebody else's.
func TestReceive_NeverWritesPastABuffer(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	for _, size := range []int{1519, 4000, 9216} { // buffers hold 1518
		slot := p.Buffers[0]
		page := r.Bytes(slot.Addr[0], abi.PageSize)
		for i := range page {
			page[i] = 0xdb
		}
		r.inject(t, frame(station, peer, 0x88b5, size))
		got := p.Receive()
		if got.Comp.Status == 0 || int(got.Comp.Len) != size {
			t.Errorf("a frame of %d bytes in 1518: %+v", size, got.Comp)
		}
		for i, b := range page[1518:] {
			if b != 0xdb {
				t.Fatalf("byte %d behind the buffer was written", i)
			}
		}
		p.Buffers = p.Buffers[1:]
	}
	if got := r.lifStat(abi.RxDescDataError); got != 3 {
		t.Errorf("rx_desc_data_error is %d, want 3", got)
	}
	if pk, by := r.lifStat(abi.RxUcastDropPackets), r.lifStat(abi.RxUcastDropBytes); pk != 3 || by != 1519+4000+9216 {
		t.Errorf("dropped %d packets of %d bytes", pk, by)
	}
}

func TestReceive_NoBufferPosted(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.Up(1, 2, 1500) // three buffers
	for range 5 {
		r.inject(t, frame(allOnes, peer, 0x88b5, 100))
	}
	for range 3 {
		r.Pairs[0].Receive()
	}
	eventually(t, "rx_queue_empty 2", func() bool { return r.lifStat(abi.RxQueueEmpty) == 2 })
	if p, b, d := r.lifStat(abi.RxBcastDropPackets), r.lifStat(abi.RxBcastDropBytes), r.portStat(abi.FramesRxDropped); p != 2 || b != 200 || d != 2 {
		t.Errorf("dropped %d packets, %d bytes, %d at the port", p, b, d)
	}
	if all, ok := r.portStat(abi.FramesRxAll), r.portStat(abi.FramesRxBroadcast); all != 5 || ok != 5 {
		t.Errorf("the port took in %d frames, %d broadcast, want 5", all, ok)
	}
	r.Pairs[0].Fill()
	r.inject(t, frame(station, peer, 0x88b5, 61))
	if got := r.Pairs[0].Receive(); len(got.Data) != 61 {
		t.Errorf("after refilling a frame of %d bytes arrived", len(got.Data))
	}
}

func TestReceive_BadDescriptorsAreCompletedInOrder(t *testing.T) {
	const nowhere = 0x7000_0000_0000
	for _, tc := range []struct {
		name string
		desc abi.RxDesc
		size int
		want abi.LIFStat
	}{
		{"opcode", abi.RxDesc{Op: 7, Len: 1518, Addr: ethtest.Base}, 60, abi.RxDescDataError},
		{"length 0", abi.RxDesc{Op: abi.RxSimple, Addr: ethtest.Base}, 60, abi.RxDescDataError},
		{"unmapped", abi.RxDesc{Op: abi.RxSimple, Len: 1518, Addr: nowhere}, 60, abi.RxDMAError},
		{"leaves memory", abi.RxDesc{Op: abi.RxSimple, Len: 1518, Addr: ethtest.Base + 64<<20 - 59}, 60, abi.RxDMAError},
	} {
		r := newRig(t, nil)
		r.Probe(0)
		r.Up(1, 3, 1500)
		p := r.Pairs[0]
		tc.desc.Encode(r.Bytes(p.RxRing, 16))
		r.inject(t, frame(station, peer, 0x88b5, tc.size))
		if got := p.Receive(); got.Comp.Status == 0 {
			t.Errorf("%s: completed as good", tc.name)
		}
		if got := r.lifStat(tc.want); got != 1 {
			t.Errorf("%s: %s is %d, want 1", tc.name, abi.LIFStatNames[tc.want], got)
		}
		r.inject(t, frame(station, peer, 0x88b5, 99))
		if got := p.Receive(); len(got.Data) != 99 {
			t.Errorf("%s: the next frame has %d bytes", tc.name, len(got.Data))
		}
	}
}

func TestReceive_RuntsAndGiantsStayAtThePort(t *testing.T) {
	r := upRig(t, 1, 0)
	r.inject(t, []byte{1, 2, 3})
	r.inject(t, frame(station, peer, 0x88b5, 9217))
	r.inject(t, frame(station, peer, 0x88b5, 60))
	r.Pairs[0].Receive()
	for s, want := range map[abi.PortStat]uint64{
		abi.FramesRxTooLong: 1, abi.FramesRxOversized: 1, abi.FramesRxBadAll: 2, abi.FramesRxBadLength: 1,
		abi.FramesRxOK: 1, abi.FramesRxAll: 3, abi.OctetsRxOK: 64, abi.OctetsRxAll: 64 + 64 + 9221,
	} {
		if got := r.portStat(s); got != want {
			t.Errorf("%s is %d, want %d", abi.PortStatNames[s], got, want)
		}
	}
	if got := r.lifStat(abi.RxUcastPackets); got != 1 {
		t.Errorf("rx_ucast_packets is %d, want 1", got)
	}
}

func TestReceive_ModeAndFiltersDecide(t *testing.T) {
	listed := [6]byte{2, 0, 0, 0, 0, 0x10}
	ucast, unknown := frame(listed, peer, 1, 60), frame([6]byte{2, 9, 9, 9, 9, 9}, peer, 2, 60)
	mcast, mcastUnknown := frame(group, peer, 3, 60), frame([6]byte{0x33, 0x33, 9, 9, 9, 9}, peer, 4, 60)
	bcast := frame(allOnes, peer, 5, 60)
	for _, tc := range []struct {
		mode abi.RxMode
		want []uint16
	}{
		{0, nil},
		{abi.RxModeUnicast, []uint16{1}},
		{abi.RxModeMulticast, []uint16{3}},
		{abi.RxModeBroadcast, []uint16{5}},
		{abi.RxModeUnicast | abi.RxModeMulticast | abi.RxModeBroadcast, []uint16{1, 3, 5}},
		{abi.RxModeAllMulti, []uint16{3, 4}},
		{abi.RxModePromisc, []uint16{1, 2, 3, 4, 5}},
	} {
		r := upRig(t, 1, 0)
		r.MustAdmin(ethtest.MACFilter(listed))
		r.MustAdmin(ethtest.MACFilter(group))
		r.MustAdmin(ethtest.RxMode(tc.mode))
		for _, f := range [][]byte{ucast, unknown, mcast, mcastUnknown, bcast} {
			r.inject(t, f)
		}
		eventually(t, "arrival of all frames at the port", func() bool { return r.portStat(abi.FramesRxAll) == 5 })
		for _, typ := range tc.want {
			if got := r.Pairs[0].Receive(); be.Uint16(got.Data[12:]) != typ {
				t.Fatalf("mode %#x: frame %d instead of %d", uint16(tc.mode), be.Uint16(got.Data[12:]), typ)
			}
		}
		if r.Pairs[0].RxPending() {
			t.Errorf("mode %#x: more than %v arrived", uint16(tc.mode), tc.want)
		}
		if d := r.lifStat(abi.RxUcastDropPackets) + r.lifStat(abi.RxMcastDropPackets); d != 0 {
			t.Errorf("mode %#x: %d filtered frames counted as drops", uint16(tc.mode), d)
		}
	}
}

// A change of the address is a filter removed and a filter added.
func TestReceive_FollowsTheFilterNotTheStationAddress(t *testing.T) {
	r := upRig(t, 1, 0)
	next := [6]byte{2, 0, 0, 0, 0, 0x77}
	del := ethtest.Op(abi.OpRxFilterDel)
	del.SetRxFilterID(r.MustAdmin(ethtest.MACFilter(station)).FilterID())
	r.MustAdmin(del)
	r.MustAdmin(ethtest.MACFilter(next))
	r.inject(t, frame(station, peer, 1, 60))
	r.inject(t, frame(next, peer, 2, 60))
	if got := r.Pairs[0].Receive(); be.Uint16(got.Data[12:]) != 2 {
		t.Error("a frame to the old address arrived")
	}
}

func tagged(dst [6]byte, tpid, tci, typ uint16, size int) []byte {
	f := frame(dst, peer, tpid, size)
	be.PutUint16(f[14:], tci)
	be.PutUint16(f[16:], typ)
	return f
}

func TestReceive_VLANFilter(t *testing.T) {
	r := upRig(t, 1, abi.FeatureVLANRxFilter)
	r.MustAdmin(ethtest.VLANFilter(5))
	for typ, f := range map[uint16][]byte{
		1: tagged(station, 0x8100, 0x2005, 1, 60), // listed, with a priority
		2: tagged(station, 0x8100, 6, 2, 60),      // not listed
		3: tagged(station, 0x8100, 0xe000, 3, 60), // priority tag
		4: frame(station, peer, 4, 60),            // untagged
		5: tagged(station, 0x88a8, 6, 5, 60),      // not a customer tag
	} {
		before := r.portStat(abi.FramesRxAll)
		r.inject(t, f)
		eventually(t, "arrival", func() bool { return r.portStat(abi.FramesRxAll) == before+1 })
		if typ == 2 {
			continue
		}
		if got := r.Pairs[0].Receive(); !bytes.Equal(got.Data, f) {
			t.Errorf("frame %d arrived as %x", typ, got.Data)
		}
	}
	if r.Pairs[0].RxPending() {
		t.Error("a frame of a VLAN that is not listed arrived")
	}
	r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
	r.inject(t, tagged(station, 0x8100, 6, 2, 60))
	r.Pairs[0].Receive()
}

func TestReceive_StripChecksumAndHash(t *testing.T) {
	r := upRig(t, 1, eth.AllOffloads)
	r.MustAdmin(ethtest.VLANFilter(0x123))
	inner := udp4(peer, station, 99)
	f := append(append(append([]byte{}, inner[:12]...), 0x81, 0x00, 0x61, 0x23), inner[12:]...)
	r.inject(t, f)
	got := r.Pairs[0].Receive()
	if !bytes.Equal(got.Data, inner) {
		t.Fatalf("stripped to %x", got.Data)
	}
	c := got.Comp
	if c.Flags != abi.RxFlagVLAN|abi.RxFlagCsum || c.VLAN != 0x6123 || c.Type != abi.PktIPv4UDP || c.Hash == 0 {
		t.Errorf("completion %+v", c)
	}
	// CHECKSUM_COMPLETE: the sum over all behind the Ethernet header.
	var sum [2]byte
	binary.LittleEndian.PutUint16(sum[:], c.Csum)
	if want := flow.Sum(inner[14:]); c.Csum != want {
		t.Errorf("checksum %#x, want %#x", c.Csum, want)
	}
	if by := r.lifStat(abi.RxUcastBytes); by != 99 {
		t.Errorf("rx_ucast_bytes is %d, want the delivered 99", by)
	}
	if v := r.portStat(abi.FramesRxVLANGood); v != 1 {
		t.Errorf("frames_rx_vlan_good is %d", v)
	}
	// A service tag is not stripped; the sum covers it.
	s := tagged(station, 0x88a8, 5, 0x0800, 61)
	r.inject(t, s)
	if got := r.Pairs[0].Receive(); !bytes.Equal(got.Data, s) || got.Comp.Csum != flow.Sum(s[14:]) {
		t.Errorf("service tag: %+v", got.Comp)
	}
	// Switched off, nothing of it is done any more.
	r.SetFeatures(0)
	r.inject(t, f)
	if got := r.Pairs[0].Receive(); !bytes.Equal(got.Data, f) || got.Comp.Flags != 0 || got.Comp.Hash != 0 {
		t.Errorf("after switching off: %+v", got.Comp)
	}
}

// Without RX_HASH: FNV over the enabled queues in index order.
func TestSteering_FNVOverEnabledQueues(t *testing.T) {
	r := upRig(t, 4, 0)
	check := func(queues ...int) {
		t.Helper()
		for i := range 64 {
			f := udp4(peer, station, 64)
			be.PutUint16(f[36:], uint16(i*977)) // port
			info := flow.Parse(f)
			p := r.Pairs[queues[info.FNV(f)%uint32(len(queues))]]
			r.inject(t, f)
			if got := p.Receive(); !bytes.Equal(got.Data, f) {
				t.Fatalf("flow %d arrived on queue %d as another", i, p.Index)
			}
			p.Fill()
		}
	}
	check(0, 1, 2, 3)
	r.Pairs[1].Disable()
	check(0, 2, 3)
	r.Pairs[3].Disable()
	check(0, 2)
	r.Pairs[1].Enable()
	check(0, 1, 2)
}

func TestSteering_IndirectionTable(t *testing.T) {
	r := upRig(t, 4, eth.AllOffloads)
	key := [abi.RSSKeySize]byte{0x6d, 0x5a, 0x56, 0xda}
	hash := flow.NewToeplitz(key)
	table := r.Alloc(128)
	for i := range 128 {
		r.Bytes(table, 128)[i] = byte(i/7) % 4
	}
	r.SetRSS(abi.RSSAll, table)
	want := bytes.Clone(r.Bytes(table, 128))
	clear(r.Bytes(table, 128)) // the table belongs to the command
	for i := range 64 {
		f := udp4(peer, station, 64)
		be.PutUint16(f[36:], uint16(i*977))
		info := flow.Parse(f)
		h, _ := hash.Hash(f, &info, abi.RSSAll)
		p := r.Pairs[want[h%128]]
		r.inject(t, f)
		if got := p.Receive(); !bytes.Equal(got.Data, f) || got.Comp.Hash != h {
			t.Fatalf("flow %d: hash %#x, want %#x", i, got.Comp.Hash, h)
		}
		p.Fill()
	}
	// Not IP: hash 0, queue 0.
	r.inject(t, frame(station, peer, 0x88b5, 60))
	r.Pairs[0].Receive()
	// Switched off: queue 0.
	r.SetRSS(0, 0)
	r.inject(t, udp4(peer, station, 60))
	r.Pairs[0].Receive()
	// An entry may name a disabled queue: counted, not delivered elsewhere.
	for i := range 128 {
		r.Bytes(table, 128)[i] = 3
	}
	r.SetRSS(abi.RSSAll, table)
	r.Pairs[3].Disable()
	r.inject(t, udp4(peer, station, 60))
	eventually(t, "rx_queue_disabled", func() bool { return r.lifStat(abi.RxQueueDisabled) == 1 })
	// An entry beyond the queues is refused.
	r.Bytes(table, 128)[127] = 4
	c := ethtest.SetAttr(abi.LIFAttrRSS, nil)
	c.SetRSS(abi.RSS{Types: abi.RSSAll, Table: table})
	if got := r.Admin(c).Status(); got != abi.StatusEInval {
		t.Errorf("a table that names queue 4 of 4: %v", got)
	}
}

// Frames that come while the interface is down, or not up yet, are no error.
func TestReceive_DuringIfdownIsNotAnError(t *testing.T) {
	r := upRig(t, 1, 0)
	r.Pairs[0].Disable()
	r.MustAdmin(ethtest.SetAttr(abi.LIFAttrState, []byte{byte(abi.LIFQuiesce)}))
	r.inject(t, frame(allOnes, peer, 1, 60))
	eventually(t, "arrival", func() bool { return r.portStat(abi.FramesRxAll) == 1 })
	if got := r.lifStat(abi.RxQueueDisabled); got != 0 {
		t.Errorf("rx_queue_disabled is %d on a LIF that was quiesced", got)
	}
	r.Pairs[0] = r.InitPair(0, 4, 1500)
	r.Pairs[0].Fill()
	r.inject(t, frame(allOnes, peer, 1, 60))
	eventually(t, "arrival", func() bool { return r.portStat(abi.FramesRxAll) == 2 })
	if got := r.lifStat(abi.RxQueueDisabled); got != 0 {
		t.Errorf("rx_queue_disabled is %d before the queue was enabled", got)
	}
	r.Pairs[0].Enable() // the driver never sends STATE=enable
	r.inject(t, frame(station, peer, 2, 60))
	r.Pairs[0].Receive()
}

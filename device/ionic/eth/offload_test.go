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
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/netport/memport"
)

// offloadRig is an upRig whose wire carries frames with work left in them.
func offloadRig(tb testing.TB, features abi.Features) (*rig, memport.Offloading) {
	tb.Helper()
	near, far := memport.Pair("offload", 1)
	r := newRig(tb, func(c *eth.Config) { c.Offload, c.Port = features, memport.Offloading{End: near} })
	r.wire = far
	r.Probe(features)
	r.Up(1, 8, 1500)
	return r, memport.Offloading{End: far}
}

// offloadFrame waits for the next frame the LIF sent, with what is left to do.
func (r *rig) offloadFrame(tb testing.TB) ([]byte, netport.Offload) {
	tb.Helper()
	b := netport.NewBatch(1, netport.MaxOffload)
	if n, err := r.wire.Receive(0, b); err != nil || n != 1 {
		tb.Fatalf("%d frames, %v", n, err)
	}
	return bytes.Clone(b.Frame(0)), *b.Offload(0)
}

func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// A packet that crosses whole arrives as the very frames that cutting at the
// sender makes, and counts the same at both ends.
func TestOffload_APacketThatCrossesWholeIsCutByTheReceiver(t *testing.T) {
	const fin, psh, ack, cwr = 0x01, 0x08, 0x10, 0x80
	for _, tc := range []struct {
		name  string
		v6    bool
		size  int
		flags abi.TxFlags
	}{
		{"IPv4", false, 10001, 0}, {"IPv6", true, 10001, 0}, {"tagged", false, 10001, abi.TxFlagVLAN},
		{"a multiple of the segment", true, 2800, 0}, {"one segment", false, 1000, 0}, {"the largest", false, 65535 - 52, 0},
	} {
		hdr := tcpHeader(tc.v6, 0xfffffff0, fin|psh|ack|cwr)
		payload := counting(tc.size)
		cut := upRig(t, 1, eth.AllOffloads)
		joined, _ := offloadRig(t, eth.AllOffloads)
		receiver, far := offloadRig(t, 0)
		receiver.MustAdmin(ethtest.RxMode(abi.RxModePromisc))

		segments := len(tso(cut.Pairs[0], hdr, payload, 1400, tc.flags, 5))
		cut.Pairs[0].RingTx()
		tso(joined.Pairs[0], hdr, payload, 1400, tc.flags, 5)
		joined.Pairs[0].RingTx()
		f, o := joined.offloadFrame(t)
		if (o.Segment == netport.SegmentNone) != (segments == 1) || !o.Checksum {
			t.Fatalf("%s: sent with %+v", tc.name, o)
		}
		if err := far.SendOffload(0, f, &o); err != nil {
			t.Fatal(err)
		}
		for i := range segments {
			want, got := cut.wireFrame(t), receiver.Pairs[0].Receive().Data
			if !bytes.Equal(got, want) {
				t.Fatalf("%s: segment %d of %d is\n%x, cut by the sender\n%x", tc.name, i, segments, got[:80], want[:80])
			}
		}
		cut.Pairs[0].AwaitTx()
		joined.Pairs[0].AwaitTx()
		la, pa := cut.lif.Stats()
		lb, pb := joined.lif.Stats()
		if la != lb || pa != pb {
			t.Errorf("%s: the senders count differently", tc.name)
		}
		if got := receiver.lifStat(abi.RxUcastPackets); got != uint64(segments) {
			t.Errorf("%s: the receiver counts %d packets of %d", tc.name, got, segments)
		}
		if got, want := receiver.lifStat(abi.RxUcastBytes), la[abi.TxUcastBytes]; got != want {
			t.Errorf("%s: the receiver counts %d bytes of %d", tc.name, got, want)
		}
		if got, want := receiver.portStat(abi.OctetsRxOK), pa[abi.OctetsTxOK]; got != want {
			t.Errorf("%s: the receiver's port counts %d octets of %d", tc.name, got, want)
		}
	}
}

// What the completion says of a segment is what it would say of a frame.
func TestOffload_CompletionsOfSegments(t *testing.T) {
	for _, strip := range []bool{false, true} {
		features := abi.FeatureRxCsum | abi.FeatureRxHash
		if strip {
			features |= abi.FeatureVLANRxStrip
		}
		sender, _ := offloadRig(t, eth.AllOffloads)
		r, far := offloadRig(t, features)
		r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
		tso(sender.Pairs[0], tcpHeader(false, 1, 0x10), counting(3000), 1400, abi.TxFlagVLAN, 0x2007)
		sender.Pairs[0].RingTx()
		f, o := sender.offloadFrame(t)
		if err := far.SendOffload(0, f, &o); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			got := r.Pairs[0].Receive()
			if sum := flow.Sum(got.Data[14:]); sum != got.Comp.Csum || got.Comp.Flags&abi.RxFlagCsum == 0 {
				t.Errorf("strip %v segment %d: checksum %#x with flags %#x, want %#x", strip, i, got.Comp.Csum, got.Comp.Flags, sum)
			}
			if got.Comp.Type != abi.PktIPv4TCP || got.Comp.Hash == 0 {
				t.Errorf("strip %v segment %d: type %#x, hash %#x", strip, i, got.Comp.Type, got.Comp.Hash)
			}
			if stripped := got.Comp.Flags&abi.RxFlagVLAN != 0; stripped != strip || strip && got.Comp.VLAN != 0x2007 {
				t.Errorf("strip %v segment %d: flags %#x, tag %#x", strip, i, got.Comp.Flags, got.Comp.VLAN)
			}
			if typ := be.Uint16(got.Data[12:]); strip && typ != 0x0800 || !strip && typ != 0x8100 {
				t.Errorf("strip %v segment %d: type %#x", strip, i, typ)
			}
		}
	}
}

func TestOffload_ChecksumIsFinishedByTheReceiver(t *testing.T) {
	for _, size := range []int{60, 61, 1514} {
		sender, _ := offloadRig(t, eth.AllOffloads)
		r, far := offloadRig(t, abi.FeatureRxCsum)
		f := udp4(station, station, size)
		l4 := f[34:]
		pseudo := append(append([]byte{}, f[26:34]...), 0, 17, byte(len(l4)>>8), byte(len(l4)))
		binary.LittleEndian.PutUint16(f[40:], flow.Sum(pseudo))
		sender.Pairs[0].Post(ethtest.Tx{Pieces: [][]byte{f}, Op: abi.TxCsumPartial, CsumStart: 34, CsumOffset: 6})
		sender.Pairs[0].RingTx()
		crossed, o := sender.offloadFrame(t)
		if !bytes.Equal(crossed, f) || o != (netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 6}) {
			t.Fatalf("crossed with %+v", o)
		}
		if err := far.SendOffload(0, crossed, &o); err != nil {
			t.Fatal(err)
		}
		got := r.Pairs[0].Receive()
		if len(got.Data) != size {
			t.Fatalf("%d bytes arrived of %d", len(got.Data), size)
		}
		if sum := flow.Sum(append(pseudo, got.Data[34:]...)); sum != 0xffff {
			t.Errorf("%d bytes: the checksum sums to %#x", size, sum)
		}
		if sum := flow.Sum(got.Data[14:]); sum != got.Comp.Csum {
			t.Errorf("%d bytes: the completion says %#x, want %#x", size, got.Comp.Csum, sum)
		}
	}
}

// What a peer or the host says of a frame is not believed.
func TestOffload_NonsenseIsCountedAndDropped(t *testing.T) {
	tcp := append(tcpHeader(false, 1, 0x10), counting(3000)...)
	udp := udp4(peer, station, 1000)
	small := append(tcpHeader(false, 1, 0x10), 1)
	for _, tc := range []struct {
		name  string
		frame []byte
		o     netport.Offload
		want  abi.PortStat
	}{
		{"segments of UDP", udp, netport.Offload{Segment: netport.SegmentTCP4, Size: 100}, abi.FramesRxBadLength},
		{"segments of IPv6 in IPv4", tcp, netport.Offload{Segment: netport.SegmentTCP6, Size: 1000}, abi.FramesRxBadLength},
		{"segments of no bytes", tcp, netport.Offload{Segment: netport.SegmentTCP4}, abi.FramesRxBadLength},
		{"an unknown segmentation", tcp, netport.Offload{Segment: 9, Size: 1000}, abi.FramesRxBadLength},
		{"segments of nothing", tcp[:66], netport.Offload{Segment: netport.SegmentTCP4, Size: 1000}, abi.FramesRxBadLength},
		{"a header that ends early", tcp[:60], netport.Offload{Segment: netport.SegmentTCP4, Size: 1000}, abi.FramesRxBadLength},
		{"segments larger than a frame", append(tcpHeader(false, 1, 0x10), counting(20000)...),
			netport.Offload{Segment: netport.SegmentTCP4, Size: 15000}, abi.FramesRxTooLong},
		{"a checksum behind the frame", small, netport.Offload{Checksum: true, CsumStart: 64, CsumOffset: 2}, abi.FramesRxBadLength},
		{"a checksum at an odd byte", udp, netport.Offload{Checksum: true, CsumStart: 35, CsumOffset: 6}, abi.FramesRxBadLength},
		{"a checksum far from the headers", udp, netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 900}, abi.FramesRxBadLength},
		{"a frame over the largest", frame(station, peer, 0x88b5, 9300), netport.Offload{Checksum: true, CsumStart: 34, CsumOffset: 6}, abi.FramesRxTooLong},
	} {
		r, far := offloadRig(t, 0)
		r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
		if err := far.SendOffload(0, tc.frame, &tc.o); err != nil {
			t.Fatal(err)
		}
		r.inject(t, frame(station, peer, 0x88b5, 77))
		if got := r.Pairs[0].Receive(); len(got.Data) != 77 {
			t.Errorf("%s: a frame of %d bytes reached the guest", tc.name, len(got.Data))
		}
		if got := r.portStat(tc.want); got != 1 {
			t.Errorf("%s: %s is %d, want 1", tc.name, abi.PortStatNames[tc.want], got)
		}
	}
}

// Pieces that the receiver would cut elsewhere, or a header that is none, are no
// packet.
func TestOffload_BrokenChainsAreCountedOnceAndCompleted(t *testing.T) {
	for name, spoil := range map[string]func(d *abi.TxDesc, i int){
		"another header length":     func(d *abi.TxDesc, _ int) { d.CsumStart = 60 },
		"a header behind the data":  func(d *abi.TxDesc, _ int) { d.CsumStart = 9000 },
		"a segment size of 0":       func(d *abi.TxDesc, _ int) { d.CsumOffset = 0 },
		"smaller than their pieces": func(d *abi.TxDesc, _ int) { d.CsumOffset = 999 },
		"larger than their pieces":  func(d *abi.TxDesc, _ int) { d.CsumOffset = 1001 },
		"an unreadable piece": func(d *abi.TxDesc, i int) {
			if i == 1 {
				d.SGs = 0
			}
		},
	} {
		r, _ := offloadRig(t, eth.AllOffloads)
		p := r.Pairs[0]
		slots := tso(p, tcpHeader(false, 0, 0x10), counting(3000), 1000, 0, 0)
		for i, s := range slots {
			b := r.Bytes(p.TxRing+uint64(s)*16, 16)
			d := abi.DecodeTxDesc(b)
			spoil(&d, i)
			d.Encode(b)
		}
		p.RingTx()
		p.AwaitTx()
		if got := r.lifStat(abi.TxDescDataError); got != 1 {
			t.Errorf("%s: tx_desc_data_error is %d, want 1", name, got)
		}
		p.Send(frame(peer, station, 0x88b5, 60))
		if got, _ := r.offloadFrame(t); len(got) != 60 {
			t.Errorf("%s: a packet of %d bytes left", name, len(got))
		}
	}
}

// A packet of more than 64 KiB has no length an IP header can say.
func TestOffload_OversizedChain(t *testing.T) {
	r, _ := offloadRig(t, eth.AllOffloads)
	p := r.Pairs[0]
	tso(p, tcpHeader(false, 0, 0x10), counting(70000), 1400, 0, 0)
	p.RingTx()
	p.AwaitTx()
	if got := r.lifStat(abi.TxDescDataError); got != 1 {
		t.Errorf("tx_desc_data_error is %d, want 1", got)
	}
}

func FuzzOffloadFrames(f *testing.F) {
	r, far := offloadRig(f, eth.AllOffloads)
	r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
	f.Add(append(tcpHeader(false, 1, 0x91), counting(3000)...), true, uint16(34), uint16(16), uint8(1), uint16(1400))
	f.Add(append(tcpHeader(true, 1, 0x91), counting(3000)...), true, uint16(54), uint16(16), uint8(2), uint16(1400))
	f.Add(tagged(station, 0x8100, 5, 0x86dd, 100), true, uint16(18), uint16(2), uint8(0), uint16(0))
	f.Add(udp4(peer, station, 61), true, uint16(34), uint16(6), uint8(0), uint16(0))
	f.Add([]byte{1}, false, uint16(0), uint16(0), uint8(3), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, csum bool, start, offset uint16, segment uint8, size uint16) {
		r.TB = t
		o := netport.Offload{Checksum: csum, CsumStart: start, CsumOffset: offset, Segment: netport.Segmentation(segment), Size: size}
		before := r.portStat(abi.FramesRxAll)
		if err := far.SendOffload(0, b[:min(len(b), 20000)], &o); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the frame's count", func() bool { return r.portStat(abi.FramesRxAll) > before })
		for r.Pairs[0].RxPending() {
			r.Pairs[0].Receive()
			r.Pairs[0].Fill()
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

var be = binary.BigEndian

func TestTransmit_FrameReachesTheWireAsWritten(t *testing.T) {
	r := upRig(t, 2, 0)
	for _, size := range []int{14, 42, 60, 1514, 9216} {
		f := frame(peer, station, 0x88b5, size)
		r.Pairs[1].Send(f)
		if got := r.wireFrame(t); !bytes.Equal(got, f) {
			t.Fatalf("%d bytes became %d: %x", size, len(got), got[:min(len(got), 64)])
		}
		r.Pairs[1].AwaitTx()
	}
}

func TestTransmit_GathersElements(t *testing.T) {
	r := upRig(t, 1, abi.FeatureTxSG)
	f := frame(peer, station, 0x88b5, 1514)
	var pieces [][]byte
	for i := 0; i < 15; i++ {
		pieces = append(pieces, f[i*90:(i+1)*90])
	}
	pieces = append(pieces, f[15*90:])
	r.Pairs[0].Post(ethtest.Tx{Pieces: pieces})
	r.Pairs[0].RingTx()
	if got := r.wireFrame(t); !bytes.Equal(got, f) {
		t.Fatalf("gathered %x", got)
	}
	r.Pairs[0].AwaitTx()
}

func TestTransmit_ManyDescriptorsByOneDoorbell(t *testing.T) {
	r := upRig(t, 1, 0)
	p := r.Pairs[0]
	for lap := range 5 { // 5 * 200 passes the ring's end of 256 several times
		for i := range 200 {
			p.Post(ethtest.Tx{Pieces: [][]byte{frame(peer, station, uint16(lap), 60+i)}})
		}
		p.RingTx()
		p.RingTx() // the driver rings again on purpose
		for i := range 200 {
			if got := r.wireFrame(t); len(got) != 60+i || be.Uint16(got[12:]) != uint16(lap) {
				t.Fatalf("lap %d frame %d: %d bytes of type %#x", lap, i, len(got), got[12:14])
			}
		}
		p.AwaitTx()
	}
}

// The driver's poll retires at most 256 transmit completions and then unmasks;
// the rest must bring another interrupt.
func TestTransmit_MoreCompletionsThanAPollTakes(t *testing.T) {
	r := newRig(t, nil)
	r.Probe(0)
	r.Up(1, 10, 1500)
	p := r.Pairs[0]
	r.Mask(p.Vec)
	for i := range 300 {
		p.Send(frame(peer, station, 0x88b5, 60))
		r.wireFrame(t)
		eventually(t, "the completion", func() bool { return p.Retire() > 0 })
		if p.Outstanding() != 0 {
			t.Fatalf("descriptor %d is not completed", i)
		}
	}
	// 300 completions, no interrupt yet. Play the poll: take 256, unmask.
	if r.Fired(p.Vec) != 0 {
		t.Fatal("a masked vector fired")
	}
	r.Unmask(p.Vec)
	if r.Fired(p.Vec) != 1 {
		t.Fatalf("%d interrupts at the unmask", r.Fired(p.Vec))
	}
	r.Return(p.Vec, 256)
	if r.Fired(p.Vec) != 2 {
		t.Fatalf("%d interrupts after a poll that left 44 completions, want 2", r.Fired(p.Vec))
	}
	r.Return(p.Vec, 44)
	if r.Fired(p.Vec) != 2 {
		t.Fatalf("%d interrupts after the last completion, want 2", r.Fired(p.Vec))
	}
}

func TestTransmit_ChecksumAndTag(t *testing.T) {
	r := upRig(t, 1, eth.AllOffloads)
	f := udp4(station, peer, 101)
	l4 := f[34:]
	pseudo := append(append([]byte{}, f[26:34]...), 0, 17, byte(len(l4)>>8), byte(len(l4)))
	binary.LittleEndian.PutUint16(f[40:], flow.Sum(pseudo))
	r.Pairs[0].Post(ethtest.Tx{
		Pieces: [][]byte{f[:20], f[20:]}, Op: abi.TxCsumPartial, CsumStart: 34, CsumOffset: 6,
		Flags: abi.TxFlagVLAN, VLAN: 0x6005,
	})
	r.Pairs[0].RingTx()
	got := r.wireFrame(t)
	r.Pairs[0].AwaitTx()
	if be.Uint16(got[12:]) != 0x8100 || be.Uint16(got[14:]) != 0x6005 || be.Uint16(got[16:]) != 0x0800 {
		t.Fatalf("tag is %x", got[12:18])
	}
	if sum := flow.Sum(append(pseudo, got[38:]...)); sum != 0xffff {
		t.Fatalf("receiver's checksum %#x, want 0xffff", sum)
	}
	if v, p3 := r.portStat(abi.FramesTxVLAN), r.portStat(abi.FramesTxPri0+3); v != 1 || p3 != 1 {
		t.Errorf("frames_tx_vlan %d, frames_tx_pri_3 %d, want 1 and 1", v, p3)
	}
}

func TestTransmit_ErrorsAreCountedAndCompleted(t *testing.T) {
	const nowhere = 0x7000_0000_0000
	ok := abi.TxDesc{Addr: ethtest.Base, Len: 60}
	for _, tc := range []struct {
		name string
		desc func(d abi.TxDesc) abi.TxDesc
		want abi.LIFStat
	}{
		{"length 0", func(d abi.TxDesc) abi.TxDesc { d.Len = 0; return d }, abi.TxDescDataError},
		{"runt", func(d abi.TxDesc) abi.TxDesc { d.Len = 13; return d }, abi.TxDescDataError},
		{"larger than the largest frame", func(d abi.TxDesc) abi.TxDesc { d.Len = 9217; return d }, abi.TxDescDataError},
		{"hardware checksum", func(d abi.TxDesc) abi.TxDesc { d.Op = abi.TxCsumHW; return d }, abi.TxDescDataError},
		{"opcode", func(d abi.TxDesc) abi.TxDesc { d.Op = 9; return d }, abi.TxDescDataError},
		{"segmentation that was not granted", func(d abi.TxDesc) abi.TxDesc { d.Op, d.Flags = abi.TxTSO, 0xc; return d }, abi.TxDescDataError},
		{"checksum outside the frame", func(d abi.TxDesc) abi.TxDesc { d.Op, d.CsumStart, d.CsumOffset = abi.TxCsumPartial, 50, 9; return d }, abi.TxDescDataError},
		{"element of length 0", func(d abi.TxDesc) abi.TxDesc { d.SGs = 1; return d }, abi.TxDescDataError},
		{"unmapped buffer", func(d abi.TxDesc) abi.TxDesc { d.Addr = nowhere; return d }, abi.TxDMAError},
		{"buffer that leaves memory", func(d abi.TxDesc) abi.TxDesc { d.Addr = ethtest.Base + 64<<20 - 59; return d }, abi.TxDMAError},
	} {
		r := upRig(t, 1, abi.FeatureTxSG|abi.FeatureTxCsum)
		p := r.Pairs[0]
		p.PostRaw(tc.desc(ok))
		p.RingTx()
		p.AwaitTx()
		if got := r.lifStat(tc.want); got != 1 {
			t.Errorf("%s: %s is %d, want 1", tc.name, abi.LIFStatNames[tc.want], got)
		}
		p.Send(frame(peer, station, 0x88b5, 77))
		if got := r.wireFrame(t); len(got) != 77 {
			t.Errorf("%s: the next frame has %d bytes", tc.name, len(got))
		}
	}
}

func TestTransmit_RefusedByTheHost(t *testing.T) {
	r := upRig(t, 1, 0)
	r.wire.Close()
	for _, f := range [][]byte{
		frame(peer, station, 0x88b5, 60), frame(allOnes, station, 0x88b5, 70), frame(group, station, 0x88b5, 80),
	} {
		r.Pairs[0].Send(f)
		r.Pairs[0].AwaitTx()
	}
	for s, want := range map[abi.LIFStat]uint64{
		abi.TxUcastDropPackets: 1, abi.TxUcastDropBytes: 60, abi.TxBcastDropPackets: 1, abi.TxBcastDropBytes: 70,
		abi.TxMcastDropPackets: 1, abi.TxMcastDropBytes: 80, abi.TxUcastPackets: 0,
	} {
		if got := r.lifStat(s); got != want {
			t.Errorf("%s is %d, want %d", abi.LIFStatNames[s], got, want)
		}
	}
}

func TestTransmit_WithoutAWireCountsAndDiscards(t *testing.T) {
	r := newRig(t, func(c *eth.Config) { c.Port = nil })
	r.Probe(0)
	r.Up(1, 6, 1500)
	r.Pairs[0].Send(frame(peer, station, 0x88b5, 60))
	r.Pairs[0].AwaitTx()
	if got := r.lifStat(abi.TxUcastPackets); got != 1 {
		t.Errorf("tx_ucast_packets is %d, want 1", got)
	}
}

func TestDoorbell_OnAQueueThatWasNeverInitialised(t *testing.T) {
	r := upRig(t, 2, 0)
	for _, qid := range []uint32{2, 4, 0xffffff} {
		r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(qid, 1))
	}
	if got := r.lifStat(abi.TxQueueDisabled); got != 3 {
		t.Errorf("tx_queue_disabled is %d, want 3", got)
	}
	r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(3, 1))
	r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(0, 1)|1<<16)
	r.lif.Doorbell(abi.QTypeNotify, 1)
	r.lif.Doorbell(abi.QTypeAdmin, abi.MakeDoorbell(7, 3))
	if r.lifStat(abi.RxQueueError) != 1 || r.lifStat(abi.TxQueueError) != 1 {
		t.Error("strange doorbells are not counted")
	}
}

// tso cuts a TCP packet as the driver does: one descriptor for each segment.
func tso(p *ethtest.Pair, hdr, payload []byte, mss int, flags abi.TxFlags, vlan uint16) (slots []uint32) {
	for off := 0; off < len(payload); off += mss {
		piece := payload[off:min(off+mss, len(payload))]
		tx := ethtest.Tx{
			Op: abi.TxTSO, Flags: flags, VLAN: vlan, CsumStart: uint16(len(hdr)), CsumOffset: uint16(mss),
			Pieces: [][]byte{piece[:len(piece)/2], piece[len(piece)/2:]},
		}
		if off == 0 {
			tx.Flags |= abi.TxFlagSOT
			tx.Pieces = append([][]byte{hdr}, tx.Pieces...)
		}
		if off+mss >= len(payload) {
			tx.Flags |= abi.TxFlagEOT
		}
		slots = append(slots, p.Post(tx))
	}
	return slots
}

// tcpHeader returns Ethernet, IP and TCP headers as the driver leaves them for
// segmentation: lengths and IP checksum 0, TCP checksum the pseudo header's sum
// without a length.
func tcpHeader(v6 bool, seq uint32, flags byte) []byte {
	h := append(append([]byte{}, peer[:]...), station[:]...)
	var pseudo []byte
	if v6 {
		h = append(h, 0x86, 0xdd)
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, 6, 64
		ip[8], ip[23], ip[24], ip[39] = 0xfe, 1, 0xfe, 2
		h = append(h, ip...)
		pseudo = append(append([]byte{}, ip[8:]...), 0, 6)
	} else {
		h = append(h, 0x08, 0x00)
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, 6
		ip[4], ip[5], ip[6] = 0xff, 0xfe, 0x40 // the identification wraps
		copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
		h = append(h, ip...)
		pseudo = append(append([]byte{}, ip[12:]...), 0, 6)
	}
	tcp := make([]byte, 32)
	be.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13] = 0x80, flags
	binary.LittleEndian.PutUint16(tcp[16:], flow.Sum(pseudo))
	return append(h, tcp...)
}

func TestTSO_SegmentsAreSoundPackets(t *testing.T) {
	const fin, psh, ack, cwr = 0x01, 0x08, 0x10, 0x80
	for _, v6 := range []bool{false, true} {
		r := upRig(t, 1, eth.AllOffloads)
		hdr := tcpHeader(v6, 0xfffffff0, fin|psh|ack|cwr)
		payload := make([]byte, 4001)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		slots := tso(r.Pairs[0], hdr, payload, 1400, 0, 0)
		r.Pairs[0].RingTx()
		var joined []byte
		for i := range slots {
			f := r.wireFrame(t)
			info := flow.Parse(f)
			ip, tcp := f[info.L3:], f[info.L4:]
			if v6 {
				if got := int(be.Uint16(ip[4:])); got != len(ip)-40 {
					t.Fatalf("payload length %d of %d", got, len(ip)-40)
				}
			} else {
				if got := int(be.Uint16(ip[2:])); got != len(ip) {
					t.Fatalf("total length %d of %d", got, len(ip))
				}
				if flow.Sum(ip[:20]) != 0xffff {
					t.Fatal("IPv4 header checksum is wrong")
				}
				if id := be.Uint16(ip[4:]); id != 0xfffe+uint16(i) {
					t.Fatalf("segment %d has identification %#x", i, id)
				}
			}
			src := info.Source(f)
			pseudo := append(append([]byte{}, f[info.L3+12-map[bool]int{true: 4}[v6]:][:2*len(src)]...), 0, 6,
				byte(len(tcp)>>8), byte(len(tcp)))
			if sum := flow.Sum(append(pseudo, tcp...)); sum != 0xffff {
				t.Fatalf("IPv6 %v segment %d: TCP checksum sums to %#x", v6, i, sum)
			}
			want := byte(ack)
			if i == 0 {
				want |= cwr
			}
			if i == len(slots)-1 {
				want |= fin | psh
			}
			if tcp[13] != want {
				t.Errorf("segment %d has flags %#x, want %#x", i, tcp[13], want)
			}
			if seq := be.Uint32(tcp[4:]); seq != 0xfffffff0+uint32(len(joined)) {
				t.Errorf("segment %d has sequence %#x", i, seq)
			}
			joined = append(joined, tcp[32:]...)
		}
		if !bytes.Equal(joined, payload) {
			t.Error("the payload changed")
		}
		r.Pairs[0].AwaitTx()
	}
}

// A chain is completed at its end only: the driver frees all of it with its
// first descriptor.
func TestTSO_NoCompletionBeforeTheEndOfAChain(t *testing.T) {
	r := upRig(t, 1, eth.AllOffloads)
	p := r.Pairs[0]
	p.Send(frame(peer, station, 0x88b5, 60))
	r.wireFrame(t)
	p.AwaitTx()
	hdr := tcpHeader(false, 0, 0x10)
	slots := tso(p, hdr, make([]byte, 3000), 1000, 0, 0)
	// Ring behind the second of three descriptors only.
	r.lif.Doorbell(abi.QTypeTx, abi.MakeDoorbell(0, uint16(slots[1]+1)))
	r.wireFrame(t)
	r.wireFrame(t)
	if p.Retire() != 0 {
		t.Fatal("a completion came before the end of the chain")
	}
	p.RingTx()
	r.wireFrame(t)
	p.AwaitTx()
}

func TestTSO_BrokenChainsAreCountedOnceAndCompleted(t *testing.T) {
	hdr := tcpHeader(false, 0, 0x10)
	for name, spoil := range map[string]func(d *abi.TxDesc){
		"header longer than the first buffer": func(d *abi.TxDesc) { d.CsumStart = 2000 },
		"header too short for TCP":            func(d *abi.TxDesc) { d.CsumStart = 40 },
		"header of 0":                         func(d *abi.TxDesc) { d.CsumStart = 0 },
	} {
		r := upRig(t, 1, eth.AllOffloads)
		p := r.Pairs[0]
		slots := tso(p, hdr, make([]byte, 3000), 1000, 0, 0)
		for _, s := range slots {
			b := r.Bytes(p.TxRing+uint64(s)*16, 16)
			d := abi.DecodeTxDesc(b)
			spoil(&d)
			d.Encode(b)
		}
		p.RingTx()
		p.AwaitTx()
		if got := r.lifStat(abi.TxDescDataError); got != 1 {
			t.Errorf("%s: tx_desc_data_error is %d, want 1", name, got)
		}
		p.Send(frame(peer, station, 0x88b5, 60))
		if got := r.wireFrame(t); len(got) != 60 {
			t.Errorf("%s: a segment of %d bytes left", name, len(got))
		}
	}
}

func TestTSO_TagsEverySegment(t *testing.T) {
	r := upRig(t, 1, eth.AllOffloads)
	tso(r.Pairs[0], tcpHeader(true, 0, 0x10), make([]byte, 2500), 1000, abi.TxFlagVLAN, 7)
	r.Pairs[0].RingTx()
	for i := range 3 {
		if f := r.wireFrame(t); be.Uint16(f[12:]) != 0x8100 || be.Uint16(f[14:]) != 7 {
			t.Errorf("segment %d is not tagged: %x", i, f[:18])
		}
	}
	r.Pairs[0].AwaitTx()
}

func TestObserver_HearsAddressesAndFilters(t *testing.T) {
	r := upRig(t, 1, 0)
	other := [6]byte{2, 0, 0, 0, 0, 9}
	id := r.MustAdmin(ethtest.MACFilter(other)).FilterID()
	r.MustAdmin(ethtest.MACFilter(group)) // multicast: no address of the guest
	for range 3 {
		for _, src := range [][6]byte{station, other, peer} {
			r.Pairs[0].Send(udp4(src, peer, 60))
			r.wireFrame(t)
		}
	}
	r.Pairs[0].AwaitTx()
	del := ethtest.Op(abi.OpRxFilterDel)
	del.SetRxFilterID(id)
	r.MustAdmin(del)
	want := []string{
		"filter 020000000001 true", "filter 020000000009 true",
		"020000000001 10.0.0.1 ip", "020000000009 10.0.0.1 ip",
		"filter 020000000009 false",
	}
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	r.MustDevCmd(ethtest.Op(abi.OpLIFReset), nil)
	if got := r.all(); got[len(got)-1] != "filter 020000000001 false" {
		t.Errorf("LIF_RESET was heard as %q", got)
	}
}

// udp4 returns an IPv4 UDP frame 10.0.0.1:1000 to 10.0.0.2:2000 of size bytes.
func udp4(src, dst [6]byte, size int) []byte {
	f := frame(dst, src, 0x0800, size)
	ip := f[14:]
	clear(ip[:28])
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	be.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	be.PutUint16(ip[20:], 1000)
	be.PutUint16(ip[22:], 2000)
	be.PutUint16(ip[24:], uint16(len(ip)-20))
	return f
}

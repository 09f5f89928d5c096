// SPDX-License-Identifier: Apache-2.0

package ethtest

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// Buffer is one receive buffer: its first piece and its elements, each of at
// most a page.
type Buffer struct {
	Addr []uint64
	Len  []int
}

// Pair is a queue pair.
type Pair struct {
	d     *Driver
	Index int
	Vec   int
	N     uint32

	TxRing, TxComp, TxSG uint64
	txHead, txComp       uint32
	txTail               uint32
	txColor              bool
	txBuf                uint64 // one piece for each slot

	RxRing, RxComp, RxSG uint64
	rxHead, rxTail       uint32
	rxColor              bool
	Buffers              []Buffer
}

// txSlotBytes is the memory for the frame of one slot.
const txSlotBytes = 16 << 10

// Received is a frame as the driver got it.
type Received struct {
	Comp abi.RxCompletion
	Data []byte
}

// Up is ionic_open: n queue pairs of 2^log2 entries, buffers for mtu, filters
// and enabling. rss sets the indirection table if RX_HASH was granted.
func (d *Driver) Up(n int, log2 uint8, mtu int) {
	d.TB.Helper()
	d.Pairs = nil
	for i := range n {
		p := d.InitPair(i, log2, mtu)
		d.Pairs = append(d.Pairs, p)
	}
	if d.Granted&abi.FeatureRxHash != 0 {
		table := d.Alloc(128)
		for i := range 128 {
			d.Bytes(table, 128)[i] = byte(i % n)
		}
		d.SetRSS(abi.RSSAll, table)
	}
	d.MustAdmin(RxMode(abi.RxModeUnicast | abi.RxModeMulticast | abi.RxModeBroadcast))
	for _, p := range d.Pairs {
		p.Fill()
		p.Enable()
	}
}

// SetRSS is LIF_SETATTR RSS with a key of zeros but its first byte.
func (d *Driver) SetRSS(types abi.RSSTypes, table uint64) {
	d.TB.Helper()
	c := SetAttr(abi.LIFAttrRSS, nil)
	c.SetRSS(abi.RSS{Types: types, Key: [abi.RSSKeySize]byte{0x6d, 0x5a, 0x56, 0xda}, Table: table})
	d.MustAdmin(c)
}

// InitPair is Q_INIT of transmit and receive queue i.
func (d *Driver) InitPair(i int, log2 uint8, mtu int) *Pair {
	d.TB.Helper()
	n := 1 << log2
	p := &Pair{d: d, Index: i, Vec: i + 1, N: uint32(n), txColor: true, rxColor: true}
	p.TxRing, p.TxComp, p.TxSG = d.Alloc(16*n), d.Alloc(16*n), d.Alloc(256*n)
	p.RxRing, p.RxComp, p.RxSG = d.Alloc(16*n), d.Alloc(16*n), d.Alloc(128*n)
	p.txBuf = d.Alloc(txSlotBytes * n)
	d.Clean(p.Vec)
	flags := abi.QFlagIRQ | abi.QFlagSG
	comp := d.MustAdmin(abi.QInit{
		Type: abi.QTypeTx, Version: 1, Index: uint32(i), Intr: uint16(p.Vec), Flags: flags, RingLog2: log2,
		Ring: p.TxRing, CQ: p.TxComp, SG: p.TxSG,
	}.Command())
	if comp.HWIndex() != uint32(i) || comp.HWType() != abi.QTypeTx {
		d.TB.Fatalf("transmit queue %d is %d of type %v", i, comp.HWIndex(), comp.HWType())
	}
	d.MustAdmin(abi.QInit{
		Type: abi.QTypeRx, Index: uint32(i), Intr: uint16(p.Vec), Flags: flags, RingLog2: log2,
		Ring: p.RxRing, CQ: p.RxComp, SG: p.RxSG,
	}.Command())
	for range n {
		var b Buffer
		for left := mtu + 18; left > 0; left -= abi.PageSize {
			b.Addr = append(b.Addr, d.Alloc(abi.PageSize))
			b.Len = append(b.Len, min(left, abi.PageSize))
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p
}

// control is Q_CONTROL.
func (p *Pair) control(t abi.QType, o abi.QOper) {
	p.d.TB.Helper()
	p.d.MustAdmin(abi.QControl{Type: t, Index: uint32(p.Index), Oper: o}.Command())
}

// Enable is ionic_qcq_enable of both queues.
func (p *Pair) Enable() {
	p.d.TB.Helper()
	p.control(abi.QTypeRx, abi.QEnable)
	p.d.Unmask(p.Vec)
	p.control(abi.QTypeTx, abi.QEnable)
}

// Disable is ionic_qcq_disable of both queues.
func (p *Pair) Disable() {
	p.d.TB.Helper()
	p.control(abi.QTypeTx, abi.QDisable)
	p.d.Mask(p.Vec)
	p.control(abi.QTypeRx, abi.QDisable)
}

// Fill posts every free receive buffer and rings once.
func (p *Pair) Fill() {
	for (p.rxHead+1)%p.N != p.rxTail {
		p.PostBuffer(p.Buffers[p.rxHead])
	}
	p.RingRx()
}

// PostBuffer writes one receive descriptor without ringing.
func (p *Pair) PostBuffer(b Buffer) {
	slot := p.rxHead
	desc := abi.RxDesc{Op: abi.RxSimple, Len: uint16(b.Len[0]), Addr: b.Addr[0]}
	sg := p.d.Bytes(p.RxSG+uint64(slot)*abi.RxSGDescSize, abi.RxSGDescSize)
	clear(sg)
	for i := 1; i < len(b.Addr); i++ {
		desc.Op = abi.RxSG
		abi.SGElem{Addr: b.Addr[i], Len: uint16(b.Len[i])}.Encode(sg, i-1)
	}
	desc.Encode(p.d.Bytes(p.RxRing+uint64(slot)*abi.RxDescSize, abi.RxDescSize))
	p.rxHead = (slot + 1) % p.N
}

// RingRx rings the receive doorbell.
func (p *Pair) RingRx() {
	p.d.Dev.Doorbell(abi.QTypeRx, abi.MakeDoorbell(uint32(p.Index), uint16(p.rxHead)))
}

// RxPending reports whether a receive completion waits.
func (p *Pair) RxPending() bool {
	return p.d.Load(p.RxComp+uint64(p.rxTail)*16+8)&abi.ColorBit != 0 == p.rxColor
}

// Receive waits for one frame.
func (p *Pair) Receive() Received {
	p.d.TB.Helper()
	p.d.await(p.Vec, "receive completion", p.RxPending)
	r := p.take()
	p.d.Return(p.Vec, 1)
	return r
}

// take consumes a completion that is there, by the driver's rules.
func (p *Pair) take() Received {
	p.d.TB.Helper()
	slot := p.rxTail
	c, _ := abi.DecodeRxCompletion(p.d.Bytes(p.RxComp+uint64(slot)*16, 16))
	if c.Index != uint16(slot) {
		p.d.TB.Fatalf("receive completion %d says %d: the queue is dead", slot, c.Index)
	}
	p.rxTail = (slot + 1) % p.N
	if p.rxTail == 0 {
		p.rxColor = !p.rxColor
	}
	r := Received{Comp: c}
	if c.Status != 0 {
		return r
	}
	b, left := p.Buffers[slot], int(c.Len)
	for i := 0; i <= int(c.SGs) && left > 0; i++ {
		n := min(left, b.Len[i])
		r.Data = append(r.Data, p.d.Bytes(b.Addr[i], n)...)
		left -= n
	}
	return r
}

// Tx is a frame to transmit: data in pieces, each a buffer of its own.
type Tx struct {
	Pieces                [][]byte
	Op                    abi.TxOpcode
	Flags                 abi.TxFlags
	VLAN                  uint16
	CsumStart, CsumOffset uint16
}

// Post writes a transmit descriptor without ringing and returns its slot.
func (p *Pair) Post(t Tx) uint32 {
	p.d.TB.Helper()
	slot := p.txHead
	at := p.txBuf + uint64(slot)*txSlotBytes
	var addrs []uint64
	for _, b := range t.Pieces {
		copy(p.d.Bytes(at, len(b)), b)
		addrs = append(addrs, at)
		at += uint64(len(b)) + 3 // any alignment
	}
	desc := abi.TxDesc{
		Addr: addrs[0], Len: uint16(len(t.Pieces[0])), Op: t.Op, Flags: t.Flags, SGs: uint8(len(addrs) - 1),
		VLAN: t.VLAN, CsumStart: t.CsumStart, CsumOffset: t.CsumOffset,
	}
	sg := p.d.Bytes(p.TxSG+uint64(slot)*abi.TxSGDescSize, abi.TxSGDescSize)
	for i := 1; i < len(addrs); i++ {
		abi.SGElem{Addr: addrs[i], Len: uint16(len(t.Pieces[i]))}.Encode(sg, i-1)
	}
	desc.Encode(p.d.Bytes(p.TxRing+uint64(slot)*abi.TxDescSize, abi.TxDescSize))
	p.txHead = (slot + 1) % p.N
	return slot
}

// PostRaw writes a descriptor as it is.
func (p *Pair) PostRaw(d abi.TxDesc) uint32 {
	slot := p.txHead
	d.Encode(p.d.Bytes(p.TxRing+uint64(slot)*abi.TxDescSize, abi.TxDescSize))
	p.txHead = (slot + 1) % p.N
	return slot
}

// RingTx rings the transmit doorbell.
func (p *Pair) RingTx() {
	p.d.Dev.Doorbell(abi.QTypeTx, abi.MakeDoorbell(uint32(p.Index), uint16(p.txHead)))
}

// Send posts one frame and rings.
func (p *Pair) Send(frame []byte) {
	p.d.TB.Helper()
	p.Post(Tx{Pieces: [][]byte{frame}})
	p.RingTx()
}

// Retire consumes transmit completions that are there and returns how many
// entries it took.
func (p *Pair) Retire() (entries int) {
	p.d.TB.Helper()
	for p.d.Load(p.TxComp+uint64(p.txComp)*16+8)&abi.ColorBit != 0 == p.txColor {
		c := abi.Completion(p.d.Bytes(p.TxComp+uint64(p.txComp)*16, 16))
		if done := uint32(c.Index()); done >= p.N || (done-p.txTail)%p.N >= (p.txHead-p.txTail)%p.N {
			p.d.TB.Fatalf("transmit completion of slot %d, outstanding are %d to %d", done, p.txTail, p.txHead)
		}
		p.txTail = (uint32(c.Index()) + 1) % p.N
		p.txComp = (p.txComp + 1) % p.N
		if p.txComp == 0 {
			p.txColor = !p.txColor
		}
		entries++
	}
	return entries
}

// Outstanding returns how many descriptors the device has not completed.
func (p *Pair) Outstanding() int { return int((p.txHead - p.txTail) % p.N) }

// AwaitTx waits until every posted descriptor is completed.
func (p *Pair) AwaitTx() {
	p.d.TB.Helper()
	p.d.await(p.Vec, "transmit completion", func() bool {
		if n := p.Retire(); n > 0 {
			p.d.Return(p.Vec, n)
		}
		return p.Outstanding() == 0
	})
}

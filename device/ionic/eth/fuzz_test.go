// SPDX-License-Identifier: Apache-2.0

package eth_test

import (
	"bytes"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
)

// fuzzRig is one rig for all inputs of a fuzz target: making one for each would
// be most of the work.
func fuzzRig(f *testing.F) *rig {
	r := newRig(f, func(c *eth.Config) { c.Offload = eth.AllOffloads; c.RDMA = &fakeRDMA{} })
	return r
}

// alive proves that the device still serves a driver after a reset.
func (r *rig) alive(t *testing.T) {
	t.Helper()
	r.lif.Reset()
	g := ethtest.NewDriver(t, lifDevice{r.lif, r.bank}, 4<<20)
	r.bank.SetSignal(g.Signal)
	r.lif.Attach(g.Mem)
	g.Probe(0)
	r.lif.Attach(r.Mem)
	r.bank.SetSignal(r.Signal)
}

func FuzzDevCommand(f *testing.F) {
	r := fuzzRig(f)
	seed := func(c abi.Command) { f.Add(c[:], []byte{}) }
	for op := range 256 {
		seed(ethtest.Op(abi.Opcode(op)))
	}
	seed(abi.QInit{Type: abi.QTypeTx, Version: 1, RingLog2: 4, Flags: 5, Ring: ethtest.Base, CQ: ethtest.Base}.Command())
	seed(ethtest.SetAttr(abi.LIFAttrRSS, []byte{0x3f}))
	seed(ethtest.MACFilter(station))
	f.Add([]byte{byte(abi.OpPortInit), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x23, 1}, []byte{0xa0, 0x86, 1, 0, 0x28, 0x23})
	f.Fuzz(func(t *testing.T, b, data []byte) {
		r.TB = t
		// Alone on a fresh device, and after LIF_INIT.
		for range 2 {
			var cmd abi.Command
			copy(cmd[:], b)
			clear(r.Window[:])
			comp := r.DevCmd(cmd, data[:min(len(data), abi.CmdDataSize)])
			if comp[15] != 0 {
				t.Fatal("a device command's completion has a colour")
			}
			init := ethtest.Op(abi.OpLIFInit)
			init.SetInfoAddress(ethtest.Base + 32<<20)
			r.MustDevCmd(init, nil)
		}
		r.alive(t)
	})
}

func FuzzAdminQueue(f *testing.F) {
	r := fuzzRig(f)
	for op := range 64 {
		c := ethtest.Op(abi.Opcode(op))
		f.Add(c[:], uint16(1))
	}
	c := qcontrol(abi.QTypeRx, 1, abi.QEnable)
	f.Add(append(c[:], c[:]...), uint16(2))
	f.Add(c[:], uint16(0xffff))
	f.Fuzz(func(t *testing.T, b []byte, prod uint16) {
		r.TB = t
		init := ethtest.Op(abi.OpLIFInit)
		init.SetInfoAddress(ethtest.Base + 32<<20)
		r.MustDevCmd(init, nil)
		ring, comp := uint64(ethtest.Base), uint64(ethtest.Base+16<<10)
		r.MustDevCmd(abi.QInit{
			Type: abi.QTypeAdmin, Flags: 3, RingLog2: 4, Ring: ring, CQ: comp,
		}.Command(), nil)
		copy(r.Bytes(ring, 1024), b)
		clear(r.Bytes(comp, 256))
		r.lif.Doorbell(abi.QTypeAdmin, abi.MakeDoorbell(0, prod))
		n := int(prod & 15)
		eventually(t, "completion of every descriptor", func() bool {
			return n == 0 || r.Load(comp+uint64(n-1)*16+8)&abi.ColorBit != 0
		})
		for i := range n {
			c := abi.Completion(r.Bytes(comp+uint64(i)*16, 16))
			if c.Index() != uint16(i) {
				t.Fatalf("completion %d has index %d", i, c.Index())
			}
		}
		r.lif.Reset()
		clear(r.Bytes(ring, 1024))
	})
}

func FuzzTransmitDescriptors(f *testing.F) {
	r := fuzzRig(f)
	desc := make([]byte, 16)
	abi.TxDesc{Addr: ethtest.Base, Len: 60}.Encode(desc)
	f.Add(desc, []byte{}, frame(peer, station, 0x0800, 60))
	abi.TxDesc{Addr: ethtest.Base, Len: 60, SGs: 1, Op: abi.TxCsumPartial, CsumStart: 34, CsumOffset: 16}.Encode(desc)
	sg := make([]byte, 16)
	abi.SGElem{Addr: ethtest.Base, Len: 100}.Encode(sg, 0)
	f.Add(bytes.Clone(desc), sg, udp4(station, peer, 60))
	abi.TxDesc{Addr: ethtest.Base, Len: 200, Op: abi.TxTSO, Flags: 0xc, CsumStart: 66, CsumOffset: 100}.Encode(desc)
	f.Add(append(bytes.Clone(desc), desc...), sg, tcpHeader(false, 1, 1))
	f.Fuzz(func(t *testing.T, descs, sgs, data []byte) {
		r.TB = t
		r.Probe(eth.AllOffloads)
		p := r.InitPair(0, 4, 1500)
		r.MustAdmin(qcontrol(abi.QTypeTx, 0, abi.QEnable))
		copy(r.Bytes(ethtest.Base, 4096), data)
		copy(r.Bytes(p.TxSG, 4096), sgs)
		n := min(len(descs)/16, 15)
		for i := range n {
			p.PostRaw(abi.DecodeTxDesc(descs[i*16:]))
		}
		p.RingTx()
		eventually(t, "end of the work", func() bool { p.Retire(); return p.Outstanding() == 0 || openChain(descs, n) })
		r.wire.Discard()
		r.restart()
	})
}

// openChain reports whether the descriptors may end inside a TSO chain, which is
// rightly not completed.
func openChain(descs []byte, n int) bool {
	for i := range n {
		if abi.DecodeTxDesc(descs[i*16:]).Op == abi.TxTSO {
			return true
		}
	}
	return false
}

func FuzzReceiveDescriptors(f *testing.F) {
	r := fuzzRig(f)
	desc := make([]byte, 16)
	abi.RxDesc{Len: 1518, Addr: ethtest.Base}.Encode(desc)
	f.Add(desc, []byte{}, uint16(60))
	abi.RxDesc{Op: abi.RxSG, Len: 100, Addr: ethtest.Base}.Encode(desc)
	sg := make([]byte, 128)
	for i := range 8 {
		abi.SGElem{Addr: ethtest.Base + uint64(i)*512, Len: 100}.Encode(sg, i)
	}
	f.Add(bytes.Clone(desc), sg, uint16(700))
	f.Fuzz(func(t *testing.T, descs, sgs []byte, size uint16) {
		r.TB = t
		r.Probe(0)
		p := r.InitPair(0, 4, 100)
		r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
		r.MustAdmin(qcontrol(abi.QTypeRx, 0, abi.QEnable))
		copy(r.Bytes(p.RxSG, 2048), sgs)
		n := min(len(descs)/16, 15)
		for i := range n {
			b := abi.DecodeRxDesc(descs[i*16:])
			b.Encode(r.Bytes(p.RxRing+uint64(i)*16, 16))
		}
		r.lif.Doorbell(abi.QTypeRx, abi.MakeDoorbell(0, uint16(n)))
		for range n {
			r.inject(t, frame(station, peer, 1, 14+int(size)%9000))
		}
		for i := range n {
			at := p.RxComp + uint64(i)*16
			eventually(t, "a completion", func() bool { return r.Load(at+8)&abi.ColorBit != 0 })
			if c, _ := abi.DecodeRxCompletion(r.Bytes(at, 16)); int(c.Index) != i {
				t.Fatalf("completion %d has index %d", i, c.Index)
			}
		}
		r.restart()
	})
}

func FuzzWireFrames(f *testing.F) {
	r := fuzzRig(f)
	r.Probe(eth.AllOffloads)
	r.Up(4, 4, 1500)
	r.MustAdmin(ethtest.RxMode(abi.RxModePromisc))
	f.Add(udp4(peer, station, 60))
	f.Add(tagged(station, 0x8100, 5, 0x86dd, 100))
	f.Add(tcpHeader(true, 1, 2))
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{})
	f.Add(make([]byte, 9300))
	f.Fuzz(func(t *testing.T, b []byte) {
		r.TB = t
		_, before := r.lif.Stats()
		r.inject(t, b)
		eventually(t, "the frame's count", func() bool {
			_, now := r.lif.Stats()
			return now[abi.FramesRxAll] == before[abi.FramesRxAll]+1
		})
		for _, p := range r.Pairs {
			for p.RxPending() {
				p.Receive()
			}
			p.Fill()
		}
	})
}

// restart forgets the guest's memory, so that inputs do not use it up.
func (r *rig) restart() {
	r.lif.Reset()
	r.PortInfo = 0
	r.Rewind()
}

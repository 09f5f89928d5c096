// SPDX-License-Identifier: Apache-2.0

package ionic

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/profile"
)

func TestRegisters_DeviceInfo(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Serial = "ERNIC-0001"
		c.Profile.AsicType, c.Profile.AsicRev = profile.AsicSalina, 7
	})
	if s := r.read32(abi.RegSignature); s != 0x44455649 {
		t.Errorf("signature %#x", s)
	}
	for off, want := range map[uint64]byte{abi.RegVersion: 1, abi.RegAsicType: 4, abi.RegAsicRev: 7, abi.RegFWStatus: 1} {
		if got := r.read(t, off, 1)[0]; got != want {
			t.Errorf("register %#x is %d, want %d", off, got, want)
		}
	}
	if fw := string(bytes.TrimRight(r.read(t, abi.RegFWVersion, 32), "\x00")); fw != "rocm-ernic-1.0" {
		t.Errorf("firmware version %q", fw)
	}
	if sn := string(bytes.TrimRight(r.read(t, abi.RegSerial, 32), "\x00")); sn != "ERNIC-0001" {
		t.Errorf("serial number %q", sn)
	}
	if longest := newRig(t, func(c *Config) { c.Serial = "a serial number of more than thirty-one characters" }); longest.read(t, abi.RegSerial+31, 1)[0] != 0 {
		t.Error("a long serial number is not terminated")
	}
}

// The driver takes a heartbeat that stands still and is not 0 for a dead device.
func TestRegisters_HeartbeatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		last := r.read32(abi.RegFWHeartbeat)
		for range 5 {
			time.Sleep(10 * time.Second)
			now := r.read32(abi.RegFWHeartbeat)
			if now == last {
				t.Fatalf("heartbeat stays %d for 10 s", now)
			}
			last = now
		}
		r.nic.Close()
	})
}

func TestRegisters_AnyAccessWidth(t *testing.T) {
	r := newRig(t, nil)
	r.probe()
	for _, base := range []uint64{0, abi.RegCmd - 8, abi.RegIntrCtrl} {
		whole := r.read(t, base, 64)
		for _, n := range []int{1, 2, 4, 8} {
			for off := 0; off+n <= 64; off += n {
				if got := r.read(t, base+uint64(off), n); base+uint64(off) != abi.RegFWHeartbeat && !bytes.Equal(got, whole[off:off+n]) {
					t.Errorf("%d bytes at %#x: %x, want %x", n, base+uint64(off), got, whole[off:off+n])
				}
			}
		}
	}
	for _, hole := range []uint64{0x4c, 0x400, 0x408, 0x858, 0x1000, 0x1ffc, 0x2000 + 32*32, 0x7ffc, 0x8000, 0xc000, 0xfff8} {
		r.write32(hole&^3, 0xffffffff)
		if hole != 0x858 && r.read32(hole&^3) != 0 {
			t.Errorf("hole %#x reads %#x", hole, r.read32(hole&^3))
		}
	}
	if err := r.nic.ReadBAR(0, 0x10000, make([]byte, 1)); err == nil {
		t.Error("a read behind BAR0 succeeded")
	}
}

// A CPU with fast short rep stosb clears the command with 64 one-byte writes.
func TestDevCmd_ByteWiseCleanChangesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.probe()
	r.MustDevCmd(ethtest.Op(abi.OpPortIdentify), nil)
	data, comp := r.read(t, abi.RegCmdData, 1912), r.read(t, abi.RegCmdComp, 16)
	r.write32(abi.RegCmdDoorbell, 0)
	for i := range uint64(64) {
		if err := r.nic.WriteBAR(0, abi.RegCmd+i, []byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(data, r.read(t, abi.RegCmdData, 1912)) || !bytes.Equal(comp, r.read(t, abi.RegCmdComp, 16)) {
		t.Error("the clean-up changed completion or data")
	}
	if r.read32(abi.RegCmdDone)&1 == 0 {
		t.Error("the clean-up took done back")
	}
}

func TestDevCmd_RingsAgainWithoutRewriting(t *testing.T) {
	r := newRig(t, nil)
	r.config(command, memSpace|busMaster)
	cmd := ethtest.Op(abi.OpIdentify)
	cmd[1] = 2
	for i := range uint64(64) {
		r.nic.WriteBAR(0, abi.RegCmd+i, cmd[i:i+1])
	}
	for range 3 {
		r.write32(abi.RegCmdDone, 0)
		r.write32(abi.RegCmdDoorbell, 1)
		if r.read32(abi.RegCmdDone) != 1 || r.read(t, abi.RegCmdData, 1)[0] != 2 {
			t.Fatal("the command did not run again")
		}
	}
}

func TestTraffic_ThroughTheBARs(t *testing.T) {
	r := newRig(t, nil)
	r.probe()
	r.Up(2, 6, 1500)
	f := append(append(append([]byte{}, peer[:]...), station[:]...), make([]byte, 60)...)
	r.Pairs[1].Send(f)
	b := netport.NewBatch(1, 2048)
	if n, err := r.wire.Receive(0, b); n != 1 || err != nil || !bytes.Equal(b.Frame(0), f) {
		t.Fatalf("%d frames, %v: %x", n, err, b.Frame(0))
	}
	r.Pairs[1].AwaitTx()
}

func TestDoorbell_InTwoHalves(t *testing.T) {
	rdma := &fakeRDMA{}
	r := newRig(t, withRDMA(rdma))
	half := func(off uint64, v uint32) {
		var p [4]byte
		le.PutUint32(p[:], v)
		r.nic.WriteBAR(2, off, p[:])
	}
	const slot = 3*4096 + 5*8
	half(slot, 0x11223344)
	half(slot+4, 0x55667788)
	half(slot+4, 1)      // a high half alone
	half(slot, 2)        // a low half ...
	half(slot+8+4, 3)    // ... and the high half of another slot
	half(4096*1023, 4)   // replaced by
	half(4096*1023+8, 5) // another low half
	want := []bell{{3, 5, 0x5566778811223344}}
	if !slices.Equal(rdma.bells, want) {
		t.Errorf("doorbells %x, want %x", rdma.bells, want)
	}
	if got := r.nic.StrangeDoorbells(); got != 2 {
		t.Errorf("%d strange doorbells, want 2", got)
	}
	r.nic.WriteBAR(2, slot+1, make([]byte, 8))
	r.nic.WriteBAR(2, slot, make([]byte, 2))
	if got := r.nic.StrangeDoorbells(); got != 4 {
		t.Errorf("%d strange doorbells, want 4", got)
	}
}

func withRDMA(h RDMA) func(*Config) {
	return func(c *Config) {
		c.RDMA = func(b *intr.Bank) (RDMA, error) {
			if f, ok := h.(*fakeRDMA); ok {
				f.bank = b
			}
			return h, nil
		}
	}
}

func TestDoorbell_GoesToItsHalf(t *testing.T) {
	rdma := &fakeRDMA{}
	r := newRig(t, withRDMA(rdma))
	r.probe()
	r.Up(1, 4, 1500)
	ring := func(pid, qtype, val uint64) {
		var p [8]byte
		le.PutUint64(p[:], val)
		r.nic.WriteBAR(2, pid*4096+8*qtype, p[:])
	}
	ring(0, 4, 1)
	ring(1023, 7, 2)
	ring(1, 3, 3) // an Ethernet type on a user's page
	ring(0, 511, 4)
	want := []bell{{0, 4, 1}, {1023, 7, 2}}
	if !slices.Equal(rdma.bells, want) {
		t.Errorf("doorbells of the RDMA half %v, want %v", rdma.bells, want)
	}
	if got := r.nic.StrangeDoorbells(); got != 2 {
		t.Errorf("%d strange doorbells, want 2", got)
	}
}

func TestRDMA_SharesBankAndMemory(t *testing.T) {
	rdma := &fakeRDMA{}
	r := newRig(t, withRDMA(rdma))
	if rdma.bank != r.nic.Bank() || rdma.mem != r.Mem {
		t.Error("the RDMA half has another bank or memory")
	}
	r.detach()
	r.attach(t)
	if rdma.mem != r.Mem {
		t.Error("the RDMA half was not given the memory of the new guest")
	}
}

func TestRDMA_BusMasterPausesOrResets(t *testing.T) {
	plain := &fakeRDMA{}
	r := newRig(t, withRDMA(plain))
	r.config(command, busMaster)
	before := plain.resets
	r.config(command, 0)
	if plain.resets == before {
		t.Error("an RDMA half that cannot pause was not reset")
	}
	pausing := &pausingRDMA{}
	r = newRig(t, withRDMA(pausing))
	r.config(command, busMaster)
	before = pausing.resets
	r.config(command, 0)
	if pausing.resets != before || !slices.Equal(pausing.master, []bool{true, false}) {
		t.Errorf("%d resets, bus master %v", pausing.resets-before, pausing.master)
	}
}

// echo 1 > reset arrives as a write to configuration space; the driver then
// clears bus mastering, probes again and gives the same blocks.
func TestFLR_ForgetsTheGuest(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Profile.AsicType = profile.AsicSalina })
	r.probe()
	r.Up(1, 4, 1500)
	r.config(devCtl, startFLR)
	r.RAM()[0] = 0xdb
	before := bytes.Clone(r.RAM())
	f := append(append(append([]byte{}, station[:]...), peer[:]...), make([]byte, 60)...)
	r.wire.Send(0, f)
	r.Doorbell(abi.QTypeTx, abi.MakeDoorbell(0, 5))
	time.Sleep(5 * time.Millisecond)
	if !bytes.Equal(before, r.RAM()) {
		t.Fatal("memory was written after a function-level reset")
	}
	if r.read32(abi.RegIntrCtrl+abi.IntrMask) != 1 {
		t.Error("vector 0 is not masked after a function-level reset")
	}
	if got := r.DevCmd(ethtest.GetAttr(abi.LIFAttrMAC), nil).Status(); got != abi.StatusEPerm {
		t.Errorf("the LIF is still there: %v", got)
	}
	r.probe()
	r.Up(1, 4, 1500)
	r.wire.Send(0, f)
	r.Pairs[0].Receive()
}

func TestFLR_NotOfferedWhereItKillsTheDriver(t *testing.T) {
	for asic, want := range map[profile.AsicType]bool{
		profile.AsicNone: false, profile.AsicCapri: true, profile.AsicElba: false, profile.AsicGiglio: true, profile.AsicSalina: true,
	} {
		r := newRig(t, func(c *Config) { c.Profile.AsicType = asic })
		var devCap [4]byte
		if err := r.nic.ReadConfig(devCtl-4, devCap[:]); err != nil {
			t.Fatal(err)
		}
		if got := le.Uint32(devCap[:])&(1<<28) != 0; got != want {
			t.Errorf("ASIC type %d: function-level reset offered: %v, want %v", asic, got, want)
		}
	}
}

func TestNew_RefusesABadProfileAndAddress(t *testing.T) {
	p := profile.Compat()
	p.EthQueues = 65
	if _, err := New(Config{Profile: p, MAC: station}); err == nil {
		t.Error("65 queue pairs were accepted")
	}
	if _, err := New(Config{Profile: profile.Compat()}); err == nil {
		t.Error("no MAC address was accepted")
	}
}

func BenchmarkRegisterRead(b *testing.B) {
	r := newRig(b, nil)
	var p [4]byte
	b.ReportAllocs()
	for b.Loop() {
		r.nic.ReadBAR(0, abi.RegCmdData, p[:])
	}
}

func BenchmarkRegisterWrite(b *testing.B) {
	r := newRig(b, nil)
	var p [4]byte
	b.ReportAllocs()
	for b.Loop() {
		r.nic.WriteBAR(0, abi.RegCmdData, p[:])
	}
}

func BenchmarkDoorbellWrite(b *testing.B) {
	r := newRig(b, nil)
	r.probe()
	r.Up(1, 6, 1500)
	p := []byte{5, 0, 0, 0, 0, 0, 0, 0}
	b.ReportAllocs()
	for b.Loop() {
		r.nic.WriteBAR(2, 8*uint64(abi.QTypeRx), p)
	}
}

func FuzzBARWrites(f *testing.F) {
	r := newRig(f, nil)
	f.Add([]byte{0, 8, 4, 1, 0, 0, 0})
	f.Add([]byte{8, 8, 2, 40, 0, 0, 8, 4, 1, 0, 0, 0})
	f.Add([]byte{4, 0x20, 4, 0, 0, 0, 0, 8, 0x20, 4, 1, 0, 1, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		r.TB = t
		r.config(command, memSpace|busMaster)
		for len(script) >= 3 {
			off, n := uint64(script[0])|uint64(script[1])<<8, 1+int(script[2])%8
			bar := int(script[2]>>6) & 2
			script = script[3:]
			if len(script) < n {
				break
			}
			if err := r.nic.WriteBAR(bar, off, script[:n]); (err != nil) != (bar == 0 && off+uint64(n) > abi.BAR0Size) {
				t.Fatalf("write of %d bytes at %#x of BAR%d: %v", n, off, bar, err)
			}
			script = script[n:]
		}
		r.config(command, 0)
		r.probe()
		r.config(devCtl, startFLR)
		r.PortInfo = 0
		r.Rewind()
	})
}

// SPDX-License-Identifier: Apache-2.0

package ionic

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/ethtest"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/netport/memport"
	"github.com/ernic-dev/ernic/device/profile"
)

var (
	station = [6]byte{2, 0, 0, 0, 0, 1}
	peer    = [6]byte{2, 0, 0, 0, 0, 2}
)

// rig is a NIC driven through its BARs and its configuration space.
type rig struct {
	*ethtest.Driver
	nic  *NIC
	wire *memport.End
}

func newRig(tb testing.TB, tune func(*Config)) *rig {
	tb.Helper()
	near, far := memport.Pair("rig", 1)
	c := Config{Profile: profile.Compat(), MAC: station, Port: near, Log: zerolog.Nop()}
	if tune != nil {
		tune(&c)
	}
	n, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	r := &rig{nic: n, wire: far}
	r.attach(tb)
	return r
}

// attach begins a new guest.
func (r *rig) attach(tb testing.TB) {
	tb.Helper()
	r.Driver = ethtest.NewDriver(tb, r, 32<<20)
	hooks{r.nic}.Attach(r.Mem, r.Signal)
}

func (r *rig) detach() { hooks{r.nic}.Detach() }

func (r *rig) read(tb testing.TB, off uint64, n int) []byte {
	tb.Helper()
	p := make([]byte, n)
	if err := r.nic.ReadBAR(0, off, p); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (r *rig) read32(off uint64) uint32 {
	var p [4]byte
	if err := r.nic.ReadBAR(0, off, p[:]); err != nil {
		r.TB.Fatal(err)
	}
	return le.Uint32(p[:])
}

func (r *rig) write32(off uint64, v uint32) {
	var p [4]byte
	le.PutUint32(p[:], v)
	if err := r.nic.WriteBAR(0, off, p[:]); err != nil {
		r.TB.Fatal(err)
	}
}

// DevCommand implements [ethtest.Device] as ionic_dev_cmd_go and wait do it.
func (r *rig) DevCommand(cmd *abi.Command, comp *abi.Completion, data []byte) {
	for i := 0; i < len(data); i += 4 {
		r.write32(abi.RegCmdData+uint64(i), le.Uint32(data[i:]))
	}
	for i := 0; i < len(cmd); i += 4 {
		r.write32(abi.RegCmd+uint64(i), le.Uint32(cmd[i:]))
	}
	r.write32(abi.RegCmdDone, 0)
	r.write32(abi.RegCmdDoorbell, 1)
	if r.read32(abi.RegCmdDone)&1 == 0 {
		r.TB.Fatalf("%v is not done", cmd.Opcode())
	}
	if r.read(r.TB, abi.RegCmdComp, 1)[0] == 0 { // ionic_dev_cmd_clean
		r.write32(abi.RegCmdDoorbell, 0)
		for i := range uint64(8) {
			if err := r.nic.WriteBAR(0, abi.RegCmd+8*i, make([]byte, 8)); err != nil {
				r.TB.Fatal(err)
			}
		}
	}
	copy(comp[:], r.read(r.TB, abi.RegCmdComp, 16))
	for i := 0; i < len(data); i += 4 {
		le.PutUint32(data[i:], r.read32(abi.RegCmdData+uint64(i)))
	}
}

// Doorbell implements [ethtest.Device].
func (r *rig) Doorbell(qtype abi.QType, d abi.Doorbell) {
	var p [8]byte
	le.PutUint64(p[:], uint64(d))
	if err := r.nic.WriteBAR(2, 8*uint64(qtype), p[:]); err != nil {
		r.TB.Fatal(err)
	}
}

// WriteIntr implements [ethtest.Device].
func (r *rig) WriteIntr(off uint64, val uint32) { r.write32(abi.RegIntrCtrl+off, val) }

// ReadIntr implements [ethtest.Device].
func (r *rig) ReadIntr(off uint64) uint32 { return r.read32(abi.RegIntrCtrl + off) }

// config writes a 16-bit register of configuration space.
func (r *rig) config(off uint64, v uint16) {
	if err := r.nic.WriteConfig(off, []byte{byte(v), byte(v >> 8)}); err != nil {
		r.TB.Fatal(err)
	}
}

// Registers of configuration space: COMMAND, and DEVCTL of the PCI Express
// capability at 0x60.
const (
	command   = 0x04
	devCtl    = 0x68
	memSpace  = 0x0002
	busMaster = 0x0004
	startFLR  = 0x8000
)

// probe is the driver's probe: RESET comes before bus mastering.
func (r *rig) probe() {
	r.config(command, memSpace)
	r.MustDevCmd(ethtest.Op(abi.OpReset), nil)
	r.config(command, memSpace|busMaster)
	r.Identify()
	r.InitPort()
	r.InitLIF(0)
}

// fakeRDMA records what the NIC does with it.
type fakeRDMA struct {
	bank   *intr.Bank
	mem    *guestmem.Space
	resets int
	bells  []bell
}

type bell struct {
	pid   uint32
	qtype uint8
	val   uint64
}

func (f *fakeRDMA) Identity([]byte)                        {}
func (f *fakeRDMA) Command(*[64]byte, *[16]byte) (s uint8) { return 0 }
func (f *fakeRDMA) Reset()                                 { f.resets++ }
func (f *fakeRDMA) StatsInto([]byte)                       {}
func (f *fakeRDMA) Attach(mem *guestmem.Space)             { f.mem = mem }
func (f *fakeRDMA) Doorbell(pid uint32, qt uint8, val uint64) {
	f.bells = append(f.bells, bell{pid, qt, val})
}

// pausingRDMA can pause.
type pausingRDMA struct {
	fakeRDMA
	master []bool
}

func (p *pausingRDMA) BusMaster(on bool) { p.master = append(p.master, on) }

// SPDX-License-Identifier: Apache-2.0

package ethtest

import (
	"encoding/binary"
	"testing"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

var le = binary.LittleEndian

// Device is what the driver drives: a LIF, or a NIC behind its registers.
type Device interface {
	// DevCommand executes a device command; data is the side data window.
	DevCommand(cmd *abi.Command, comp *abi.Completion, data []byte)
	// Doorbell rings a doorbell of the kernel's page.
	Doorbell(qtype abi.QType, d abi.Doorbell)
	// WriteIntr writes a register of the interrupt control bank.
	WriteIntr(off uint64, val uint32)
	// ReadIntr reads one.
	ReadIntr(off uint64) uint32
}

// AdminVector is the vector of the admin and notify queue; queue pair i has
// vector i+1.
const AdminVector = 0

// Ring sizes of the admin and notify queue, log2.
const (
	adminLog2  = 4
	notifyLog2 = 6
)

// Driver drives a device as the Linux driver does.
type Driver struct {
	*Guest
	Dev Device

	PortInfo, LIFInfo uint64
	Notify            uint64 // first event
	MAC               [6]byte
	Granted           abi.Features
	Window            [abi.CmdDataSize]byte

	admin struct {
		ring, comp uint64
		head       uint32
		color      bool
	}
	Pairs []*Pair
}

// NewDriver returns a driver for dev in a new guest of size bytes.
func NewDriver(tb testing.TB, dev Device, size int) *Driver {
	return &Driver{Guest: NewGuest(tb, size), Dev: dev}
}

// DevCmd executes a device command and returns its completion. data, if any, is
// copied to the window first.
func (d *Driver) DevCmd(cmd abi.Command, data []byte) *abi.Completion {
	copy(d.Window[:], data)
	var comp abi.Completion
	d.Dev.DevCommand(&cmd, &comp, d.Window[:])
	return &comp
}

// MustDevCmd is DevCmd that has to succeed.
func (d *Driver) MustDevCmd(cmd abi.Command, data []byte) *abi.Completion {
	d.TB.Helper()
	comp := d.DevCmd(cmd, data)
	if s := comp.Status(); s != abi.StatusOK {
		d.TB.Fatalf("%v: %v", cmd.Opcode(), s)
	}
	return comp
}

// Op returns a command that is only an opcode.
func Op(o abi.Opcode) (c abi.Command) {
	c.SetOpcode(o)
	return c
}

// SetAttr returns LIF_SETATTR with a value.
func SetAttr(a abi.LIFAttr, value []byte) (c abi.Command) {
	c.SetOpcode(abi.OpLIFSetAttr)
	c[1] = byte(a)
	copy(c.Value(), value)
	return c
}

// GetAttr returns LIF_GETATTR.
func GetAttr(a abi.LIFAttr) (c abi.Command) {
	c.SetOpcode(abi.OpLIFGetAttr)
	c[1] = byte(a)
	return c
}

// PortSetAttr returns PORT_SETATTR with a value.
func PortSetAttr(a abi.PortAttr, value uint32) (c abi.Command) {
	c.SetOpcode(abi.OpPortSetAttr)
	c[2] = byte(a)
	le.PutUint32(c[4:], value)
	return c
}

// MACFilter returns RX_FILTER_ADD of an address.
func MACFilter(mac [6]byte) abi.Command {
	return abi.RxFilter{Match: abi.RxMatchMAC, MAC: mac}.Command()
}

// VLANFilter returns RX_FILTER_ADD of a VLAN.
func VLANFilter(vid uint16) abi.Command {
	return abi.RxFilter{Match: abi.RxMatchVLAN, VLAN: vid}.Command()
}

// RxMode returns RX_MODE_SET.
func RxMode(m abi.RxMode) (c abi.Command) {
	c.SetOpcode(abi.OpRxModeSet)
	c.SetRxMode(m)
	return c
}

func (d *Driver) intr(vec int, reg uint64) uint64 { return uint64(vec)*abi.IntrCtrlSize + reg }

// Mask masks a vector.
func (d *Driver) Mask(vec int) { d.Dev.WriteIntr(d.intr(vec, abi.IntrMask), 1) }

// Unmask unmasks a vector.
func (d *Driver) Unmask(vec int) { d.Dev.WriteIntr(d.intr(vec, abi.IntrMask), 0) }

// Return gives back n credits and unmasks, as the end of a poll does.
func (d *Driver) Return(vec, n int) {
	d.Dev.WriteIntr(d.intr(vec, abi.IntrCredits), uint32(n)|abi.CreditsUnmask|abi.CreditsResetCoal)
}

// await waits for done. An interrupt that is about something else is
// acknowledged without work, as a poll that finds nothing does.
func (d *Driver) await(vec int, what string, done func() bool) {
	d.TB.Helper()
	d.Await(vec, what, func() { d.Return(vec, 0) }, done)
}

// Clean is ionic_intr_clean and the set-up of a vector.
func (d *Driver) Clean(vec int) {
	c := d.Dev.ReadIntr(d.intr(vec, abi.IntrCredits))
	d.Dev.WriteIntr(d.intr(vec, abi.IntrCredits), c|abi.CreditsResetCoal)
	d.Dev.WriteIntr(d.intr(vec, abi.IntrMaskAssert), 1)
}

// Probe is ionic_probe from the first RESET to the registration of the netdev,
// asking for features.
func (d *Driver) Probe(features abi.Features) {
	d.TB.Helper()
	d.MustDevCmd(Op(abi.OpReset), nil)
	d.Identify()
	d.InitPort()
	d.InitLIF(features)
}

// Identify is IDENTIFY, LIF_IDENTIFY, INIT and the Q_IDENTIFYs.
func (d *Driver) Identify() {
	d.TB.Helper()
	id := Op(abi.OpIdentify)
	id[1] = 2
	d.MustDevCmd(id, nil)
	lif := Op(abi.OpLIFIdentify)
	lif[2] = 1
	d.MustDevCmd(lif, nil)
	d.MustDevCmd(Op(abi.OpInit), nil)
	for _, q := range []struct {
		t abi.QType
		v byte
	}{{abi.QTypeAdmin, 0}, {abi.QTypeNotify, 0}, {abi.QTypeRx, 2}, {abi.QTypeTx, 3}} {
		c := Op(abi.OpQIdentify)
		c[4], c[5] = byte(q.t), q.v
		d.MustDevCmd(c, nil)
	}
}

// InitPort is PORT_IDENTIFY, PORT_INIT and PORT_SETATTR STATE.
func (d *Driver) InitPort() {
	d.TB.Helper()
	d.MustDevCmd(Op(abi.OpPortIdentify), nil)
	config := append([]byte{}, abi.PortIdentity(d.Window[:]).Config()...)
	if d.PortInfo == 0 {
		d.PortInfo = d.Alloc(abi.PortInfoSize)
	}
	init := Op(abi.OpPortInit)
	init.SetInfoAddress(d.PortInfo)
	d.MustDevCmd(init, config)
	d.MustDevCmd(PortSetAttr(abi.PortAttrState, uint32(abi.PortAdminUp)), nil)
}

// InitLIF is LIF_INIT to the filter of the station address.
func (d *Driver) InitLIF(features abi.Features) {
	d.TB.Helper()
	d.LIFInfo = d.Alloc(abi.LIFInfoSize)
	init := Op(abi.OpLIFInit)
	init.SetInfoAddress(d.LIFInfo)
	d.Clean(AdminVector)
	d.MustDevCmd(init, nil)

	d.admin.ring, d.admin.comp = d.Alloc(64<<adminLog2), d.Alloc(16<<adminLog2)
	d.admin.head, d.admin.color = 0, true
	comp := d.MustDevCmd(abi.QInit{
		Type: abi.QTypeAdmin, Intr: AdminVector, Flags: abi.QFlagIRQ | abi.QFlagEnable, RingLog2: adminLog2,
		Ring: d.admin.ring, CQ: d.admin.comp,
	}.Command(), nil)
	if comp.HWIndex() != 0 || comp.HWType() != abi.QTypeAdmin {
		d.TB.Fatalf("admin queue is %d of type %v", comp.HWIndex(), comp.HWType())
	}
	d.Unmask(AdminVector)

	notify := d.Alloc(abi.PageSize + 64<<notifyLog2)
	d.MustAdmin(abi.QInit{
		Type: abi.QTypeNotify, Intr: AdminVector, Flags: abi.QFlagIRQ | abi.QFlagEnable, RingLog2: notifyLog2,
		Ring: notify,
	}.Command())
	d.Notify = notify + abi.PageSize
	d.SetFeatures(features)
	comp = d.MustAdmin(GetAttr(abi.LIFAttrMAC))
	d.MAC = [6]byte(comp.Value())
	d.MustAdmin(MACFilter(d.MAC))
}

// SetFeatures is LIF_SETATTR FEATURES.
func (d *Driver) SetFeatures(f abi.Features) {
	d.TB.Helper()
	var v [8]byte
	le.PutUint64(v[:], uint64(f))
	comp := d.MustAdmin(SetAttr(abi.LIFAttrFeatures, v[:]))
	d.Granted = f & comp.Features()
}

// Admin posts a command to the admin queue and waits for its completion.
func (d *Driver) Admin(cmd abi.Command) *abi.Completion {
	d.TB.Helper()
	slot := d.admin.head
	copy(d.Bytes(d.admin.ring+uint64(slot)*64, 64), cmd[:])
	d.admin.head = (slot + 1) % (1 << adminLog2)
	d.Dev.Doorbell(abi.QTypeAdmin, abi.MakeDoorbell(0, uint16(d.admin.head)))
	at := d.admin.comp + uint64(slot)*16
	d.await(AdminVector, "completion of "+cmd.Opcode().String(), func() bool {
		return d.Load(at+8)&abi.ColorBit != 0 == d.admin.color
	})
	done := abi.Completion(d.Bytes(at, 16))
	comp := &done
	if d.admin.head == 0 {
		d.admin.color = !d.admin.color
	}
	if comp.Index() != uint16(slot) {
		d.TB.Fatalf("completion of slot %d says %d", slot, comp.Index())
	}
	d.Return(AdminVector, 1)
	return comp
}

// MustAdmin is Admin that has to succeed.
func (d *Driver) MustAdmin(cmd abi.Command) *abi.Completion {
	d.TB.Helper()
	comp := d.Admin(cmd)
	if s := comp.Status(); s != abi.StatusOK {
		d.TB.Fatalf("%v: %v", cmd.Opcode(), s)
	}
	return comp
}

// LIFStat reads a counter as the driver does.
func (d *Driver) LIFStat(s abi.LIFStat) uint64 {
	return d.Load(d.LIFInfo + abi.LIFInfoStats + 8*uint64(s))
}

// PortStat reads a counter as the driver does.
func (d *Driver) PortStat(s abi.PortStat) uint64 {
	return d.Load(d.PortInfo + abi.PortInfoStats + 8*uint64(s))
}

// Carrier is the driver's carrier.
func (d *Driver) Carrier() bool {
	return d.Load(d.LIFInfo+abi.LIFInfoEID+8)>>16&0xffff == uint64(abi.PortOperUp)
}

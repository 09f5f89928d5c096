// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"fmt"

	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

// BAR addresses that the guest's firmware would choose; only their alignment matters.
const (
	bar0Address = 0xfe00_0000
	bar2Address = 0xfe40_0000
)

// PCI identity that the driver binds to (ionic_bus_pci.c).
const (
	vendorPensando = 0x1dd8
	devicePF       = 0x1002
)

// Probe does what ionic_probe does, from the PCI function to the registered
// netdev. The client must have been realized as dev.
func Probe(c *vfioclient.Client, dev *vfioclient.Device, o Options) (*Device, error) {
	if o.CPUs == 0 {
		o.CPUs = 4
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Features == 0 {
		o.Features = ^uint64(0)
	}
	if o.Slack == 0 {
		o.Slack = 1
	}
	d := &Device{client: c, pci: dev, mem: newMemory(c.RAM()), options: o}
	d.state.failed = make(chan struct{})
	d.io = mmio{c, d.Fail}
	c.AtClose(d.handlers.Wait)
	go func() {
		<-c.Done()
		d.Fail(fmt.Errorf("driver: the device is gone: %w", c.Err()))
	}()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"bind", d.bind},
		{"set up registers", d.readInfo},
		{"reset", d.reset},
		{"set bus master", d.setBusMaster},
		{"identify device", d.identify},
		{"identify LIF", d.identifyLIF},
		{"initialise device", func() error { return d.simple(opInit) }},
		{"set up port", d.setUpPort},
		{"size LIF", d.sizeLIF},
		{"enable MSI-X", d.enableMSIX},
		{"identify LIF again", d.identifyLIF},
		{"identify queues", d.identifyQueues},
		{"initialise LIF", d.initLIF},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("driver: probe: %s: %w", step.what, err)
		}
	}
	return d, d.Err()
}

func (d *Device) bind() error {
	cfg := d.pci.Config
	if v, id := le.Uint16(cfg), le.Uint16(cfg[2:]); v != vendorPensando || id != devicePF {
		return fmt.Errorf("function is %04x:%04x, want %04x:%04x", v, id, vendorPensando, devicePF)
	}
	if d.pci.MSIX == nil {
		return fmt.Errorf("no MSI-X capability: cannot get interrupts")
	}
	if d.pci.Regions[regsBAR].Size < 0x8000 || d.pci.Regions[bellBAR].Size < PageSize {
		return fmt.Errorf("BAR0 has %#x bytes, BAR2 %#x", d.pci.Regions[regsBAR].Size, d.pci.Regions[bellBAR].Size)
	}
	for off, v := range map[uint64]uint64{0x10: bar0Address, 0x18: bar2Address} {
		if err := d.client.WriteRegion(vfioclient.RegionConfig, off, le.AppendUint64(nil, v)); err != nil {
			return err
		}
	}
	return d.setCommand(0x0002)
}

func (d *Device) setCommand(v uint16) error {
	return d.client.WriteRegion(vfioclient.RegionConfig, 4, le.AppendUint16(nil, v))
}

func (d *Device) setBusMaster() error { return d.setCommand(0x0406) }

func (d *Device) readInfo() error {
	if v := d.io.read32(regSignature); v != signature {
		return fmt.Errorf("incompatible firmware signature %#x", v)
	}
	id := &d.identity
	id.asicType, id.asicRev = d.io.read8(regASICType), d.io.read8(regASICRev)
	var fw, serial [32]byte
	d.io.copyFrom(regFWVersion, fw[:])
	d.io.copyFrom(regSerial, serial[:])
	id.fwVersion, id.serial = text(fw[:31]), text(serial[:31])
	if len(id.fwVersion) == 0 || id.fwVersion[0] < ' ' || id.fwVersion[0] > '~' {
		return fmt.Errorf("firmware version %q is not printable", id.fwVersion)
	}
	if s := d.io.read8(regFWStatus); s == 0xff || s&1 == 0 {
		return fmt.Errorf("firmware status %#x: not running", s)
	}
	return d.Err()
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// simple runs a command that has nothing but an opcode.
func (d *Device) simple(op uint8) error {
	_, err := d.deviceCommand(&Command{op}, nil, nil)
	return err
}

func (d *Device) reset() error { return d.simple(opReset) }

func (d *Device) identify() error {
	in, out := make([]byte, dataSize), make([]byte, dataSize)
	le.PutUint32(in, 1)
	copy(in[172:204], "7.2.13")
	comp, err := d.deviceCommand(&Command{opIdentify, 2}, in, out)
	if err != nil {
		return err
	}
	d.identity.device = out
	switch {
	case comp[1] > 2:
		return fmt.Errorf("identity version %d, asked for at most 2", comp[1])
	case le.Uint32(out[16:]) == 0:
		return fmt.Errorf("no doorbell pages")
	case le.Uint32(out[12:]) < 2:
		return fmt.Errorf("%d interrupts, want at least 2", le.Uint32(out[12:]))
	}
	return nil
}

// identifyLIF keeps two copies in the kernel, which must be alike.
func (d *Device) identifyLIF() error {
	out := make([]byte, dataSize)
	if _, err := d.deviceCommand(&Command{opLIFIdentify, 0, 1}, nil, out); err != nil {
		return err
	}
	if first := d.identity.lif; first != nil && !bytes.Equal(first, out) {
		return fmt.Errorf("second answer differs from the first")
	}
	d.identity.lif = out
	switch {
	case le.Uint64(out)&1 == 0:
		return fmt.Errorf("capabilities %#x: not an Ethernet LIF", le.Uint64(out))
	case le.Uint16(out[20:]) == 0:
		return fmt.Errorf("no RSS table")
	case le.Uint32(out[26:]) < uint32(d.options.MTU+18):
		return fmt.Errorf("largest frame %d is below MTU %d + 18", le.Uint32(out[26:]), d.options.MTU)
	}
	return nil
}

// setUpPort is PORT_IDENTIFY, PORT_INIT and PORT_SETATTR of ionic_port_init.
func (d *Device) setUpPort() error {
	out := make([]byte, dataSize)
	if _, err := d.deviceCommand(&Command{opPortIdentify}, nil, out); err != nil {
		return err
	}
	d.identity.portConfig = out[128:384]
	info, err := d.mem.Alloc(PageSize)
	if err != nil {
		return err
	}
	d.portInfo = info
	extra := info.Bytes()[2048:2208]
	for i := range extra {
		extra[i] = 0xff
	}
	cmd := &Command{opPortInit}
	le.PutUint64(cmd[8:], info.IOVA)
	if _, err := d.deviceCommand(cmd, d.identity.portConfig, nil); err != nil {
		return err
	}
	if status := info.Bytes()[264]; status != 1 && status != 2 {
		return fmt.Errorf("port information was not written: link status %d", status)
	}
	const attrState, stateUp = 0, 2
	_, err = d.deviceCommand(&Command{opPortSetAttr, 0, attrState, 0, stateUp}, nil, nil)
	return err
}

// Offsets in the LIF identity.
const (
	lifMaxFilters  = 12
	lifRSSTable    = 20
	lifQueueCounts = 136 + 40
	lifEQCount     = 472 + 4
)

// sizeLIF is ionic_lif_size: it halves queues until the vectors suffice.
func (d *Device) sizeLIF() error {
	lif := d.identity.lif
	count := func(queueType int) int { return int(le.Uint32(lif[lifQueueCounts+4*queueType:])) }
	s := Sizes{
		QueuePairs: min(count(queueTx), count(queueRx), d.options.CPUs),
		EventQs:    min(int(le.Uint32(lif[lifEQCount:])), d.options.CPUs),
		NotifyQs:   count(queueNotify),
	}
	limit := int(min(le.Uint32(d.identity.device[12:]), uint32(d.pci.MSIX.Vectors)))
	for {
		s.Vectors = 1 + s.QueuePairs + s.EventQs
		switch {
		case s.QueuePairs == 0:
			return fmt.Errorf("no queue pairs")
		case s.Vectors <= limit:
			d.sizes = s
			d.intrUsed = make([]bool, s.Vectors)
			return nil
		case s.NotifyQs > 1:
			s.NotifyQs /= 2
		case s.EventQs > 1:
			s.EventQs /= 2
		case s.QueuePairs > 1:
			s.QueuePairs /= 2
		default:
			return fmt.Errorf("%d vectors are not enough", limit)
		}
	}
}

func (d *Device) enableMSIX() error { return d.client.EnableMSIX(*d.pci.MSIX) }

// queueIdentity is the part of Q_IDENTIFY's answer that the driver uses.
type queueIdentity struct {
	version  uint8
	features uint64
	sgSize   int // bytes of one scatter-gather descriptor
}

// Logical queue types.
const (
	queueAdmin  = 0
	queueNotify = 1
	queueRx     = 2
	queueTx     = 3
)

// identifyQueues asks for the newest version of each type that the driver
// knows, and reads the answer field by field as ionic_lif_queue_identify does.
func (d *Device) identifyQueues() error {
	for t, newest := range []uint8{0, 0, 2, 3} {
		if _, err := d.deviceCommand(&Command{opQIdentify, 0, 0, 0, uint8(t), newest}, nil, nil); err != nil {
			return fmt.Errorf("type %d: %w", t, err)
		}
		q := queueIdentity{version: d.io.read8(regData)}
		d.io.read8(regData + 1)
		q.features = d.io.read64(regData + 8)
		var sizes [5]uint16
		for i := range sizes {
			sizes[i] = d.io.read16(regData + 16 + 2*uint64(i))
		}
		q.sgSize = int(sizes[2])
		if q.version > newest {
			return fmt.Errorf("type %d: version %d, asked for at most %d", t, q.version, newest)
		}
		d.queues[t] = q
	}
	if q := d.queues[queueTx]; q.version < 1 || q.sgSize != 256 {
		return fmt.Errorf("transmit queue version %d with scatter-gather descriptors of %d bytes: the driver would write 15 elements into 8 slots",
			q.version, q.sgSize)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package vfioclient

import "fmt"

// MSIXCap is a decoded MSI-X capability.
type MSIXCap struct {
	Offset                 uint64 // of the capability in configuration space
	Vectors                int
	TableBAR, PBABAR       int
	TableOffset, PBAOffset uint32
}

// Device is what the realize sequence found out.
type Device struct {
	Info    DeviceInfo
	Regions [9]RegionInfo // ROM and VGA are not asked for
	Config  []byte        // the one read that QEMU takes its copy of config space from
	MSIX    *MSIXCap      // nil if the device has none
	PM      uint64        // offset of the power management capability, 0 if none
	Express uint64        // offset of the PCI Express capability, 0 if none
}

// romWindow is the firmware ROM, which QEMU maps read-only without a descriptor.
var romWindow = Window{IOVA: 0xfffc0000, Size: 0x40000}

// Realize does what QEMU does from the version on until the guest runs: memory,
// device, regions, interrupts, configuration space and a first machine reset,
// message by message in QEMU's order.
func (c *Client) Realize() (*Device, error) {
	d := &Device{}
	for _, step := range []func(*Device) error{
		c.mapMemory, c.askInfo, c.askRegions, c.askErrorIRQ, c.readConfig, c.probeROM,
		c.readBARs, c.readMSIX, c.readInterruptPin, c.useErrorIRQ, c.MachineReset,
	} {
		if err := step(d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// mapMemory maps the guest's memory and its ROM; QEMU sends the messages of one
// memory transaction together and waits for the replies after.
func (c *Client) mapMemory(*Device) error {
	var calls []*call
	for _, w := range c.ram.windows {
		call, err := c.startMap(w.IOVA, w.Size, w.Offset, dmaRead|dmaWrite, c.ram.fd)
		if err != nil {
			return err
		}
		calls = append(calls, call)
	}
	rom, err := c.startMap(romWindow.IOVA, romWindow.Size, 0, dmaRead)
	if err != nil {
		return err
	}
	for _, call := range append(calls, rom) {
		if err := c.finishEmpty(call); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) askInfo(d *Device) (err error) {
	d.Info, err = c.GetInfo()
	return err
}

func (c *Client) askRegions(d *Device) (err error) {
	for _, i := range []int{0, 1, 2, 3, 4, 5, RegionConfig} {
		if d.Regions[i], err = c.RegionInfo(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) askErrorIRQ(*Device) error {
	i, err := c.IRQInfo(IRQErr)
	if err == nil && i.Count != 1 {
		err = fmt.Errorf("vfioclient: %d error interrupts: QEMU warns that it cannot enable error recovery", i.Count)
	}
	return err
}

func (c *Client) readConfig(d *Device) error {
	size := min(4096, d.Regions[RegionConfig].Size)
	if size < 256 {
		return fmt.Errorf("vfioclient: configuration space has %d bytes", size)
	}
	d.Config = make([]byte, size)
	if err := c.ReadRegion(RegionConfig, 0, d.Config); err != nil {
		return err
	}
	const capList = 0x34
	seen := 0
	for at := uint64(d.Config[capList] &^ 3); at != 0; at = uint64(d.Config[at+1] &^ 3) {
		if seen++; at < 0x40 || at > 252 || seen > 48 {
			return fmt.Errorf("vfioclient: capability list leads to %#x", at)
		}
		switch d.Config[at] {
		case 0x01:
			d.PM = at
		case 0x10:
			d.Express = at
		case 0x11:
			d.MSIX = &MSIXCap{Offset: at}
		}
	}
	return nil
}

func (c *Client) probeROM(*Device) error {
	before, err := c.config32(0x30)
	if err != nil {
		return err
	}
	if err := c.WriteRegion(RegionConfig, 0x30, words(0xfffff800)); err != nil {
		return err
	}
	if _, err := c.config32(0x30); err != nil {
		return err
	}
	return c.WriteRegion(RegionConfig, 0x30, words(before))
}

func (c *Client) config32(off uint64) (uint32, error) {
	var b [4]byte
	err := c.ReadRegion(RegionConfig, off, b[:])
	return le.Uint32(b[:]), err
}

// readBARs reads the type bits; the sizes are those of the regions.
func (c *Client) readBARs(d *Device) error {
	for i := 0; i <= RegionBAR5; i++ {
		if d.Regions[i].Size == 0 {
			continue
		}
		v, err := c.config32(uint64(0x10 + 4*i))
		if err != nil {
			return err
		}
		if v&0x7 == 0x4 && (i == RegionBAR5 || d.Regions[i+1].Size != 0) {
			return fmt.Errorf("vfioclient: BAR%d is 64-bit and the region after it has a size", i)
		}
	}
	return nil
}

func (c *Client) readMSIX(d *Device) error {
	m := d.MSIX
	if m == nil {
		return nil
	}
	var ctrl [2]byte
	if err := c.ReadRegion(RegionConfig, m.Offset+2, ctrl[:]); err != nil {
		return err
	}
	table, err := c.config32(m.Offset + 4)
	if err != nil {
		return err
	}
	pba, err := c.config32(m.Offset + 8)
	if err != nil {
		return err
	}
	m.Vectors = int(le.Uint16(ctrl[:])&0x7ff) + 1
	m.TableBAR, m.TableOffset = int(table&7), table&^7
	m.PBABAR, m.PBAOffset = int(pba&7), pba&^7
	info, err := c.IRQInfo(IRQMSIX)
	switch {
	case err != nil:
		return err
	case int(info.Count) != m.Vectors:
		return fmt.Errorf("vfioclient: %d MSI-X vectors in the capability, %d in GET_IRQ_INFO", m.Vectors, info.Count)
	case info.Flags&(1<<3) != 0:
		return fmt.Errorf("vfioclient: MSI-X has NORESIZE: QEMU would set all vectors again for each one added")
	}
	for _, p := range []struct {
		what string
		bar  int
		end  uint64
	}{
		{"table", m.TableBAR, uint64(m.TableOffset) + uint64(m.Vectors)*16},
		{"pending-bit array", m.PBABAR, uint64(m.PBAOffset) + uint64(m.Vectors+63)/64*8},
	} {
		if p.bar > RegionBAR5 || p.end > d.Regions[p.bar].Size {
			return fmt.Errorf("vfioclient: MSI-X %s ends at %#x, beyond BAR%d", p.what, p.end, p.bar)
		}
	}
	return nil
}

func (c *Client) readInterruptPin(*Device) error {
	var pin [1]byte
	if err := c.ReadRegion(RegionConfig, 0x3d, pin[:]); err != nil {
		return err
	}
	if pin[0] != 0 {
		return fmt.Errorf("vfioclient: interrupt pin %d: INTx is not part of this client", pin[0])
	}
	return nil
}

func (c *Client) useErrorIRQ(*Device) error {
	v, err := newVector()
	if err != nil {
		return err
	}
	c.irqs.Lock()
	c.irqs.errs = v
	c.irqs.Unlock()
	var sendErr error
	err = v.control(func(fd int) {
		sendErr = c.setIRQs(irqDataEventFD|irqActionTrigger, IRQErr, 0, 1, fd)
	})
	if err != nil {
		return err
	}
	return sendErr
}

// ErrorSignals returns how often the device signalled an unrecoverable error,
// on which QEMU stops the machine.
func (c *Client) ErrorSignals() uint64 {
	c.irqs.Lock()
	defer c.irqs.Unlock()
	if c.irqs.errs == nil {
		return 0
	}
	return c.irqs.errs.Fired()
}

// MachineReset does what QEMU does to the device when the machine is reset.
func (c *Client) MachineReset(d *Device) error {
	if d.MSIX != nil && c.usesVectors() {
		if err := c.DisableMSIX(*d.MSIX); err != nil {
			return err
		}
	}
	const clearOnReset = 1<<0 | 1<<1 | busMasterBit | 1<<10
	var b [2]byte
	if err := c.ReadRegion(RegionConfig, 4, b[:]); err != nil {
		return err
	}
	if err := c.writeConfig16(4, le.Uint16(b[:])&^clearOnReset); err != nil {
		return err
	}
	if d.PM != 0 {
		if err := c.ReadRegion(RegionConfig, d.PM+4, b[:]); err != nil {
			return err
		}
		if v := le.Uint16(b[:]); v&3 != 0 {
			if err := c.writeConfig16(d.PM+4, v&^3); err != nil {
				return err
			}
		}
	}
	if d.Info.Flags&1 != 0 {
		if err := c.ResetDevice(); err != nil {
			return err
		}
	}
	if err := c.readInterruptPin(d); err != nil {
		return err
	}
	for i := 0; i <= RegionBAR5; i++ {
		if err := c.WriteRegion(RegionConfig, uint64(0x10+4*i), words(0)); err != nil {
			return err
		}
	}
	return nil
}

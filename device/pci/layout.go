// SPDX-License-Identifier: Apache-2.0

package pci

// build writes the power-on values and write rules of a checked configuration.
func (s *space) build(c *Config) {
	s.define16(regVendor, c.Vendor, 0)
	s.define16(regDevice, c.Device, 0)
	s.define16(regCommand, 0, cmdWritable)
	s.define16(regStatus, statusCapList, 0)
	s.clearable16(regStatus, statusErrors)
	s.init[regRevision] = c.Revision
	s.init[regClass] = byte(c.Class)
	s.init[regClass+1] = byte(c.Class >> 8)
	s.init[regClass+2] = byte(c.Class >> 16)
	s.write[regCacheLine] = 0xff
	s.write[regInterruptLine] = 0xff
	s.define16(regSubVendor, c.SubVendor, 0)
	s.define16(regSubDevice, c.SubDevice, 0)
	for i := range c.BARs {
		s.buildBAR(i, &c.BARs[i])
	}

	next := regCapPointer
	link := func(at int, id byte) {
		s.init[next] = byte(at)
		s.init[at] = id
		next = at + 1
	}
	if c.PM {
		link(capPM, capIDPM)
		s.buildPM()
	}
	link(capMSIX, capIDMSIX)
	s.buildMSIX(&c.MSIX)
	if c.Express {
		link(capExpress, capIDExpress)
		s.buildExpress(!c.NoFLR)
	}
	s.powerOn()
}

// buildBAR makes the address bits above the size writable: writing all ones
// reads back as the size mask.
func (s *space) buildBAR(i int, b *BAR) {
	if b.Size == 0 {
		return
	}
	at := regBAR0 + 4*i
	mask := ^(b.Size - 1)
	var flags uint32
	if b.Prefetch {
		flags |= barPrefetch
	}
	if b.Is64 {
		flags |= barMem64
		s.define32(at+4, 0, uint32(mask>>32))
	}
	s.define32(at, flags, uint32(mask)&^0xf)
}

// buildPM: version 3, D0 and D3hot only, no PME, and state kept on the way from
// D3hot to D0.
func (s *space) buildPM() {
	s.define16(capPM+2, pmcVersion3, 0)
	s.define16(capPM+pmcsr, pmcsrNoSoftReset, pmcsrPowerState)
}

func (s *space) buildMSIX(m *MSIX) {
	s.define16(capMSIX+msixControl, uint16(m.Vectors-1), msixEnable|msixFunctionMask)
	s.define32(capMSIX+msixTable, m.TableOffset|uint32(m.TableBAR), 0)
	s.define32(capMSIX+msixPBA, m.PBAOffset|uint32(m.PBABAR), 0)
}

func (s *space) buildExpress(flr bool) {
	devCap := uint32(devCapPayload256 | devCapExtTag | devCapRoleErrors)
	if flr {
		devCap |= devCapFLR
	}
	s.define16(capExpress+expFlags, expVersion2, 0)
	s.define32(capExpress+expDevCap, devCap, 0)
	s.define16(capExpress+expDevCtl, devCtlDefault, devCtlWritable)
	s.clearable16(capExpress+expDevSta, devStaErrors)
	s.define32(capExpress+expLnkCap, linkSpeed16GT|linkWidth16|lnkCapASPMOpt, 0)
	s.define16(capExpress+expLnkCtl, 0, lnkCtlWritable)
	s.define16(capExpress+expLnkSta, linkSpeed16GT|linkWidth16|lnkStaSlotClock, 0)
	s.define32(capExpress+expDevCap2, devCap2Timeouts, 0)
	s.define16(capExpress+expDevCtl2, 0, devCtl2Writable)
	s.define32(capExpress+expLnkCap2, lnkCap2SpeedsTo16, 0)
	s.define16(capExpress+expLnkCtl2, linkSpeed16GT, lnkCtl2Writable)
}

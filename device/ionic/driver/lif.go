// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"fmt"
	"net"
)

// LIF attributes (enum ionic_lif_attr).
const (
	attrState    = 0
	attrName     = 1
	attrMTU      = 2
	attrMAC      = 3
	attrFeatures = 4
	attrRSS      = 5
)

// FeatureXxx are bits of the FEATURES attribute (enum ionic_eth_hw_features).
const (
	FeatureVLANTx     = 1 << 0
	FeatureVLANRx     = 1 << 1
	FeatureVLANFilter = 1 << 2
	FeatureRxHash     = 1 << 3
	FeatureRxCsum     = 1 << 4
	FeatureTxSG       = 1 << 5
	FeatureTxCsum     = 1 << 7
	FeatureTSO        = 1 << 8
	FeatureTSOIPv6    = 1 << 9

	// featuresAsked is what the kernel asks for with more than one queue.
	featuresAsked = 0x1ffbf
)

// Offsets in lif_info.
const (
	lifInfoLinkStatus = 266
	lifInfoLinkSpeed  = 268
	lifInfoStats      = 320
)

// initLIF is ionic_lif_init and what follows until the netdev is registered.
func (d *Device) initLIF() error {
	info, err := d.mem.Alloc(PageSize)
	if err != nil {
		return err
	}
	d.lifInfo = info
	adminIntr, err := d.AllocIntr(d.serviceAdmin)
	if err != nil {
		return err
	}
	adminIntr.SetMaskAssert()
	if err := adminIntr.Request(); err != nil {
		return err
	}
	cmd := &Command{opLIFInit}
	le.PutUint64(cmd[8:], info.IOVA)
	comp, err := d.deviceCommand(cmd, nil, nil)
	if err != nil {
		return fmt.Errorf("LIF_INIT: %w", err)
	}
	d.hwIndex = uint32(le.Uint16(comp[2:]))
	pages := d.DoorbellPages()
	if end := uint64(d.hwIndex*pages+pages) * PageSize; end > d.pci.Regions[bellBAR].Size {
		return fmt.Errorf("doorbell pages of LIF %d end at %#x, beyond BAR2", d.hwIndex, end)
	}
	if err := d.initAdmin(adminIntr); err != nil {
		return fmt.Errorf("admin queue: %w", err)
	}
	if err := d.initNotify(); err != nil {
		return fmt.Errorf("notify queue: %w", err)
	}
	if err := d.setFeatures(featuresAsked & d.options.Features); err != nil {
		return err
	}
	return d.initAddress()
}

// setFeatures asks for offloads; the granted ones are in d.feature.
func (d *Device) setFeatures(want uint64) error {
	cmd := &Command{opLIFSetAttr, attrFeatures}
	le.PutUint64(cmd[4:], want)
	comp, err := d.Admin(cmd)
	if err != nil {
		return fmt.Errorf("features: %w", err)
	}
	d.feature = want & le.Uint64(comp[4:])
	if d.feature&FeatureRxHash != 0 {
		return d.setRSS(0, nil)
	}
	return nil
}

// initAddress takes the station address from the device and adds its filter.
func (d *Device) initAddress() error {
	comp, err := d.Admin(&Command{opLIFGetAttr, attrMAC})
	if err != nil {
		return fmt.Errorf("station address: %w", err)
	}
	mac := net.HardwareAddr(bytes.Clone(comp[4:10]))
	if mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return fmt.Errorf("station address %v is not a unicast address", mac)
	}
	d.mac = mac
	_, err = d.AddMACFilter(mac)
	return err
}

// AddMACFilter lets frames for a unicast or multicast address in and returns
// the filter's id.
func (d *Device) AddMACFilter(mac net.HardwareAddr) (uint32, error) {
	cmd := &Command{opRxFilterAdd}
	const matchMAC = 1
	le.PutUint16(cmd[8:], matchMAC)
	copy(cmd[10:], mac)
	comp, err := d.Admin(cmd)
	if err != nil {
		return 0, fmt.Errorf("filter %v: %w", mac, err)
	}
	return le.Uint32(comp[4:]), nil
}

// AddVLANFilter lets frames of a VLAN in and returns the filter's id.
func (d *Device) AddVLANFilter(vid uint16) (uint32, error) {
	cmd := &Command{opRxFilterAdd}
	le.PutUint16(cmd[10:], vid)
	comp, err := d.Admin(cmd)
	if err != nil {
		return 0, fmt.Errorf("filter VLAN %d: %w", vid, err)
	}
	return le.Uint32(comp[4:]), nil
}

// DelFilter removes a filter.
func (d *Device) DelFilter(id uint32) error {
	cmd := &Command{opRxFilterDel}
	le.PutUint32(cmd[4:], id)
	_, err := d.Admin(cmd)
	return err
}

// RxXxx are the bits of RX_MODE_SET.
const (
	RxUnicast   = 0x01
	RxMulticast = 0x02
	RxBroadcast = 0x04
	RxPromisc   = 0x08
	RxAllMulti  = 0x10
)

// SetRxMode says which classes of frames the device accepts.
func (d *Device) SetRxMode(mode uint16) error {
	cmd := &Command{opRxModeSet}
	le.PutUint16(cmd[4:], mode)
	_, err := d.Admin(cmd)
	return err
}

// rssKey is the key of the Microsoft verification suite.
var rssKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// setRSS sends hash types and an indirection table, which is nil for all zero.
// The device reads the table during the command only.
func (d *Device) setRSS(types uint16, table []byte) error {
	buf, err := d.mem.Alloc(int(le.Uint16(d.identity.lif[lifRSSTable:])))
	if err != nil {
		return err
	}
	defer d.mem.Free(buf)
	copy(buf.Bytes(), table)
	cmd := &Command{opLIFSetAttr, attrRSS}
	le.PutUint16(cmd[4:], types)
	copy(cmd[6:46], rssKey[:])
	le.PutUint64(cmd[52:], buf.IOVA)
	if _, err := d.Admin(cmd); err != nil {
		return fmt.Errorf("RSS: %w", err)
	}
	return nil
}

// LinkUp reports the carrier: exactly the value 1 in lif_info.
func (d *Device) LinkUp() bool {
	return d.lifInfo.Load64(lifInfoLinkStatus&^7)>>16&0xffff == 1
}

// LinkSpeed returns the link's speed in Mb/s.
func (d *Device) LinkSpeed() uint32 { return d.lifInfo.Load32(lifInfoLinkSpeed) }

// Stat reads one counter of the LIF's statistics block, by its byte offset in
// struct ionic_lif_stats. The device rewrites the block from time to time.
func (d *Device) Stat(off int) uint64 { return d.lifInfo.Load64(lifInfoStats + off) }

// Remove unbinds the driver as rmmod does. Every piece of memory that the
// device knew of is free when it returns. The RDMA half must be gone already.
func (d *Device) Remove() error {
	if d.eth.up.Load() {
		if err := d.Down(); err != nil {
			return err
		}
	}
	if d.feature&FeatureRxHash != 0 {
		if err := d.setRSS(0, nil); err != nil {
			return err
		}
	}
	d.admin.intr.Mask()
	if err := d.simple(opLIFReset); err != nil {
		return err
	}
	d.stopAdmin()
	if err := d.simple(opLIFReset); err != nil {
		return err
	}
	d.mem.Free(d.lifInfo)
	d.admin.intr.Free()
	if err := d.client.DisableMSIX(*d.pci.MSIX); err != nil {
		return err
	}
	if err := d.simple(opPortReset); err != nil {
		return err
	}
	d.mem.Free(d.portInfo)
	if err := d.reset(); err != nil {
		return err
	}
	if err := d.setCommand(0x0002); err != nil {
		return err
	}
	if err := d.Err(); err != nil {
		return err
	}
	return d.mem.Check()
}

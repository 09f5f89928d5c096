// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// xcvrPID returns the transceiver id that makes the driver report a speed and
// medium.
func xcvrPID(kind Xcvr, mbps uint32) uint16 {
	switch kind {
	case XcvrCopper:
		switch mbps {
		case 1000:
			return abi.Xcvr1000BaseT
		case 10000:
			return abi.Xcvr10GCU
		case 25000:
			return abi.Xcvr25GCRN
		case 40000:
			return abi.Xcvr40GCR4
		case 50000:
			return abi.Xcvr50GCR2
		case 100000:
			return abi.Xcvr100GCR4
		case 200000:
			return abi.Xcvr200GCR4
		case 400000:
			return abi.Xcvr400GCR4
		}
	case XcvrFiber:
		switch mbps {
		case 10000:
			return abi.Xcvr10GSR
		case 25000:
			return abi.Xcvr25GSR
		case 40000:
			return abi.Xcvr40GSR4
		case 100000:
			return abi.Xcvr100GSR4
		case 200000:
			return abi.Xcvr200GSR4
		case 400000:
			return abi.Xcvr400GSR4
		}
	}
	return abi.XcvrUnknown
}

// transceiver fills the transceiver part of port_info.
func (l *LIF) transceiver(b []byte) {
	if l.cfg.Xcvr == XcvrNone {
		b[abi.PortInfoXcvrState], b[abi.PortInfoXcvrPHY] = abi.XcvrRemoved, abi.PHYNone
		return
	}
	b[abi.PortInfoXcvrState], b[abi.PortInfoXcvrPHY] = abi.XcvrSpromRead, abi.PHYCopper
	if l.cfg.Xcvr == XcvrFiber {
		b[abi.PortInfoXcvrPHY] = abi.PHYFiber
	}
	le.PutUint16(b[abi.PortInfoXcvrPID:], xcvrPID(l.cfg.Xcvr, l.cfg.Speed))
	sprom(b[abi.PortInfoSprom:abi.PortInfoSprom+256], l.cfg.Xcvr)
}

// sprom fills the module memory of a QSFP28 as SFF-8636 lays it out: lower page,
// then upper page 0.
func sprom(b []byte, kind Xcvr) {
	const (
		identifier    = 0x11 // QSFP28
		connectorCU   = 0x23 // no separable connector
		connectorMPO  = 0x0c
		technologyCU  = 0xa0 // copper cable, unequalized
		technologyOpt = 0x00 // 850 nm VCSEL
	)
	b[0], b[128] = identifier, identifier
	b[130], b[147] = connectorCU, technologyCU
	if kind == XcvrFiber {
		b[130], b[147] = connectorMPO, technologyOpt
	}
	b[2] = 0x04 // flat memory, no upper pages but 0
	pad := func(field []byte, s string) {
		for i := copy(field, s); i < len(field); i++ {
			field[i] = ' '
		}
	}
	pad(b[148:164], "ERNIC")
	pad(b[168:184], "EMULATED")
	pad(b[184:186], "1")
	pad(b[196:212], "0")
	pad(b[212:220], "")
	for _, sum := range [2][2]int{{128, 191}, {192, 223}} {
		for _, c := range b[sum[0]:sum[1]] {
			b[sum[1]] += c
		}
	}
}

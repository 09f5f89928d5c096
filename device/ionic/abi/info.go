// SPDX-License-Identifier: Apache-2.0

package abi

// The two blocks of guest memory the device keeps current. Both are allocated
// page aligned by the driver.

// Layout of struct ionic_lif_info, at the address of LIF_INIT.
const (
	LIFInfoSize          = 1344
	LIFInfoConfig        = 0
	LIFInfoStatus        = 256
	LIFInfoEID           = 256 // u64, last notify event
	LIFInfoPort          = 264 // u8
	LIFInfoLinkStatus    = 266 // u16, a PortOperStatus
	LIFInfoLinkSpeed     = 268 // u32, Mb/s
	LIFInfoLinkDownCount = 272 // u16
	LIFInfoStatusSize    = 64
	LIFInfoStats         = 320
	LIFStatsSize         = 1024
)

// Layout of struct ionic_port_info, at the address of PORT_INIT.
const (
	PortInfoSize          = 2208
	PortInfoConfig        = 0
	PortInfoStatus        = 256
	PortInfoID            = 256 // u32
	PortInfoSpeed         = 260 // u32, Mb/s
	PortInfoOper          = 264 // u8, a PortOperStatus
	PortInfoLinkDownCount = 265 // u16, unaligned
	PortInfoFEC           = 267 // u8
	PortInfoXcvr          = 316
	PortInfoXcvrState     = 316 // u8
	PortInfoXcvrPHY       = 317 // u8
	PortInfoXcvrPID       = 318 // u16
	PortInfoSprom         = 320 // 256 bytes: lower page, upper page 0
	PortInfoStats         = 576
	PortStatsSize         = 712
	PortInfoSpromPage1    = 1288
	PortInfoExtraStats    = 2048
)

// Transceiver states and kinds.
const (
	XcvrRemoved   = 0
	XcvrInserted  = 1
	XcvrSpromRead = 3

	PHYNone   = 0
	PHYCopper = 1
	PHYFiber  = 2
)

// Transceiver ids (enum ionic_xcvr_pid) that the driver maps to a link mode.
const (
	XcvrUnknown   = 0
	Xcvr100GCR4   = 1
	Xcvr40GCR4    = 2
	Xcvr25GCRN    = 5
	Xcvr50GCR2    = 7
	Xcvr200GCR4   = 8
	Xcvr400GCR4   = 9
	Xcvr100GSR4   = 52
	Xcvr40GSR4    = 56
	Xcvr25GSR     = 59
	Xcvr10GSR     = 63
	Xcvr10GCU     = 68
	Xcvr1000BaseT = 73
	Xcvr200GSR4   = 77
	Xcvr400GSR4   = 81
)

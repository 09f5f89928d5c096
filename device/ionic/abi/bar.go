// SPDX-License-Identifier: Apache-2.0

package abi

// PCI identity of the emulated function.
const (
	VendorID    = 0x1dd8 // Pensando
	DeviceID    = 0x1002 // ionic Ethernet PF
	SubVendorID = 0x1dd8
	SubDeviceID = 0x5400
	PCIClass    = 0x020000 // Ethernet controller
)

// PageSize is the guest page size the interface counts doorbell pages and ring
// alignment in.
const PageSize = 4096

// BAR sizes and the MSI-X structures above the register window of BAR0.
const (
	BAR0Size        = 64 << 10
	RegisterWindow  = 32 << 10 // driver needs at least this much of BAR0
	BAR2Size        = 4 << 20
	DoorbellPages   = BAR2Size / PageSize
	MaxVectors      = 128
	MSIXTableOffset = 0x8000
	MSIXPBAOffset   = 0xc000
)

// Offsets in BAR0: device info (struct ionic_dev_info_regs).
const (
	RegSignature   = 0x0000 // u32
	RegVersion     = 0x0004 // u8
	RegAsicType    = 0x0005 // u8
	RegAsicRev     = 0x0006 // u8
	RegFWStatus    = 0x0007 // u8
	RegFWHeartbeat = 0x0008 // u32
	RegFWVersion   = 0x000c // char[32]
	RegSerial      = 0x002c // char[32]
	RegTickLow     = 0x0400 // u32
	RegTickHigh    = 0x0404 // u32

	FWVersionLen = 32
	SerialLen    = 32
)

// Offsets in BAR0: device command (struct ionic_dev_cmd_regs).
const (
	RegCmdDoorbell = 0x0800 // u32
	RegCmdDone     = 0x0804 // u32
	RegCmd         = 0x0808 // u8[64]
	RegCmdComp     = 0x0848 // u8[16]
	RegCmdData     = 0x0888 // u8[1912]; the header's 0x0c00 constant is unused and wrong
	RegCmdEnd      = 0x1000

	CommandSize    = 64
	CompletionSize = 16
	CmdDataSize    = RegCmdEnd - RegCmdData // 1912
)

// Offsets in BAR0: interrupts.
const (
	RegIntrStatus = 0x1000 // two u32, never read by the driver
	RegIntrCtrl   = 0x2000 // IntrCtrlSize bytes per vector
	IntrCtrlSize  = 32

	IntrCoalInit   = 0
	IntrMask       = 4
	IntrCredits    = 8
	IntrMaskAssert = 12
	IntrCoal       = 16
)

// Bits of a write to the credits register. A poll returns a 15-bit count; the
// clean-up of a vector (ionic_intr_clean) writes back what it read, 16 bits
// signed.
const (
	CreditsCount     = 0xffff
	CreditsUnmask    = 0x10000
	CreditsResetCoal = 0x20000
)

// Signature is the value of RegSignature, "DEVI".
const Signature = 0x44455649

// DevInfoVersion is the value of RegVersion.
const DevInfoVersion = 1

// FWStatusRunning is bit 0 of RegFWStatus. The generation is in bits 7:4.
const (
	FWStatusRunning       = 0x01
	FWStatusGenerationPos = 4
)

// Doorbell is one 8-byte write into a doorbell page.
//
//	 63    48 47           24 23   19 18  16 15             0
//	+--------+---------------+-------+------+----------------+
//	|   0    |   queue id    |   0   | ring | producer index |
//	+--------+---------------+-------+------+----------------+
type Doorbell uint64

// Index returns the producer index, already reduced modulo the ring by the driver.
func (d Doorbell) Index() uint16 { return uint16(d) }

// Ring returns the ring selector; Ethernet queues use 0 only.
func (d Doorbell) Ring() uint8 { return uint8(d>>16) & 7 }

// QID returns the 24-bit queue id.
func (d Doorbell) QID() uint32 { return uint32(d>>24) & 0xffffff }

// MakeDoorbell builds the value the driver writes for ring 0.
func MakeDoorbell(qid uint32, index uint16) Doorbell {
	return Doorbell(uint64(qid&0xffffff)<<24 | uint64(index))
}

// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"

	"github.com/ernic-dev/ernic/device/vfiouser/vfioclient"
)

var le = binary.LittleEndian

// Regions of the BARs: registers and doorbells.
const (
	regsBAR = 0
	bellBAR = 2
)

// Registers in BAR0, byte offsets (ionic_regs.h, ionic_if.h).
const (
	regSignature   = 0x0000
	regASICType    = 0x0005
	regASICRev     = 0x0006
	regFWStatus    = 0x0007
	regFWHeartbeat = 0x0008
	regFWVersion   = 0x000c
	regSerial      = 0x002c

	regCmdDoorbell = 0x0800
	regCmdDone     = 0x0804
	regCmd         = 0x0808
	regComp        = 0x0848
	regData        = 0x0888
	dataSize       = 1912

	regIntr    = 0x2000
	intrStride = 32

	signature = 0x44455649
)

// mmio reads and writes the BARs as the kernel does on x86: naturally aligned
// accesses, 4 bytes at a time for blocks, and posted writes. As in a guest whose
// device is gone, a failed read yields all ones and a failed write vanishes; the
// reason is kept in the device.
type mmio struct {
	c    *vfioclient.Client
	fail func(error)
}

func (m *mmio) read(off uint64, p []byte) {
	if err := m.c.ReadRegion(regsBAR, off, p); err != nil {
		m.fail(fmt.Errorf("driver: register read: %w", err))
		for i := range p {
			p[i] = 0xff
		}
	}
}

func (m *mmio) write(off uint64, p []byte) {
	if err := m.c.PostRegion(regsBAR, off, p); err != nil {
		m.fail(fmt.Errorf("driver: register write: %w", err))
	}
}

func (m *mmio) read8(off uint64) uint8 {
	var b [1]byte
	m.read(off, b[:])
	return b[0]
}

func (m *mmio) read16(off uint64) uint16 {
	var b [2]byte
	m.read(off, b[:])
	return le.Uint16(b[:])
}

func (m *mmio) read32(off uint64) uint32 {
	var b [4]byte
	m.read(off, b[:])
	return le.Uint32(b[:])
}

func (m *mmio) read64(off uint64) uint64 {
	var b [8]byte
	m.read(off, b[:])
	return le.Uint64(b[:])
}

func (m *mmio) write32(off uint64, v uint32) {
	var b [4]byte
	le.PutUint32(b[:], v)
	m.write(off, b[:])
}

func (m *mmio) write64(off, v uint64) {
	var b [8]byte
	le.PutUint64(b[:], v)
	m.write(off, b[:])
}

// copyFrom is memcpy_fromio; off and len(p) are multiples of 4.
func (m *mmio) copyFrom(off uint64, p []byte) {
	for at := 0; at < len(p); at += 4 {
		m.read(off+uint64(at), p[at:at+4])
	}
}

// copyTo is memcpy_toio; off and len(p) are multiples of 4.
func (m *mmio) copyTo(off uint64, p []byte) {
	for at := 0; at < len(p); at += 4 {
		m.write(off+uint64(at), p[at:at+4])
	}
}

// ring writes a doorbell: the page is the process id, the slot the queue type.
func (m *mmio) ring(page uint32, qtype uint8, v uint64) {
	var b [8]byte
	le.PutUint64(b[:], v)
	if err := m.c.PostRegion(bellBAR, uint64(page)*PageSize+8*uint64(qtype), b[:]); err != nil {
		m.fail(fmt.Errorf("driver: doorbell: %w", err))
	}
}

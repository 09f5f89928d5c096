// SPDX-License-Identifier: Apache-2.0

package vfioclient

import "encoding/binary"

var le = binary.LittleEndian

const headerSize = 16

// Commands, by their names in the protocol.
const (
	cmdVersion          = 1
	cmdDMAMap           = 2
	cmdDMAUnmap         = 3
	cmdGetInfo          = 4
	cmdGetRegionInfo    = 5
	cmdGetIRQInfo       = 7
	cmdSetIRQs          = 8
	cmdRegionRead       = 9
	cmdRegionWrite      = 10
	cmdDMARead          = 11
	cmdDMAWrite         = 12
	cmdReset            = 13
	cmdRegionWriteMulti = 15
)

// Header flags.
const (
	flagTypeMask = 0xf
	flagReply    = 1
	flagNoReply  = 1 << 4
	flagError    = 1 << 5
)

// Region and interrupt indexes.
const (
	RegionBAR0   = 0
	RegionBAR5   = 5
	RegionROM    = 6
	RegionConfig = 7

	IRQINTx = 0
	IRQMSI  = 1
	IRQMSIX = 2
	IRQErr  = 3
)

// SET_IRQS flags.
const (
	irqDataNone      = 1
	irqDataBool      = 2
	irqDataEventFD   = 4
	irqActionTrigger = 0x20
)

// DMA_MAP flags.
const (
	dmaRead  = 1
	dmaWrite = 2
)

// header is a decoded message header.
type header struct {
	id, cmd     uint16
	size, flags uint32
	errno       uint32
}

func parseHeader(b []byte) header {
	return header{le.Uint16(b), le.Uint16(b[2:]), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// putHeader writes a header into b, whose length is that of the whole message.
func putHeader(b []byte, id, cmd uint16, flags, errno uint32) {
	le.PutUint16(b, id)
	le.PutUint16(b[2:], cmd)
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint32(b[8:], flags)
	le.PutUint32(b[12:], errno)
}

// words packs 32-bit fields.
func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = le.AppendUint32(b, w)
	}
	return b
}

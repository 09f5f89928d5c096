// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// Command is the command field of a message.
type Command uint16

// Commands of the vfio-user protocol. 14 was dirty page tracking and is gone.
const (
	CmdVersion          Command = 1
	CmdDMAMap           Command = 2
	CmdDMAUnmap         Command = 3
	CmdGetInfo          Command = 4
	CmdGetRegionInfo    Command = 5
	CmdGetRegionIOFDs   Command = 6
	CmdGetIRQInfo       Command = 7
	CmdSetIRQs          Command = 8
	CmdRegionRead       Command = 9
	CmdRegionWrite      Command = 10
	CmdDMARead          Command = 11
	CmdDMAWrite         Command = 12
	CmdReset            Command = 13
	CmdRegionWriteMulti Command = 15
	CmdFeature          Command = 16
	CmdMigDataRead      Command = 17
	CmdMigDataWrite     Command = 18

	numCommands = 19
)

var commandNames = [numCommands]string{
	CmdVersion:          "VERSION",
	CmdDMAMap:           "DMA_MAP",
	CmdDMAUnmap:         "DMA_UNMAP",
	CmdGetInfo:          "GET_INFO",
	CmdGetRegionInfo:    "REGION_INFO",
	CmdGetRegionIOFDs:   "REGION_IO_FDS",
	CmdGetIRQInfo:       "IRQ_INFO",
	CmdSetIRQs:          "SET_IRQS",
	CmdRegionRead:       "REGION_READ",
	CmdRegionWrite:      "REGION_WRITE",
	CmdDMARead:          "DMA_READ",
	CmdDMAWrite:         "DMA_WRITE",
	CmdReset:            "RESET",
	CmdRegionWriteMulti: "REGION_WRITE_MULTI",
	CmdFeature:          "FEATURE",
	CmdMigDataRead:      "MIG_DATA_READ",
	CmdMigDataWrite:     "MIG_DATA_WRITE",
}

// String returns the short name used in transcripts.
func (c Command) String() string {
	if int(c) < len(commandNames) && commandNames[c] != "" {
		return commandNames[c]
	}
	return fmt.Sprintf("COMMAND_%d", uint16(c))
}

const (
	headerLen = 16

	flagTypeMask = 0xf
	typeCommand  = 0
	typeReply    = 1
	flagNoReply  = 1 << 4
	flagError    = 1 << 5

	// maxTransfer is the max_data_xfer_size we announce, the protocol's default.
	maxTransfer = 1 << 20
	// maxMessage bounds every message we accept: a region write of maxTransfer.
	maxMessage = maxTransfer + headerLen + regionAccessLen
	// maxAnnouncedFDs is the max_msg_fds we announce; QEMU refuses more than 16.
	maxAnnouncedFDs = 16
	// maxMessageFDs is what one message can carry on Linux (SCM_MAX_FD).
	maxMessageFDs = 253

	// Version we speak: the highest minor of major 0.
	protoMajor = 0
	protoMinor = 2

	dmaMapLen       = 32
	dmaUnmapLen     = 24
	infoLen         = 16
	regionInfoLen   = 32
	regionIOFDsLen  = 16
	irqInfoLen      = 16
	setIRQsLen      = 20
	regionAccessLen = 16
	multiHeadLen    = 8
	multiEntryLen   = 24
	featureLen      = 8
	dmaMessageLen   = 16

	maxErrno = 4095
)

// header is the first 16 bytes of every message.
type header struct {
	id    uint16
	cmd   Command
	size  uint32 // of the whole message
	flags uint32
	errno uint32
}

func parseHeader(b []byte) header {
	_ = b[headerLen-1]
	return header{
		id:    le.Uint16(b),
		cmd:   Command(le.Uint16(b[2:])),
		size:  le.Uint32(b[4:]),
		flags: le.Uint32(b[8:]),
		errno: le.Uint32(b[12:]),
	}
}

func (h header) put(b []byte) {
	_ = b[headerLen-1]
	le.PutUint16(b, h.id)
	le.PutUint16(b[2:], uint16(h.cmd))
	le.PutUint32(b[4:], h.size)
	le.PutUint32(b[8:], h.flags)
	le.PutUint32(b[12:], h.errno)
}

func (h header) kind() uint32  { return h.flags & flagTypeMask }
func (h header) noReply() bool { return h.flags&flagNoReply != 0 }
func (h header) badSize() bool { return h.size < headerLen || h.size > maxMessage }

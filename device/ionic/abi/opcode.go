// SPDX-License-Identifier: Apache-2.0

package abi

import "strconv"

// Opcode is byte 0 of a command (enum ionic_cmd_opcode).
type Opcode uint8

// Opcodes.
const (
	OpNop      Opcode = 0
	OpIdentify Opcode = 1
	OpInit     Opcode = 2
	OpReset    Opcode = 3
	OpGetAttr  Opcode = 4
	OpSetAttr  Opcode = 5

	OpPortIdentify Opcode = 10
	OpPortInit     Opcode = 11
	OpPortReset    Opcode = 12
	OpPortGetAttr  Opcode = 13
	OpPortSetAttr  Opcode = 14

	OpLIFIdentify Opcode = 20
	OpLIFInit     Opcode = 21
	OpLIFReset    Opcode = 22
	OpLIFGetAttr  Opcode = 23
	OpLIFSetAttr  Opcode = 24
	OpLIFSetPHC   Opcode = 25

	OpRxModeSet   Opcode = 30
	OpRxFilterAdd Opcode = 31
	OpRxFilterDel Opcode = 32

	OpQIdentify Opcode = 39
	OpQInit     Opcode = 40
	OpQControl  Opcode = 41

	OpRDMAResetLIF     Opcode = 50
	OpRDMACreateEQ     Opcode = 51
	OpRDMACreateCQ     Opcode = 52
	OpRDMACreateAdminQ Opcode = 53

	OpVFGetAttr Opcode = 60
	OpVFSetAttr Opcode = 61
	OpVFCtrl    Opcode = 62

	OpDiscoverCMB Opcode = 80

	OpQoSClassIdentify Opcode = 240
	OpQoSClassInit     Opcode = 241
	OpQoSClassReset    Opcode = 242
	OpQoSClassUpdate   Opcode = 243
	OpQoSClearStats    Opcode = 244
	OpQoSReset         Opcode = 245

	OpFWDownload   Opcode = 252
	OpFWControl    Opcode = 253
	OpFWDownloadV1 Opcode = 254
	OpFWControlV1  Opcode = 255
)

var opcodeNames = map[Opcode]string{
	OpNop: "NOP", OpIdentify: "IDENTIFY", OpInit: "INIT", OpReset: "RESET",
	OpGetAttr: "GETATTR", OpSetAttr: "SETATTR",
	OpPortIdentify: "PORT_IDENTIFY", OpPortInit: "PORT_INIT", OpPortReset: "PORT_RESET",
	OpPortGetAttr: "PORT_GETATTR", OpPortSetAttr: "PORT_SETATTR",
	OpLIFIdentify: "LIF_IDENTIFY", OpLIFInit: "LIF_INIT", OpLIFReset: "LIF_RESET",
	OpLIFGetAttr: "LIF_GETATTR", OpLIFSetAttr: "LIF_SETATTR", OpLIFSetPHC: "LIF_SETPHC",
	OpRxModeSet: "RX_MODE_SET", OpRxFilterAdd: "RX_FILTER_ADD", OpRxFilterDel: "RX_FILTER_DEL",
	OpQIdentify: "Q_IDENTIFY", OpQInit: "Q_INIT", OpQControl: "Q_CONTROL",
	OpRDMAResetLIF: "RDMA_RESET_LIF", OpRDMACreateEQ: "RDMA_CREATE_EQ",
	OpRDMACreateCQ: "RDMA_CREATE_CQ", OpRDMACreateAdminQ: "RDMA_CREATE_ADMINQ",
	OpVFGetAttr: "VF_GETATTR", OpVFSetAttr: "VF_SETATTR", OpVFCtrl: "VF_CTRL",
	OpDiscoverCMB:      "DISCOVER_CMB",
	OpQoSClassIdentify: "QOS_CLASS_IDENTIFY", OpQoSClassInit: "QOS_CLASS_INIT",
	OpQoSClassReset: "QOS_CLASS_RESET", OpQoSClassUpdate: "QOS_CLASS_UPDATE",
	OpQoSClearStats: "QOS_CLEAR_STATS", OpQoSReset: "QOS_RESET",
	OpFWDownload: "FW_DOWNLOAD", OpFWControl: "FW_CONTROL",
	OpFWDownloadV1: "FW_DOWNLOAD_V1", OpFWControlV1: "FW_CONTROL_V1",
}

// String returns the name in ionic_if.h without its prefix.
func (o Opcode) String() string {
	if n, ok := opcodeNames[o]; ok {
		return n
	}
	return "opcode " + strconv.Itoa(int(o))
}

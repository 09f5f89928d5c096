// SPDX-License-Identifier: Apache-2.0

// Package abi holds the byte layouts and constants of the base and Ethernet
// half of the ionic device interface, as the Linux driver declares them in
// ionic_if.h and ionic_regs.h. It contains no behaviour: structures are byte
// slices or small values with accessors, so that a parser never trusts a Go
// struct layout and never copies more than it needs.
//
// Every multi-byte field is little-endian unless its accessor says otherwise;
// MAC addresses are byte strings in wire order.
//
//	BAR0  0x0000  device info        signature, asic, fw_status, fw_version, serial
//	      0x0800  device command     doorbell, done, cmd[64], comp[16], data[1912]
//	      0x1000  interrupt status   never used
//	      0x2000  interrupt control  32 bytes per vector
//	      0x8000  MSI-X table and pending bits
//	BAR2  4 KiB doorbell pages; offset/8 in a page is the queue type, the page
//	      number the process id
//
// A command is 64 bytes, byte 0 the opcode. A completion is 16 bytes:
//
//	 0        1        2        4                             15
//	+--------+--------+--------+-----------------------------+-+-------+
//	| status |        | index  | command specific            |C| type  |
//	+--------+--------+--------+-----------------------------+-+-------+
//
// C is the colour: 1 on the first pass over the completion ring, 0 on the next.
//
// A transmit descriptor is 16 bytes:
//
//	 63                         12 11    8 7     4 3     0
//	+-----------------------------+-------+-------+-------+
//	| DMA address of first buffer | nsge  |  op   | flags |  bytes 0-7
//	+-------------+---------------+-------+-------+-------+
//	| len (u16)   | vlan_tci      | csum_start    | csum_offset |  bytes 8-15
//	|             |               | or hdr_len    | or mss      |
//	+-------------+---------------+---------------+-------------+
//
// A receive descriptor is 16 bytes: opcode u8 at 0, len u16 at 6, address u64
// at 8. A receive completion is drawn at [RxCompletion].
package abi

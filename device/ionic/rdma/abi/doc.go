// SPDX-License-Identifier: Apache-2.0

// Package abi holds the byte layouts and constants of the RDMA half of the
// ionic device interface: what ionic_rdma.ko (ionic_fw.h, ionic_if.h) and
// libionic read and write. It knows no behaviour.
//
// The interface mixes byte orders per structure:
//
//	LIF identity, Ethernet admin queue commands   little-endian
//	RDMA admin queue WQE                          little-endian, but priv_flags,
//	                                              attr_mask and access_flags big
//	page tables                                   little-endian 64-bit words
//	SQ and RQ WQE                                 big-endian, but wqe_id little
//	CQE                                           big-endian, but wqe ids little
//	EQE                                           big-endian
//	QUERY_QP results                              big-endian
//	statistics headers                            big-endian
//	doorbell                                      one little-endian 64-bit store
//
// Every layout is a struct in host order with a Put method (the side that
// writes) and a Get method (the side that reads); offsets are bytes from the
// start of the structure and are drawn beside each of them.
package abi

import "encoding/binary"

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

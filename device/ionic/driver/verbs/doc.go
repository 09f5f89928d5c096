// SPDX-License-Identifier: Apache-2.0

// Package verbs is the guest's side of RDMA on an ionic controller: Linux's
// ionic_rdma.ko and the user space provider libionic, in Go, on package driver.
// It has two flavours, as there are two consumers of the device's rings: a
// [Context] made with OpenKernel works as the kernel does (contiguous rings, key
// 0, tokens as receive ids, events at once), one made with OpenUser as the
// provider does (paged rings, a doorbell page of its own, deferred arming).
//
// Completions are read by the consumers' rules, and what would wedge a consumer
// is an error that ends the device: a message number that repeats or runs ahead,
// an unknown completion type, a receive that is not outstanding, an admin
// completion out of order. See driver.Device.Err.
//
// # Rings
//
// A ring has 2^depth entries of 2^stride bytes. The consumer of a completion or
// event ring expects colour 1 on the first lap, then 0, and so on; the colour is
// bit 0 of the last byte of an entry:
//
//	event       4 B  | queue id:24 | code:4 type:3 colour:1 |          big-endian
//	completion 32 B  | by type ... 24 | status/length | id:24 type:3 .. error colour |
//	work       64 B+ | wqe_id LE64 | op | sges | flags | imm/key | by op ... | 32 data or SGEs |
//
// # Two halves
//
// Every completion queue is two queues in the device, one for each of its two
// "udma" engines; a queue pair lives on one of them, which shows in a bit of its
// id, and uses that half of its completion queues.
package verbs

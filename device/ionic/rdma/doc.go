// SPDX-License-Identifier: Apache-2.0

// Package rdma is the RDMA half of the ionic NIC: everything ionic_rdma.ko and
// libionic talk to, around the queue pair core of package qp.
//
//	 LIF admin queue      doorbell page          link
//	 (commands 50-53)     (BAR2 stores)          (packets)
//	       | Command            | Doorbell          | Deliver
//	+------v--------------------v-------------------v-----------------+
//	| Engine                                                          |
//	|   LIF: the objects of one life of the driver                    |
//	|     EQs <- CQs <- admin queues   QPs (actors)   MRs/MWs   AHs   |
//	|              ^        | create, modify, ...  |        ^         |
//	|              +--------|----------------------+--------+         |
//	|                       v                                         |
//	|   scheduler: a few workers run the QPs that have something to do|
//	+-----------------------------------------------------------------+
//	       | EQE, CQE, payload               | interrupts   | packets
//	  guest memory (guestmem)            Interrupts        Link
//
// The driver chooses every id; the engine only accepts those inside what
// Identity announces. A doorbell is decoded, recorded and handed over: it
// waits for nothing. Each admin queue has a goroutine; its commands are
// executed and completed in order and never wait for a peer.
//
// # Life
//
// All objects hang on one lif value. Reset replaces it, then ends the old one
// from the top down: admin queues, QPs, CQs, EQs, memory. When Reset returns
// nothing of the old life reads or writes guest memory or interrupts any more.
package rdma

// SPDX-License-Identifier: Apache-2.0

// Package eth is the Ethernet half of the ionic NIC: one LIF, its port and the
// commands that reach them.
//
//	              commands                     frames
//	BAR0 devcmd ----+                 port.Receive      port.Send
//	                v                      |                ^
//	admin queue -> Exec (ctl lock)         v                |
//	                |                   receive          txQueue
//	                +-- queues          accept, steer    gather, offloads
//	                +-- filters  ---->  rxView              |
//	                +-- link, port      rxQueue             |
//	                v                      |                |
//	         lif_info, port_info           +--- intr.Bank --+
//	            (publisher)
//
// Locks, in the order they are taken:
//
//	LIF.ctl      everything commands change; held while a command runs
//	queue.mu     one queue's ring state; held for a bounded burst of work
//	publisher.mu the two blocks the device keeps current in guest memory
//
// Stopping a queue takes its lock: when Q_CONTROL DISABLE, LIF_RESET, a reset or
// a detach completes, no goroutine is inside that queue and none will enter.
// Doorbells only record an index and wake a worker, so the goroutine that serves
// the guest never waits for frames.
package eth

// SPDX-License-Identifier: Apache-2.0

// Package fabric is the vocabulary of all that lies between two NICs: frames,
// the links that carry them and the counters they keep.
//
// A frame is opaque here. Its Header and Payload belong to whoever speaks
// through the link (the RDMA engine, a LIF, the worker); the fabric knows only
// where it goes (Dst), which frames must keep their order (Flow) and what to
// do when there is no room (Class).
//
// Links:
//
//	none      has no peers: every frame is refused
//	loopback  delivers to the own node
//	mesh      delivers to other workers over gRPC streams, and to the own node
//	faulty    wraps another link and loses, repeats, delays or reorders frames
//
// What a sender may rely on, whatever the link:
//
//   - Frames of one (Src, Dst, Flow) arrive in the order in which Send took
//     them. Nothing is promised between different flows.
//   - Send never blocks. A reliable class that finds no room gets Full and, as
//     soon as there is room, Receiver.Writable; a lossy class is dropped and
//     counted.
//   - Owner.Release is called exactly once for every frame the link took over,
//     on whatever goroutine is done with the bytes last.
//   - A link may lose frames of any class: when a connection breaks, what was
//     on its way is gone. Reliability end to end is the transport's business.
package fabric

// SPDX-License-Identifier: Apache-2.0

// Package mesh is the link between workers: gRPC streams
// (ernic.v1.FabricService/Exchange) with the messages of package wire behind a
// codec that copies nothing.
//
// # Links and lanes
//
// Two nodes share one link of a few lanes. A lane is one TCP connection with
// one stream; flows are hashed onto lanes (fabric.Group), so a flow keeps its
// order and a lost segment holds up a part of the flows only.
//
//	Link -- peer 7 -- lane 0 -- queue --> writer --> SendMsg --> TCP
//	     |         |         <-- Receiver <-- reader <-- RecvMsg <-- TCP
//	     |         `- lane 1 ...
//	     |- peer 9 ...
//	     `- loopback (frames for the own node)
//
// A link is made when a frame needs it, or by Connect. Of two nodes the one
// with the lower id dials, so that two dials never cross; the other one asks
// for it with a short connection of its own (wire.AskForLink). Once made, the
// dialer keeps the link up for as long as the peer is in the directory.
//
// # Sending
//
// Send puts the frame into the lane's queue, bounded and fair between flows
// (package queue). A lane hands at most maxOutstanding batches to gRPC: while
// those are on their way frames gather, and the next batch takes all that
// gathered; nothing ever waits in order to be batched. A frame that finds its
// lane idle is handed to gRPC by the sending goroutine itself. That does not
// block: the stream's write quota is untouched when no batch is outstanding.
//
// # Receiving
//
// A slabPool per connection hands gRPC adjacent pieces of one slab for the
// DATA frames of a message, so that the payload is contiguous without a copy.
// The reader decodes and calls the Receiver; it never writes. Answers that the
// protocol needs (pong) are left in the lane for its writer.
//
// # Copies
//
// gRPC copies what it writes into a buffer, and what it reads out of another
// one. Without encryption both are off, and a plainConn does their work: it
// collects the pieces of a message and writes them with one system call, from
// where they are (gather), and reads the rest of a message with one system
// call, to where gRPC will want it (scatter). An Owner is then released when
// its bytes are in the socket, not when gRPC is done with them. TLS copies
// anyway; its connections keep gRPC's buffers.
//
// # Failure
//
// A lane that has heard nothing for Timing.DeadAfter although it pinged is
// cut. Frames that were on a cut connection are lost; frames still queued wait
// for the attempt that follows at once and are dropped, and counted, if it
// fails. A new connection of a lane delivers only after the reader of the old
// one has ended: order holds across a reconnect.
//
// # Locks
//
// lane.mu guards a lane's queue and connection, peer.mu a peer's state,
// Link.mu the set of peers; taken in the order Link.mu, peer.mu, lane.mu. The
// sending path takes lane.mu only. None is held while the Receiver, an Owner
// or gRPC is called.
package mesh

// SPDX-License-Identifier: Apache-2.0

// Package queue holds frames that wait for a connection: bounded in memory,
// first in first out within a flow, fair between flows.
//
// Flows are hashed into fabric.Groups groups (fabric.Group). Each group is a
// list of its own; Pop visits the groups that hold something in turn and takes
// at most one quantum of bytes at a visit. A flow that sends in bulk therefore
// delays a frame of another group by one quantum, not by all it has queued.
//
// Groups that hold little, acknowledgements and single small messages, go
// before those that hold much: with many bulk flows a round of quanta takes
// longer than the peer of an acknowledgement may want to wait. A heavy group
// has its turn after 64 KiB of light ones at the latest.
//
//	             +-- group 0 --> [f][f]                 \
//	Push(f) -----+-- group 1 -->                         >-- Pop, round robin
//	 by f.Flow   +-- group 2 --> [f][f][f][f][f]        /
//	             +-- ...                                    light ones first
//
// Room is counted in bytes with a fixed surcharge per frame, so that the bound
// holds for small frames too. Three limits apply:
//
//   - a group may hold Limits.Group bytes;
//   - the reliable classes together may hold Limits.Reliable bytes; a group
//     that has nothing waiting may exceed that, up to twice the limit, so that
//     bulk flows cannot shut a quiet one out;
//   - the lossy classes together may hold Limits.Lossy bytes: neither side can
//     starve the other.
//
// A refused reliable frame marks its group as starved. TakeRoom returns the
// starved groups that have room again, once each; hysteresis (half a group,
// three quarters of the class limit) keeps that from happening per frame.
package queue

// SPDX-License-Identifier: Apache-2.0

// Package meshport is the wire of a LIF that has no TAP: a port of a learning
// switch that is spread over the workers of a mesh. Each worker is one port of
// the switch; what lies between them is the fabric.
//
//	guest A - LIF - Port ===== fabric, class Ethernet ===== Port - LIF - guest B
//	                    \================================== Port - LIF - guest C
//
// A frame for an address that a node claims, or that a node was seen to send from,
// goes to that node; any other goes to all nodes. What comes from a node goes to
// the guest and nowhere else, so there are no loops. Frames of one flow keep their
// order.
//
// Peers are not trusted. A node cannot send from an address that the guest here or
// another node claims, cannot take over an address that another one uses, and
// cannot fill the table of addresses or the guest with frames for everybody: the
// entries of a node and its flooded frames per second are bounded, and what goes
// beyond is dropped and counted. The frames of the guest for everybody are bounded
// in the same way.
//
// On the fabric a frame is the payload, and what is left to do in it the header:
//
//	 0         1       2            4             6        8
//	| version | flags | csum start | csum offset | size   |
//
//	version  1
//	flags    bit 0: the checksum is open; bits 1 and 2: segmentation,
//	         0 none, 1 TCP over IPv4, 2 TCP over IPv6; bit 3, alone: there is no
//	         frame, and the LIF of the sender is not on the mesh
//	size     payload bytes of a segment
//
// All numbers are big-endian.
package meshport

// SPDX-License-Identifier: Apache-2.0

// Package gossip is the pool in which the manager and the workers of a mesh see each other without asking the manager:
// hashicorp/memberlist, which is SWIM with Lifeguard.
//
//	manager --meta-----.        .--meta, record-- worker 1
//	                    >-pool-<
//	                   '        `--meta, record-- worker 2
//
// Two things are taken from it. Who is alive is a second witness: the manager gives a node up only if the pool does not
// see it either. What a worker says of itself, its record (node id, address, claims), reaches all others also while the
// manager is away.
//
// The meta of a member is small and goes with every message about it. A record that fits into a datagram is broadcast when
// it changes; all records are compared when two members exchange their state over TCP, which is also how large ones
// travel. A record is only taken from a version that is newer, and only while its maker is a member.
//
// The pool is as trustworthy as its key: whoever has it can say anything about anybody. What comes from it is therefore
// used only where the manager has no say.
package gossip

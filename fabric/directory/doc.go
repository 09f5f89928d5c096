// SPDX-License-Identifier: Apache-2.0

// Package directory answers, at send time, which node owns an address and
// where a node listens.
//
// One writer feeds it with changes (the worker from its manager session, a
// test from a literal). Readers take no lock: nodes are one immutable map,
// routes are immutable maps in shards, and a change replaces the maps it
// touches.
//
//	Apply(Change) --> [nodes map] [shard 0] ... [shard 63] --> Generation+1
//
// A sender keeps (generation, node) beside its destination and looks up again
// when Generation differs. It must read the generation before it looks up:
// then a change during the lookup shows as a new generation later, and a stale
// answer never lasts.
//
// Whoever feeds the directory has settled conflicts: a GID that several nodes
// claim has no route here.
package directory

// SPDX-License-Identifier: Apache-2.0

// Package session is a worker's side of its session with the manager. It registers, sends heartbeats and claims, and
// keeps the worker's view of the mesh: who is there, and which address belongs to whom.
//
//	      cannot connect, or refused: wait, longer each time
//	     +------------------------------------------+
//	     v                                          |
//	connecting ---stream---> registering ---Registered---> registered
//	     ^                                                     |
//	     +------ stream ends, or nothing came for three -------+
//	             health intervals: register under the same id
//
// A worker that loses its manager keeps its id, its view and its claims, and asks again for ever. It only becomes another
// node if the manager says that its id is another's or was evicted.
//
// The data path reads the view through one atomic pointer. A view never changes: every update makes a new one that shares
// with the old one what stayed the same.
package session

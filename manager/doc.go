// SPDX-License-Identifier: Apache-2.0

// Package manager is node 0 of a mesh: the gRPC service around the state machine in manager/core.
//
//	worker ==Session==> reader --events--> +------+ --changes--> store
//	                                       | loop | --effects--> writer ==Session==> worker
//	worker ==Session==> reader --events--> +------+
//	                     ticker ------------^   | revision
//	                                            v
//	                                     writers ask the core what has changed since the revision they sent last
//
// One goroutine, the loop, feeds the core. It takes what has queued up, stores the changes of all of it in one commit and
// only then lets the effects out: whatever a worker was told survives the manager. Changes of the mesh are not pushed:
// a writer that was busy finds a larger difference when it is done, so that a worker which reads slowly costs no memory
// and delays nobody.
//
// A Server is one manager with a store of its own. A Standby is one of several that share a store (package etcd): it waits to
// be elected, is a Server for a term, and sends everybody to the one that leads for the rest of its time. What a Server
// stores after its term is over is refused by the store, and the Server ends without having told anybody of it.
//
// Where two workers cannot reach each other the manager joins two streams of theirs (relay.go). Otherwise no payload comes
// here.
package manager

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
package manager

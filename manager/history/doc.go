// SPDX-License-Identifier: Apache-2.0

// Package history holds a mesh to what it promises of its addresses, whatever happens to it. It is a model beside the
// manager, which shares no code with it: it looks at the views that the manager and the workers had, and says what cannot
// be.
//
//   - At any revision an address resolves to one node, and that one is live, or to none.
//   - All who are at one revision of one history see the same, before and after a restart, on whichever host.
//   - A claim is active if it is the only one of a live node to its address, in conflict if there are several, withdrawn if
//     its node is not live.
//
// The model is fed by a test that drives the core of a manager, or by a Recorder that listens to the processes of a real
// mesh while a test does something to them:
//
//	r := history.Record(manager)      // ernic.v1.ManagerService; it may go away and come back
//	r.Worker("w1", worker)            // ernic.v1.WorkerService, as often as the test likes
//	...
//	err := r.Stop()                   // what cannot be, nil if all is well
package history

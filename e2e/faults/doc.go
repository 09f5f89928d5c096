// SPDX-License-Identifier: Apache-2.0

// Package faults does to a mesh what machines, cables and operators do, and looks whether it is whole again: a manager and
// workers as processes, each on a host of its own with a cable to one switch.
//
//	                    +-- netns hosts: one each --------------+
//	switch (bridge) ----+ manager 10.97.0.1   w1 .11   w2 .12    |   TLS with certificates of one authority,
//	                    +----------------------|---------|-------+   gossip with one key
//	                                      vfio-user sockets
//	                                           |         |
//	                                      Go driver   Go driver
//
// After every fault the time until the mesh is whole is logged, claims are compared with what they must be, data goes both
// ways and is compared byte by byte, and no process may hold more descriptors than before. It needs root, iproute2 and no
// packet from anywhere else.
package faults

// SPDX-License-Identifier: Apache-2.0

// Package worker is the composition root of one NIC: it joins the device that
// a guest sees (vfio-user server, ionic NIC, TAP) to the fabric that carries
// its packets and to the session with the manager.
//
//	QEMU --unix socket-- vfiouser.Server -- ionic.NIC -- tap.Port
//	                                          |
//	                                     rdma.Engine
//	                                          | packet
//	                                       carrier   --- who answers for a GID? --- session.Mesh, addresses
//	                                          | frame
//	                            fabric none | loopback | mesh
//
// The device package and the fabric do not know each other; carrier translates
// between a packet with a GID and a frame with a node id.
package worker

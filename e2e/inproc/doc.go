// SPDX-License-Identifier: Apache-2.0

// Package inproc proves the whole product inside one go test, without a virtual
// machine: real workers on real unix sockets, a real manager and the mesh over
// loopback TCP, and guests made of the Go driver. One table of scenarios runs
// over the loopback link and over the mesh, from processes and from the kernel.
package inproc

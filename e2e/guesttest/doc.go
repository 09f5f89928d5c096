// SPDX-License-Identifier: Apache-2.0

// Package guesttest proves the product in real guests: the upstream ionic
// drivers, rdma-core and perftest of a distribution, two virtual machines, two
// workers and a manager. Nothing here is replaced by a stand-in; a missing
// tool or a guest that does not boot is a failure.
//
// The tests share one site and run in the order of the files' names, since a
// boot is what takes time.
package guesttest

// SPDX-License-Identifier: Apache-2.0

// Package ethernet tests the Ethernet half in real guests, over the mesh and over
// TAPs: what travels, bit by bit; what the tools of an administrator do; which
// offloads are used; how the carrier follows the host; what a NIC goes through from
// being plugged in to its guest's reboot; and that every key of a NIC profile has its
// effect. With -long lifecycles are repeated 20 times.
package ethernet

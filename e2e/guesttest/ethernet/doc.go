// SPDX-License-Identifier: Apache-2.0

// Package ethernet tests the Ethernet half in real guests, over the mesh and over
// TAPs: what travels, how the carrier follows the host, and which offloads are
// used.
package ethernet

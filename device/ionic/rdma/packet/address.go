// SPDX-License-Identifier: Apache-2.0

package packet

// Address is where a packet goes: what a header template names. Who answers
// for it is looked up by the link at every send, so an address that moves is
// followed.
type Address struct {
	GID [16]byte
	MAC [6]byte
}

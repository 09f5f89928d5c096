// SPDX-License-Identifier: Apache-2.0

package meshport

import "sync/atomic"

// Counters of a port. Frames are those of the guest (tx) and of peers (rx).
type Counters struct {
	TxUnicast  atomic.Uint64 // frames sent to the node that has the address
	TxFlooded  atomic.Uint64 // frames sent to every node
	TxCopies   atomic.Uint64 // of these, copies sent
	TxStorm    atomic.Uint64 // frames for everybody beyond the rate, dropped
	TxLocal    atomic.Uint64 // frames for an address of the guest itself, dropped
	TxLost     atomic.Uint64 // frames and copies that the fabric did not take
	TxNoMesh   atomic.Uint64 // frames sent without a mesh, dropped
	TxOversize atomic.Uint64 // frames larger than the wire takes, dropped

	RxFrames   atomic.Uint64 // frames handed to the LIF
	RxStorm    atomic.Uint64 // frames for everybody beyond the rate of their node, dropped
	RxSpoofed  atomic.Uint64 // frames from an address that is not their node's, dropped
	RxBad      atomic.Uint64 // frames that are none, or of a kind unknown here, dropped
	RxFull     atomic.Uint64 // frames that the LIF did not take in time, dropped
	RxStranger atomic.Uint64 // frames from a node that is not in the mesh, dropped
	RxAbsent   atomic.Uint64 // nodes that said they have no LIF on the mesh
	Unlearned  atomic.Uint64 // addresses that found no room in the table
}

// Each calls f with the name and the value of every counter.
func (c *Counters) Each(f func(name string, value uint64)) {
	for _, e := range []struct {
		name string
		c    *atomic.Uint64
	}{
		{"tx_unicast", &c.TxUnicast}, {"tx_flooded", &c.TxFlooded}, {"tx_copies", &c.TxCopies},
		{"tx_drop_storm", &c.TxStorm}, {"tx_drop_local", &c.TxLocal}, {"tx_drop_lost", &c.TxLost},
		{"tx_drop_no_mesh", &c.TxNoMesh}, {"tx_drop_oversize", &c.TxOversize},
		{"rx_frames", &c.RxFrames}, {"rx_drop_storm", &c.RxStorm}, {"rx_drop_spoofed", &c.RxSpoofed},
		{"rx_drop_bad", &c.RxBad}, {"rx_drop_full", &c.RxFull}, {"rx_drop_stranger", &c.RxStranger},
		{"rx_absent", &c.RxAbsent}, {"unlearned", &c.Unlearned},
	} {
		f(e.name, e.c.Load())
	}
}

// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/ionic/eth/gso"
	"github.com/ernic-dev/ernic/device/netport"
)

// A port that takes frames to be cut gets the packet as it was before the driver
// cut it: the headers and all payloads behind one another.

// tcpCsum is where the checksum stands in a TCP header.
const tcpCsum = 16

// join adds the segment of one TSO descriptor to the packet and sends it with the
// last one.
func (q *txQueue) join(d *abi.TxDesc, slot uint32, first, last bool) abi.LIFStat {
	t := &q.tso
	f := q.frame[txHeadroom:]
	n, why := q.gather(d, slot, f[t.len:])
	if why != 0 {
		return why
	}
	payload := n
	if first {
		payload -= t.n
	}
	// The driver cuts at the segment size; other pieces could not be cut again.
	if t.size == 0 || payload > t.size || payload < t.size && !last {
		return abi.TxDescDataError
	}
	t.len += n
	if last && !q.sendJoined(d, f[:t.len]) {
		return abi.TxDescDataError
	}
	return 0
}

// sendJoined fills the header fields of the whole packet f and sends it. It
// reports whether f is a TCP packet with the headers that the descriptors claim.
func (q *txQueue) sendJoined(d *abi.TxDesc, f []byte) bool {
	t := &q.tso
	i := flow.Parse(f)
	n, ok := gso.HeaderLen(f, &i)
	if !ok || n != t.n || !gso.FinishIP(f, &i, len(f)) {
		return false
	}
	length := len(f) - i.L4
	if length > 0xffff {
		return false
	}
	le.PutUint16(f[i.L4+tcpCsum:], gso.Pseudo(f, &i, length))
	o := netport.Offload{Checksum: true, CsumStart: uint16(i.L4), CsumOffset: tcpCsum}
	if len(f)-n > t.size {
		o.Size, o.Segment = uint16(t.size), netport.SegmentTCP4
		if i.IP == 6 {
			o.Segment = netport.SegmentTCP6
		}
	}
	q.offload = o
	q.send(len(f), d)
	return true
}

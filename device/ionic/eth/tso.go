// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/ionic/eth/gso"
)

// The driver cuts a TCP packet itself: each descriptor with its elements is one
// segment on the wire. The first (SOT) starts with the headers, the others are
// payload only, the last has EOT. The device repeats the headers with the fields
// that change.

// maxTSOHeader is the longest header chain.
const maxTSOHeader = gso.MaxHeader

// tsoState is the chain under way.
type tsoState struct {
	open    bool // between SOT and EOT
	bad     bool // the chain is broken; its rest is thrown away
	n       int  // header bytes
	segs    uint16
	payload uint32 // bytes sent so far
	len     int    // bytes of the whole packet so far, when it is joined
	size    int    // payload of every segment but the last, when it is joined
	header  [maxTSOHeader]byte
}

// Bits of the TCP flags byte.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// segment sends the segment of one TSO descriptor. Holds mu.
func (q *txQueue) segment(d *abi.TxDesc, slot uint32) {
	t := &q.tso
	first, last := d.Flags&abi.TxFlagSOT != 0, d.Flags&abi.TxFlagEOT != 0
	if first {
		t.open, t.bad, t.n, t.segs, t.payload = true, false, int(d.CsumStart), 0, 0
		t.len, t.size = 0, int(d.CsumOffset)
	}
	if !t.open || q.lif.cfg.Offload&abi.FeatureTSO == 0 {
		q.count.lif[abi.TxDescDataError].Add(1)
		t.open = false
		return
	}
	if !t.bad {
		why := abi.LIFStat(0)
		if q.lif.offloader != nil {
			why = q.join(d, slot, first, last)
		} else {
			why = q.tsoFrame(d, slot, first, last)
		}
		if why != 0 {
			q.count.lif[why].Add(1)
			t.bad = true
		}
	}
	t.open = !last
}

// tsoFrame builds and sends one segment.
func (q *txQueue) tsoFrame(d *abi.TxDesc, slot uint32, first, last bool) abi.LIFStat {
	t := &q.tso
	if t.n < flow.EthHeader || t.n > maxTSOHeader || t.n > len(q.frame)-txHeadroom {
		return abi.TxDescDataError
	}
	f := q.frame[txHeadroom:]
	var n int
	var why abi.LIFStat
	if first {
		if n, why = q.gather(d, slot, f); why != 0 {
			return why
		}
		if n < t.n {
			return abi.TxDescDataError
		}
		copy(t.header[:t.n], f)
	} else {
		copy(f, t.header[:t.n])
		if n, why = q.gather(d, slot, f[t.n:]); why != 0 {
			return why
		}
		n += t.n
	}
	if !finishSegment(f[:n], t, first, last) {
		return abi.TxDescDataError
	}
	t.segs++
	t.payload += uint32(n - t.n)
	q.send(n, d)
	return 0
}

// finishSegment fills the header fields of segment f: lengths, IPv4
// identification and checksum, TCP sequence number, flags and checksum. The
// driver leaves the TCP checksum field as the pseudo header's sum without the
// length.
func finishSegment(f []byte, t *tsoState, first, last bool) bool {
	i := flow.Parse(f[:t.n])
	if i.IP == 0 || i.Proto != flow.ProtoTCP || !i.Ports || i.L4+20 > t.n {
		return false
	}
	if i.IP == 4 {
		ip := f[i.L3:]
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+t.segs)
	}
	if !gso.FinishIP(f, &i, len(f)) {
		return false
	}
	tcp := f[i.L4:]
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+t.payload)
	if !first {
		tcp[13] &^= tcpCWR
	}
	if !last {
		tcp[13] &^= tcpFIN | tcpPSH
	}
	var length [2]byte
	binary.BigEndian.PutUint16(length[:], uint16(len(tcp)))
	binary.LittleEndian.PutUint16(tcp[16:], ^flow.Add(flow.Sum(tcp), flow.Sum(length[:])))
	return true
}

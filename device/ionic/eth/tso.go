// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
)

// The driver cuts a TCP packet itself: each descriptor with its elements is one
// segment on the wire. The first (SOT) starts with the headers, the others are
// payload only, the last has EOT. The device repeats the headers with the fields
// that change.

// maxTSOHeader is the longest header chain: Ethernet, tag, IPv6 with extensions
// or IPv4 with options, TCP with options.
const maxTSOHeader = 256

// tsoState is the chain under way.
type tsoState struct {
	open    bool // between SOT and EOT
	bad     bool // the chain is broken; its rest is thrown away
	n       int  // header bytes
	segs    uint16
	payload uint32 // bytes sent so far
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
	}
	if !t.open || q.lif.cfg.Offload&abi.FeatureTSO == 0 {
		q.count.lif[abi.TxDescDataError].Add(1)
		t.open = false
		return
	}
	if !t.bad {
		if why := q.tsoFrame(d, slot, first, last); why != 0 {
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
	ip := f[i.L3:]
	switch i.IP {
	case 4:
		if len(ip) > 0xffff {
			return false
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+t.segs)
		ip[10], ip[11] = 0, 0
		binary.LittleEndian.PutUint16(ip[10:], ^flow.Sum(ip[:i.L4-i.L3]))
	case 6:
		if len(ip)-40 > 0xffff {
			return false
		}
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
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
	sum := uint32(flow.Sum(tcp)) + uint32(flow.Sum(length[:]))
	binary.LittleEndian.PutUint16(tcp[16:], ^uint16(sum>>16+sum&0xffff))
	return true
}

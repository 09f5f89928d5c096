// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
)

// transmit gathers and sends the frame of one descriptor. Whatever goes wrong is
// counted; the descriptor is consumed in any case. Holds mu.
func (q *txQueue) transmit(d *abi.TxDesc, slot uint32) {
	if d.Op == abi.TxTSO {
		q.segment(d, slot)
		return
	}
	q.tso = tsoState{} // a chain that another opcode interrupts is over
	if d.Op != abi.TxCsumNone && d.Op != abi.TxCsumPartial {
		q.count.lif[abi.TxDescDataError].Add(1)
		return
	}
	n, why := q.gather(d, slot, q.frame[txHeadroom:][:q.lif.maxFrame])
	if why != 0 {
		q.count.lif[why].Add(1)
		return
	}
	f := q.frame[txHeadroom : txHeadroom+n]
	if n < flow.EthHeader || d.Op == abi.TxCsumPartial && !q.checksum(f, d) {
		q.count.lif[abi.TxDescDataError].Add(1)
		return
	}
	q.send(n, d)
}

// checksum does what CHECKSUM_PARTIAL asks for, or leaves it to whoever needs the
// frame finished. It reports whether the checksum lies in the frame.
func (q *txQueue) checksum(f []byte, d *abi.TxDesc) bool {
	start, offset := int(d.CsumStart), int(d.CsumOffset)
	if q.lif.offloader == nil || (start|offset)%2 != 0 {
		return flow.FillChecksum(f, start, offset)
	}
	q.offload = netport.Offload{Checksum: true, CsumStart: d.CsumStart, CsumOffset: d.CsumOffset}
	return start+offset+2 <= len(f)
}

// gather copies the buffers of a descriptor to dst and returns the number of
// bytes, or the counter of what is wrong.
func (q *txQueue) gather(d *abi.TxDesc, slot uint32, dst []byte) (n int, why abi.LIFStat) {
	if d.Len == 0 || int(d.SGs) > q.sgMax {
		return 0, abi.TxDescDataError
	}
	if n, why = q.append(dst, 0, d.Addr, d.Len); why != 0 || d.SGs == 0 {
		return n, why
	}
	sg := q.sg[:int(d.SGs)*abi.SGElemSize]
	if q.sgs == 0 || q.mem.ReadAt(sg, q.sgs+uint64(slot)*q.sgSize) != nil {
		return 0, abi.TxDescFetchError
	}
	for i := range int(d.SGs) {
		e := abi.DecodeSGElem(sg, i)
		if e.Len == 0 {
			return 0, abi.TxDescDataError
		}
		if n, why = q.append(dst, n, e.Addr, e.Len); why != 0 {
			return n, why
		}
	}
	return n, 0
}

func (q *txQueue) append(dst []byte, n int, addr uint64, size uint16) (int, abi.LIFStat) {
	end := n + int(size)
	if end > len(dst) {
		return n, abi.TxDescDataError
	}
	if q.mem.ReadAt(dst[n:end], addr) != nil {
		return n, abi.TxDMAError
	}
	return end, 0
}

// send passes on the n bytes behind the headroom, with the descriptor's tag
// inserted and q.offload's work left in them.
func (q *txQueue) send(n int, d *abi.TxDesc) {
	f := q.frame[txHeadroom : txHeadroom+n]
	o := q.offload
	q.offload = netport.Offload{}
	if d.Flags&abi.TxFlagVLAN != 0 {
		f = q.frame[:txHeadroom+n]
		copy(f[0:12], f[txHeadroom:txHeadroom+12])
		f[12], f[13] = flow.TypeVLAN>>8, flow.TypeVLAN&0xff
		f[14], f[15] = byte(d.VLAN>>8), byte(d.VLAN)
		if !o.None() {
			o.CsumStart += tagLen
		}
	}
	q.pass(f, &o)
}

// pass gives a frame to the port and counts it.
func (q *txQueue) pass(f []byte, o *netport.Offload) {
	l := q.lif
	c := classOf(f)
	sent := true
	switch {
	case l.cfg.Port == nil:
	case !l.view.Load().up:
		sent = false
	case o.None():
		sent = l.cfg.Port.Send(q.index, f) == nil
	default:
		q.handed = *o // what an interface's method is given must not be on the stack
		sent = l.offloader.SendOffload(q.index, f, &q.handed) == nil
	}
	// A packet that is cut on its way is as many frames on the wire.
	size, rest, times := len(f), 0, uint64(1)
	if o.Segment != netport.SegmentNone {
		header := q.tso.n + len(f) - q.tso.len
		payload := len(f) - header
		size, times, rest = header+int(o.Size), uint64(payload/int(o.Size)), payload%int(o.Size)
		if rest > 0 {
			rest += header
		}
	}
	if !sent {
		q.count.transmitRefused(size, c, times)
		if rest > 0 {
			q.count.transmitRefused(rest, c, 1)
		}
		return
	}
	q.count.transmitted(f, size, c, times)
	if rest > 0 {
		q.count.transmitted(f, rest, c, 1)
	}
	if l.observer != nil {
		i := flow.Parse(f)
		l.observer.Frame(f, &i, l.own.Load())
	}
}

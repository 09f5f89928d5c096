// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
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
	n, why := q.gather(d, slot, q.frame[txHeadroom:])
	if why != 0 {
		q.count.lif[why].Add(1)
		return
	}
	f := q.frame[txHeadroom : txHeadroom+n]
	if n < flow.EthHeader ||
		d.Op == abi.TxCsumPartial && !flow.FillChecksum(f, int(d.CsumStart), int(d.CsumOffset)) {
		q.count.lif[abi.TxDescDataError].Add(1)
		return
	}
	q.send(n, d)
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
// inserted.
func (q *txQueue) send(n int, d *abi.TxDesc) {
	f := q.frame[txHeadroom : txHeadroom+n]
	if d.Flags&abi.TxFlagVLAN != 0 {
		f = q.frame[:txHeadroom+n]
		copy(f[0:12], f[txHeadroom:txHeadroom+12])
		f[12], f[13] = flow.TypeVLAN>>8, flow.TypeVLAN&0xff
		f[14], f[15] = byte(d.VLAN>>8), byte(d.VLAN)
	}
	l := q.lif
	c := classOf(f)
	if l.cfg.Port != nil && (!l.view.Load().up || l.cfg.Port.Send(q.index, f) != nil) {
		q.count.transmitRefused(f, c)
		return
	}
	q.count.transmitted(f, c)
	if l.observer != nil {
		i := flow.Parse(f)
		l.observer.Frame(f, &i, l.own.Load())
	}
}

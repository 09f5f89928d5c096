// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/abi"
)

// castClass classes a frame by its destination address.
type castClass uint8

const (
	unicast castClass = iota
	multicast
	broadcast
)

func classOf(dst []byte) castClass {
	if dst[0]&1 == 0 {
		return unicast
	}
	if [6]byte(dst) == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} {
		return broadcast
	}
	return multicast
}

// shard holds the counters of one worker, so that workers do not share cache
// lines. Counters that are sums of others (all, ok, octets of good frames) are
// derived when the blocks are written.
type shard struct {
	lif  [abi.LIFStatEthEnd]atomic.Uint64
	port [abi.NumPortStats]atomic.Uint64
	_    [64]byte
}

// counters is every counter of the LIF and its port.
type counters struct {
	shards  []shard // transmit queues, then receive goroutines, then control
	tx      int
	refused atomic.Uint64 // commands answered with an error
}

func (c *counters) init(txQueues, readers int) {
	c.shards = make([]shard, txQueues+readers+1)
	c.tx = txQueues
}

func (c *counters) txShard(i int) *shard { return &c.shards[i] }
func (c *counters) rxShard(i int) *shard { return &c.shards[c.tx+i] }
func (c *counters) control() *shard      { return &c.shards[len(c.shards)-1] }

// reset zeroes everything, as a device reset does.
func (c *counters) reset() {
	c.resetLIF()
	c.resetPort()
}

func (c *counters) resetLIF() {
	for i := range c.shards {
		for k := range c.shards[i].lif {
			c.shards[i].lif[k].Store(0)
		}
	}
}

func (c *counters) resetPort() {
	for i := range c.shards {
		for k := range c.shards[i].port {
			c.shards[i].port[k].Store(0)
		}
	}
}

// sumLIF adds the Ethernet counters to out.
func (c *counters) sumLIF(out *[abi.NumLIFStats]uint64) {
	for i := range c.shards {
		for k := range c.shards[i].lif {
			out[k] += c.shards[i].lif[k].Load()
		}
	}
}

// sumPort returns the port counters in out.
func (c *counters) sumPort(out *[abi.NumPortStats]uint64) {
	for i := range c.shards {
		for k := range c.shards[i].port {
			out[k] += c.shards[i].port[k].Load()
		}
	}
	out[abi.FramesRxOK] = out[abi.FramesRxUnicast] + out[abi.FramesRxMulticast] + out[abi.FramesRxBroadcast]
	out[abi.FramesRxAll] = out[abi.FramesRxOK] + out[abi.FramesRxBadAll]
	out[abi.OctetsRxAll] += out[abi.OctetsRxOK]
	out[abi.FramesTxOK] = out[abi.FramesTxUnicast] + out[abi.FramesTxMulticast] + out[abi.FramesTxBroadcast]
	out[abi.FramesTxAll] = out[abi.FramesTxOK] + out[abi.FramesTxBad]
	out[abi.OctetsTxTotal] = out[abi.OctetsTxOK]
}

// wireLen is the length of a frame of n bytes at the MAC: padded to 60, plus FCS.
func wireLen(n int) int { return max(n, 60) + 4 }

// priority returns the priority of a frame from its tag, 0 without one, and
// whether it is tagged: 0x8100, or an outer 0x88a8.
func priority(f []byte) (pri uint8, tagged bool) {
	t := uint16(f[12])<<8 | uint16(f[13])
	if (t == 0x8100 || t == 0x88a8) && len(f) >= 16 {
		return f[14] >> 5, true
	}
	return 0, false
}

// transmitted counts times frames of size bytes each that left. f is the start of
// one.
func (s *shard) transmitted(f []byte, size int, c castClass, times uint64) {
	n := wireLen(size)
	s.lif[abi.TxUcastBytes+2*abi.LIFStat(c)].Add(uint64(size) * times)
	s.lif[abi.TxUcastPackets+2*abi.LIFStat(c)].Add(times)
	s.port[abi.FramesTxUnicast+abi.PortStat(c)].Add(times)
	s.port[abi.OctetsTxOK].Add(uint64(n) * times)
	s.port[abi.FramesTx64+abi.SizeBucket(n)].Add(times)
	pri, tagged := priority(f)
	s.port[abi.FramesTxPri0+abi.PortStat(pri)].Add(times)
	if tagged {
		s.port[abi.FramesTxVLAN].Add(times)
	}
}

// transmitRefused counts times frames of size bytes each that the port did not
// take.
func (s *shard) transmitRefused(size int, c castClass, times uint64) {
	s.lif[abi.TxUcastDropBytes+2*abi.LIFStat(c)].Add(uint64(size) * times)
	s.lif[abi.TxUcastDropPackets+2*abi.LIFStat(c)].Add(times)
}

// arrived counts a good frame of size bytes at the port. f is its start.
func (s *shard) arrived(f []byte, size int, c castClass) {
	n := wireLen(size)
	s.port[abi.FramesRxUnicast+abi.PortStat(c)].Add(1)
	s.port[abi.OctetsRxOK].Add(uint64(n))
	s.port[abi.FramesRx64+abi.SizeBucket(n)].Add(1)
	pri, tagged := priority(f)
	s.port[abi.FramesRxPri0+abi.PortStat(pri)].Add(1)
	if tagged {
		s.port[abi.FramesRxVLANGood].Add(1)
	}
}

// tooLong counts a frame of size bytes, over the port's maximum; the MAC drops it.
func (s *shard) tooLong(size int) {
	s.port[abi.FramesRxTooLong].Add(1)
	s.port[abi.FramesRxOversized].Add(1)
	s.port[abi.FramesRxBadAll].Add(1)
	s.port[abi.OctetsRxAll].Add(uint64(wireLen(size))) // over those of the good frames
}

// bad counts a frame of size bytes without a whole Ethernet header, or one that is
// not what its sender says of it.
func (s *shard) bad(size int) {
	s.port[abi.FramesRxBadLength].Add(1)
	s.port[abi.FramesRxBadAll].Add(1)
	s.port[abi.OctetsRxAll].Add(uint64(wireLen(size)))
}

// received counts a frame delivered to the guest, n bytes as delivered.
func (s *shard) received(n int, c castClass) {
	s.lif[abi.RxUcastBytes+2*abi.LIFStat(c)].Add(uint64(n))
	s.lif[abi.RxUcastPackets+2*abi.LIFStat(c)].Add(1)
}

// receiveDropped counts a frame meant for the guest that did not reach it, and
// why.
func (s *shard) receiveDropped(n int, c castClass, why abi.LIFStat) {
	s.lif[abi.RxUcastDropBytes+2*abi.LIFStat(c)].Add(uint64(n))
	s.lif[abi.RxUcastDropPackets+2*abi.LIFStat(c)].Add(1)
	s.lif[why].Add(1)
}

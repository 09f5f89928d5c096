// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"errors"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
)

const (
	rxBatch = 32
	// rxSlack is room behind the largest frame, so that a longer one is seen to
	// be longer.
	rxSlack = 64
	// portRetry is how long a receive goroutine waits after an error of the port.
	portRetry = time.Second
)

// touched is the set of queues a batch went to.
type touched [(MaxQueues + 63) / 64]uint64

// receiveLoop moves frames from queue q of the port to the guest until the port
// is closed.
func (l *LIF) receiveLoop(q int) {
	p := l.cfg.Port
	batch := netport.NewBatch(rxBatch, l.maxFrame+rxSlack)
	s := l.count.rxShard(q)
	failing := false
	for {
		n, err := p.Receive(q, batch)
		if errors.Is(err, netport.ErrClosed) {
			return
		}
		if err != nil {
			if !failing {
				l.log.Error().Str("side", "host").Str("port", p.Name()).Int("queue", q).Err(err).
					Msg("receiving from the port failed, trying again every second")
			}
			failing = true
			select {
			case <-l.done:
				return
			case <-time.After(portRetry):
			}
			continue
		}
		if failing {
			failing = false
			l.log.Info().Str("port", p.Name()).Int("queue", q).Msg("receiving from the port again")
		}
		v := l.view.Load()
		var t touched
		for i := range n {
			l.receive(v, s, batch.Frame(i), &t)
		}
		for k, w := range t {
			for b := 0; w != 0; b, w = b+1, w>>1 {
				if w&1 != 0 {
					l.rx[k*64+b].flush()
				}
			}
		}
	}
}

// receive takes one frame from the port. The frame's buffer may be changed.
func (l *LIF) receive(v *rxView, s *shard, f []byte, t *touched) {
	switch {
	case !v.up:
		return // no driver, or no link: nothing arrives
	case len(f) < flow.EthHeader:
		s.runt(f)
		return
	case len(f) > l.maxFrame:
		s.tooLong(f)
		return
	}
	class := classOf(f)
	s.arrived(f, class)
	i := flow.Parse(f)
	if !v.accept(f, &i, class) {
		return
	}
	q, hash := v.steer(f, &i)
	var c abi.RxCompletion
	if v.features != 0 {
		f = v.offload(f, &i, hash, &c)
	}
	why := abi.RxQueueDisabled
	if q != nil {
		why = q.deliver(f, &c)
	}
	switch why {
	case delivered:
		s.received(len(f), class)
		t[q.index/64] |= 1 << (q.index % 64)
	case abi.RxQueueDisabled:
		// With all queues disabled the interface is down, which is no error.
		if len(v.enabled) > 0 {
			s.lif[abi.RxQueueDisabled].Add(1)
		}
	case abi.RxQueueEmpty:
		s.receiveDropped(len(f), class, why)
		s.port[abi.FramesRxDropped].Add(1)
	case abi.RxDescDataError:
		s.receiveDropped(len(f), class, why)
		t[q.index/64] |= 1 << (q.index % 64)
	default:
		s.lif[why].Add(1)
		t[q.index/64] |= 1 << (q.index % 64)
	}
}

// offload does for a frame what the guest asked for: VLAN stripping, checksum
// and hash. It returns the frame as it is to be delivered.
func (v *rxView) offload(f []byte, i *flow.Info, hash uint32, c *abi.RxCompletion) []byte {
	if v.features&abi.FeatureVLANRxStrip != 0 && ctagged(f) {
		c.Flags |= abi.RxFlagVLAN
		c.VLAN = i.TCI
		copy(f[4:16], f[0:12])
		f = f[4:]
	}
	if v.features&abi.FeatureRxCsum != 0 {
		c.Flags |= abi.RxFlagCsum
		c.Csum = flow.Sum(f[flow.EthHeader:])
	}
	if v.features&abi.FeatureRxHash != 0 {
		c.Hash, c.Type = hash, i.PktType()
	}
	return f
}

// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"errors"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/ionic/eth/gso"
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

func (t *touched) add(q *rxQueue) { t[q.index/64] |= 1 << (q.index % 64) }

// receiver moves the frames of one queue of the port to the guest. It is used by
// one goroutine.
type receiver struct {
	lif     *LIF
	count   *shard
	view    *rxView
	touched touched
	cut     gso.Cutter
	scratch [gso.MaxHeader]byte // the start of a frame that is not delivered as it came
}

// rxFrame is a frame on its way to a guest's buffers: two parts, so that its
// start can be changed without copying the rest. The length of the first is even
// unless it is the only one.
type rxFrame struct{ head, body []byte }

func (f rxFrame) len() int { return len(f.head) + len(f.body) }

// receiveLoop moves frames from queue q of the port to the guest until the port
// is closed.
func (l *LIF) receiveLoop(q int) {
	p := l.cfg.Port
	size := l.maxFrame
	if _, ok := p.(netport.Offloader); ok {
		size = netport.MaxOffload
	}
	batch := netport.NewBatch(rxBatch, size+rxSlack)
	r := &receiver{lif: l, count: l.count.rxShard(q)}
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
		r.view = l.view.Load()
		for i := range n {
			r.receive(batch.Frame(i), batch.Offload(i))
		}
		batch.Done()
		r.flush()
	}
}

// flush raises the interrupts of the queues that got frames.
func (r *receiver) flush() {
	for k, w := range r.touched {
		for b := 0; w != 0; b, w = b+1, w>>1 {
			if w&1 != 0 {
				r.lif.rx[k*64+b].flush()
			}
		}
	}
	r.touched = touched{}
}

// receive takes one frame from the port. The frame is not changed.
func (r *receiver) receive(f []byte, o *netport.Offload) {
	v, s := r.view, r.count
	switch {
	case !v.up:
		return // no driver, or no link: nothing arrives
	case len(f) < flow.EthHeader:
		s.bad(len(f))
		return
	}
	i := flow.Parse(f)
	if o.Segment != netport.SegmentNone {
		r.receiveSegments(f, &i, o)
		return
	}
	if len(f) > r.lif.maxFrame {
		s.tooLong(len(f))
		return
	}
	part := rxFrame{head: f}
	if o.Checksum && !r.finish(&part, o) {
		s.bad(len(f))
		return
	}
	class := classOf(f)
	s.arrived(f, len(f), class)
	if !v.accept(f, &i, class) {
		return
	}
	q, hash := v.steer(f, &i)
	sum := uint16(0)
	if v.features&abi.FeatureRxCsum != 0 {
		sum = flow.Add(flow.Sum(part.head[flow.EthHeader:]), flow.Sum(part.body))
	}
	r.deliver(q, part, &i, hash, sum, class)
}

// receiveSegments takes a packet that is to be cut. Each segment counts as a frame
// that came from the wire.
func (r *receiver) receiveSegments(f []byte, i *flow.Info, o *netport.Offload) {
	v, s, c := r.view, r.count, &r.cut
	if len(f) > netport.MaxOffload || !c.Start(f, i, o) {
		s.bad(len(f))
		return
	}
	if n := c.Header() + c.Payload(0); n > r.lif.maxFrame {
		s.tooLong(n)
		return
	}
	class := classOf(f)
	wanted := v.accept(f, i, class)
	q, hash := v.steer(f, i)
	for {
		head, payload, sum, ok := c.Next()
		if !ok {
			return
		}
		s.arrived(head, len(head)+len(payload), class)
		if wanted {
			r.deliver(q, rxFrame{head, payload}, i, hash, flow.Add(flow.Sum(head[flow.EthHeader:]), sum), class)
		}
	}
}

// finish puts the checksum into a frame whose sender has left it open. The part
// of the frame in front of it and itself is copied.
func (r *receiver) finish(f *rxFrame, o *netport.Offload) bool {
	start, at := int(o.CsumStart), int(o.CsumStart)+int(o.CsumOffset)
	// Sums of parts can be added only at even distances.
	n := min((at+3)&^1, len(f.head))
	if start%2 != 0 || at%2 != 0 || at+2 > n || n > len(r.scratch) {
		return false
	}
	s := ^flow.Sum(f.head[start:])
	if s == 0 {
		s = 0xffff
	}
	head := r.scratch[:n]
	copy(head, f.head)
	le.PutUint16(head[at:], s)
	f.head, f.body = head, f.head[n:]
	return true
}

// deliver puts a frame into a buffer of queue q, nil for none, as the guest asked
// for. sum is that of everything behind the Ethernet header.
func (r *receiver) deliver(q *rxQueue, f rxFrame, i *flow.Info, hash uint32, sum uint16, class castClass) {
	v, s := r.view, r.count
	var c abi.RxCompletion
	if v.features != 0 {
		if v.features&abi.FeatureVLANRxStrip != 0 && ctagged(f.head) {
			c.Flags |= abi.RxFlagVLAN
			c.VLAN = i.TCI
			// Without the tag's second half and the type in front of it.
			sum = flow.Add(sum, ^flow.Sum(f.head[flow.EthHeader:flow.EthHeader+4]))
			f = r.strip(f)
		}
		if v.features&abi.FeatureRxCsum != 0 {
			c.Flags |= abi.RxFlagCsum
			c.Csum = sum
		}
		if v.features&abi.FeatureRxHash != 0 {
			c.Hash, c.Type = hash, i.PktType()
		}
	}
	why := abi.RxQueueDisabled
	if q != nil {
		why = q.deliver(f, &c)
	}
	switch why {
	case delivered:
		s.received(f.len(), class)
		r.touched.add(q)
	case abi.RxQueueDisabled:
		// With all queues disabled the interface is down, which is no error.
		if len(v.enabled) > 0 {
			s.lif[abi.RxQueueDisabled].Add(1)
		}
	case abi.RxQueueEmpty:
		s.receiveDropped(f.len(), class, why)
		s.port[abi.FramesRxDropped].Add(1)
	case abi.RxDescDataError:
		s.receiveDropped(f.len(), class, why)
		r.touched.add(q)
	default:
		s.lif[why].Add(1)
		r.touched.add(q)
	}
}

// tagLen is the length of a VLAN tag.
const tagLen = 4

// strip takes the outer tag off.
func (r *receiver) strip(f rxFrame) rxFrame {
	n := min(len(f.head), len(r.scratch)) // all of a head that is a part only
	rest := f.head[n:]
	// Forward, and the regions may be the same memory.
	copy(r.scratch[:12], f.head[:12])
	copy(r.scratch[12:], f.head[12+tagLen:n])
	f.head = r.scratch[:n-tagLen]
	if len(rest) > 0 {
		f.body = rest
	}
	return f
}

// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
)

// parking is the list of QPs that wait for room on the link.
type parking struct {
	mu   sync.Mutex // guards all below and queuePair.parked
	head *queuePair
}

// queuePairLink is the place of a QP in the list.
type queuePairLink struct {
	in   bool
	next *queuePair
}

func (p *parking) add(q *queuePair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !q.parked.in {
		q.parked = queuePairLink{true, p.head}
		p.head = q
	}
}

// take removes the QPs that match wants, all if it is nil, and calls f for
// each.
func (p *parking) take(match func(qpn uint32) bool, f func(q *queuePair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.head
	for q := *at; q != nil; q = *at {
		if match != nil && !match(q.id) {
			at = &q.parked.next
			continue
		}
		*at = q.parked.next
		q.parked = queuePairLink{}
		f(q)
	}
}

func (p *parking) clear() { p.take(nil, func(*queuePair) {}) }

// ways are the ways to peers, by their MAC addresses: how many requests each
// has let go. Several may share one; then a busy one hides an idle one.
type ways [256]atomic.Uint64

func (w *ways) to(mac [6]byte) *atomic.Uint64 {
	h := uint32(2166136261)
	for _, b := range mac {
		h = (h ^ uint32(b)) * 16777619
	}
	return &w[h>>24^h&0xff]
}

// Transmit implements qp.Env.
func (q *queuePair) Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict {
	e := q.lif.engine
	if p.Op.IsRequest() {
		p.Tally(&q.tally)
	}
	v := e.config.Link.Transmit(dst, p)
	if v != qp.Full {
		return v
	}
	// Room may come between the verdict and the entry in the list; a second
	// try after the entry cannot miss it.
	e.parked.add(q)
	return e.config.Link.Transmit(dst, p)
}

// Writable must be called when the link has room again for packets of the
// QPs that match accepts (nil: of all) after it said qp.Full. It never blocks.
func (e *Engine) Writable(match func(qpn uint32) bool) {
	e.parked.take(match, func(q *queuePair) { q.actor.Schedule() })
}

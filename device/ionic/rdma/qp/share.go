// SPDX-License-Identifier: Apache-2.0

package qp

import "sync/atomic"

// Bounds of what RC requesters may have under way.
const (
	window      = 2 << 20    // bytes of one QP, counted in whole path MTUs
	sharedBytes = 4 * window // bytes of all QPs of a Share
	leastWindow = 64 << 10   // bytes that a QP may always have under way
)

// Share divides what the QPs of one device have under way among those that
// have something under way. Every byte beyond what the link carries in a round
// trip only waits in a queue, and with many QPs that wait would outlast the
// acknowledgement timers of the guest.
//
// The zero value is ready for use by any number of QPs.
type Share struct{ active atomic.Int64 }

// window is what one QP may have under way now, in bytes.
func (s *Share) window() uint64 {
	if s == nil {
		return window
	}
	n := uint64(max(s.active.Load(), 1))
	return max(min(window, sharedBytes/n), leastWindow)
}

// noteShare tells the Share whether this QP has something under way.
func (q *QP) noteShare() {
	r := &q.req
	busy := q.typ == RC && r.unacked < r.high
	if q.share == nil || busy == q.sharing {
		return
	}
	q.sharing = busy
	if busy {
		q.share.active.Add(1)
	} else {
		q.share.active.Add(-1)
	}
}

// fitsWindow reports whether count more PSNs fit what the QP may have under way. A
// Share may have become smaller since the last packet left. If none of those
// under way asks for an acknowledgement, none need come: one more packet goes,
// and asks.
func (q *QP) fitsWindow(count uint64) bool {
	r := &q.req
	under := r.next - r.unacked + count
	return under <= q.share.window()>>q.shift || r.lastAck <= r.unacked && under <= window>>q.shift
}

// asks reports whether a packet of count PSNs inside a message asks for an
// acknowledgement: several do in a window, so that it never closes while
// acknowledgements are on their way.
func (q *QP) asks(count uint64) bool {
	r := &q.req
	return r.probing || r.next+count-r.lastAck >= q.share.window()/4>>q.shift
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"time"

	"github.com/ernic-dev/ernic/fabric"
)

// beat is the goroutine that pings. It sleeps while no link is up.
func (l *Link) beat() {
	every := l.opts.Timing.Ping
	for {
		select {
		case <-l.pulse:
		case <-l.ctx.Done():
			return
		}
		t := time.NewTicker(every)
		last := l.now()
		for up := true; up; {
			select {
			case <-t.C:
			case <-l.ctx.Done():
				t.Stop()
				return
			}
			now := l.now()
			up = l.pulseAll(now, now-last > uint64(2*every))
			last = now
		}
		t.Stop()
	}
}

// pulseAll looks at every connection once and reports whether there was one.
// late says that this process did not run when it should have: then silence
// proves nothing, the peer's bytes may wait in the socket.
func (l *Link) pulseAll(now uint64, late bool) bool {
	up := false
	for _, p := range *l.peers.Load() {
		for _, ln := range *p.lanes.Load() {
			if c := ln.current(); c != nil {
				up = true
				c.check(now, late)
			}
		}
	}
	return up
}

// check cuts a connection that has been silent for too long and pings one that
// is silent. Lane 0 is pinged always, for the round trip time.
func (c *conn) check(now uint64, late bool) {
	t := c.lane.peer.link.opts.Timing
	if c.heard.Swap(false) || late {
		c.silent = 0
	} else {
		c.silent++
	}
	// A ping and a pong are all that an idle lane hears between two pulses.
	n := c.rxMessages.Load()
	if n-c.pulsed <= 2 {
		c.trim()
	}
	c.pulsed = n
	if silence := time.Duration(c.silent) * t.Ping; silence >= t.DeadAfter {
		c.fail(fmt.Errorf("nothing heard for %v", silence))
		return
	}
	if c.silent > 0 || c.lane.index == 0 {
		c.request(&c.ping, now)
	}
}

// trim gives memory back that an idle connection does not need.
func (c *conn) trim() {
	c.pool.trim()
	c.lane.mu.Lock()
	c.batches = nil
	c.lane.mu.Unlock()
}

// addStats adds what the reader counted.
func (c *conn) addStats(s *fabric.PeerStats) {
	s.RxFrames += c.rxFrames.Load()
	s.RxBytes += c.rxBytes.Load()
	s.RxMessages += c.rxMessages.Load()
	s.RxCopies += c.rxCopies.Load()
	s.Drops[fabric.DropBadFrame] += c.rxBadFrame.Load()
	s.Drops[fabric.DropBadSource] += c.rxBadSrc.Load()
	s.Drops[fabric.DropBadDestination] += c.rxBadDst.Load()
}

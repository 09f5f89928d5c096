// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ernic-dev/ernic/fabric/directory"
)

// A node that gets another address leaves connections behind that nobody ends.
// Its link does not wait until their silence is noticed, whichever side dials.
func TestMoved_LinkFollowsTheAddressAtOnce(t *testing.T) {
	for _, mover := range []uint32{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newMemBed(t)
			r1, c1 := words()
			r2, c2 := words()
			links := map[uint32]*Link{1: b.node(1, r1, nil), 2: b.node(2, r2, nil)}
			say(t, links[1], 2, 1, "before")
			expect(t, c2, "before")
			synctest.Wait()

			b.mem.freeze()
			where, _ := b.dir.Node(mover)
			b.mem.alias(where.Address, "elsewhere:1")
			time.Sleep(100 * time.Millisecond)
			links[mover].Moved()
			where.Address = "elsewhere:1"
			b.dir.Apply(directory.Change{Nodes: []directory.Node{where}})
			synctest.Wait()

			begun := time.Now()
			say(t, links[1], 2, 1, "there")
			expect(t, c2, "there")
			say(t, links[2], 1, 1, "back")
			expect(t, c1, "back")
			if d := time.Since(begun); d > time.Second {
				t.Errorf("node %d moved: the link was back after %v", mover, d)
			}
			if e := to(links[3-mover], mover).LastError; !strings.Contains(e, "elsewhere:1") {
				t.Errorf("the peer of node %d says %q", mover, e)
			}
			for _, l := range links {
				_ = l.Close()
			}
		})
	}
}

// alias makes a listener answer at another address, and no longer at its own.
func (m *memnet) alias(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners[to] = m.listeners[from]
	delete(m.listeners, from)
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/verdict"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// TestFaults does one thing after another to the same mesh. The reliable connection is the same all along, until a fault
// takes its guest away.
func TestFaults(tt *testing.T) {
	t := verdict.New(tt)
	m := newMesh(t, 2)
	w1, w2 := m.workers[0], m.workers[1]
	took := t.Eventually("the mesh", func() bool { return len(m.nodes()) == 3 })
	t.Logf("three hosts are a mesh after %s", took)
	ids := m.ids()
	w1.boot()
	w2.boot()
	t.Eventually("the claims", func() bool { return m.whole(ids...) })
	p := connect(t, w1, w2, enduring)
	p.exchange(3)
	t.Log("the guests talk")
	stop := m.record()
	defer stop()

	// fault does something, waits until the mesh is whole and looks at everything.
	fault := func(name string, do func(t *verdict.T)) {
		t.Helper()
		if t.Failed() {
			return
		}
		t.Doing(name)
		before, known := m.settled(), len(m.known())
		begin := time.Now()
		do(t)
		healed := time.Now()
		took := t.Eventually(name+": the mesh", func() bool { return m.whole(ids...) })
		p.exchange(2)
		m.noneLeaked(before, len(m.known())-known)
		t.Logf("%s: whole %s after the fault was over (%s in all)", name, took.Round(time.Millisecond), healed.Sub(begin).Round(time.Millisecond)+took.Round(time.Millisecond))
	}
	deaths := func() int { return strings.Count(m.manager.Log(), `"event":"node_dead"`) }

	fault("H6: a worker stopped for less than three intervals", func(t *verdict.T) {
		dead := deaths()
		w1.Signal(syscall.SIGSTOP)
		time.Sleep(2 * healthInterval)
		w1.Signal(syscall.SIGCONT)
		if c := m.claimed(w1.addr); !slices.Equal(c, []claim{{ids[0], ernicv1.ClaimState_CLAIM_STATE_ACTIVE}}) || deaths() != dead {
			t.Errorf("claims %v, %d deaths", c, deaths()-dead)
		}
	})
	fault("H5: the manager stopped for long", func(t *verdict.T) {
		dead := deaths()
		m.manager.Signal(syscall.SIGSTOP)
		p.exchange(2)
		time.Sleep(5 * healthInterval)
		p.exchange(2)
		m.manager.Signal(syscall.SIGCONT)
		t.Eventually("the return", func() bool { return m.whole(ids...) })
		if deaths() != dead {
			t.Errorf("%d nodes were declared dead", deaths()-dead)
		}
	})
	fault("I4: the manager killed and started again", func(t *verdict.T) {
		m.manager.End(syscall.SIGKILL)
		p.exchange(3) // nothing that works stops working
		m.startManager()
	})
	fault("H8: a worker cut off from the manager alone", func(t *verdict.T) {
		w1.host.lose(m.head)
		took := t.Eventually("the partition", func() bool { return m.state(ids[0]) == ernicv1.NodeState_NODE_STATE_PARTITIONED })
		t.Logf("partitioned after %s", took)
		if c := m.claimed(w1.addr); !slices.Equal(c, []claim{{ids[0], ernicv1.ClaimState_CLAIM_STATE_ACTIVE}}) {
			t.Errorf("claims %v", c)
		}
		p.exchange(3)
		w1.host.find(m.head)
	})
	fault("P2: two workers that the manager alone reaches", func(t *verdict.T) {
		w1.host.lose(w2.host)
		w2.host.lose(w1.host)
		p.start()
		took := t.Eventually("a relayed link", func() bool { return m.relayed(ids...) })
		p.finish()
		p.exchange(5)
		t.Logf("relayed after %s", took)
		w1.host.find(w2.host)
		w2.host.find(w1.host)
		took = t.Eventually("a direct link", func() bool { return m.direct(ids...) })
		t.Logf("direct %s after the way was open", took)
	})
	fault("P7: a cable out for a second", func(t *verdict.T) {
		w2.host.unplug()
		p.start()
		time.Sleep(time.Second)
		w2.host.plug()
		p.finish()
	})
	fault("H8: everybody cut off from everybody for longer than three intervals", func(t *verdict.T) {
		for _, h := range m.net.hosts {
			h.mute()
		}
		p.start()
		time.Sleep(8 * healthInterval)
		for _, h := range m.net.hosts {
			h.unmute()
		}
		p.finish()
	})
	fault("G5: a host that falls silent and comes back", func(t *verdict.T) {
		w1.host.mute()
		p.start()
		took := t.Eventually("its death", func() bool { return m.state(ids[0]) == ernicv1.NodeState_NODE_STATE_DEAD })
		t.Logf("dead after %s", took)
		if c := m.claimed(w1.addr); !slices.Equal(c, []claim{{ids[0], ernicv1.ClaimState_CLAIM_STATE_WITHDRAWN}}) {
			t.Errorf("claims %v", c)
		}
		w1.host.unmute()
		p.finish()
	})
	fault("G5: a worker stopped for so long that it is taken for dead", func(t *verdict.T) {
		w2.Signal(syscall.SIGSTOP)
		took := t.Eventually("its death", func() bool { return m.state(ids[1]) == ernicv1.NodeState_NODE_STATE_DEAD })
		t.Logf("dead after %s", took)
		w2.Signal(syscall.SIGCONT)
	})
	fault("S4: a thousand silent connections and garbage on every port", func(t *verdict.T) {
		m.storm(t)
	})
	fault("S4: no descriptor left", func(t *verdict.T) {
		dead := deaths()
		m.exhaust(t, p)
		if deaths() != dead {
			t.Errorf("%d nodes were declared dead", deaths()-dead)
		}
		begin := time.Now()
		q := connect(t, w1, w2, enduring)
		q.exchange(2)
		q.close()
		t.Logf("a new connection of the guests works after %s", time.Since(begin))
	})
	fault("P7: a slow cable that loses frames", func(t *verdict.T) {
		dead := deaths()
		w1.host.degrade(quality{delay: 20 * time.Millisecond, jitter: 5 * time.Millisecond, loss: 0.01, rate: 50e6})
		begin := time.Now()
		p.exchange(20)
		t.Logf("20 messages each way took %s", time.Since(begin))
		t.Eventually("a heartbeat that a slow cable delays", func() bool {
			return m.nodes()[ids[0]].GetReport().GetRtt().AsDuration() >= 30*time.Millisecond
		})
		w1.host.restore()
		if deaths() != dead {
			t.Errorf("%d nodes were declared dead", deaths()-dead)
		}
	})
	fault("H3: a host that gets another address", func(t *verdict.T) {
		p.start()
		w2.host.move("10.97.0.22")
		took := t.Eventually("the news", func() bool { return m.nodes()[ids[1]].GetAddress() == net.JoinHostPort(w2.host.addr, fabricPort) })
		t.Logf("the manager knows the new address after %s", took)
		p.finish()
	})
	fault("H8: a worker that has moved, cut off from the manager alone", func(t *verdict.T) {
		w2.host.lose(m.head)
		took := t.Eventually("the partition", func() bool { return m.state(ids[1]) == ernicv1.NodeState_NODE_STATE_PARTITIONED })
		t.Logf("partitioned after %s", took)
		// That others see it is no memory of where it was: that would have faded by now.
		time.Sleep(20 * healthInterval)
		t.Eventually("the partition, still,", func() bool { return m.state(ids[1]) == ernicv1.NodeState_NODE_STATE_PARTITIONED })
		p.exchange(2)
		w2.host.find(m.head)
	})
	fault("G4: a worker killed and started again", func(t *verdict.T) {
		w2.End(syscall.SIGKILL)
		begin := time.Now()
		w2.start()
		t.Eventually("its address", func() bool {
			c, _ := m.claims(w2.addr)
			active := slices.IndexFunc(c, func(c claim) bool { return c.state == ernicv1.ClaimState_CLAIM_STATE_ACTIVE })
			if slices.ContainsFunc(c, func(c claim) bool { return c.state == ernicv1.ClaimState_CLAIM_STATE_CONFLICT }) {
				t.Fatalf("its old claim is in the way of its new one: %v", c)
			}
			if active < 0 || c[active].node == ids[1] {
				return false
			}
			ids[1] = c[active].node
			return true
		})
		t.Logf("its address resolves again %s after the start of the process", time.Since(begin))
		w2.boot()
		p = connect(t, w1, w2, enduring)
	})
}

// ids returns the node ids of the workers.
func (m *mesh) ids() []uint32 {
	ids := make([]uint32, len(m.workers))
	for id, n := range m.known() {
		for i, w := range m.workers {
			if n.GetName() == w.host.name {
				ids[i] = id
			}
		}
	}
	return ids
}

// exhaust takes all descriptors from the manager and a worker while the guests talk.
func (m *mesh) exhaust(t *verdict.T, p *pair) {
	w := m.workers[0]
	ports := map[*process]string{m.manager: net.JoinHostPort(m.head.addr, managerPort), w.process: net.JoinHostPort(w.host.addr, fabricPort)}
	ctx, cancel := context.WithTimeout(t.Context(), verdict.Patience)
	defer cancel()
	for process, address := range ports {
		room, lift := process.limit()
		defer lift()
		for i := range room + 20 {
			c, err := m.head.dial(ctx, address)
			if err != nil {
				t.Fatalf("connection %d to %s: %v", i, address, err)
			}
			defer c.Close()
		}
		took := t.Eventually("the last descriptor of "+process.Name, process.exhausted)
		t.Logf("%s has no descriptor left after %s", process.Name, took)
	}
	for range 4 {
		p.exchange(2)
		time.Sleep(healthInterval)
		if n := len(m.known()); n != 3 {
			t.Errorf("the manager knows %d nodes", n)
		}
	}
}

// storm opens silent connections and sends garbage, and registers a worker in the middle of it.
func (m *mesh) storm(t *verdict.T) {
	w1 := m.workers[0]
	ports := []struct {
		host    *host
		address string
	}{
		{m.head, net.JoinHostPort(m.head.addr, managerPort)},
		{w1.host, net.JoinHostPort(w1.host.addr, fabricPort)},
		{m.head, net.JoinHostPort(m.head.addr, gossipPort)},
		{w1.host, net.JoinHostPort(w1.host.addr, gossipPort)},
	}
	garbage := [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0xff, 0, 7}, 2000), {0x16, 0x03, 0x01, 0xff, 0xff}}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), verdict.Patience)
	defer cancel()
	for i := range 1000 {
		port := ports[i%2] // the manager and the fabric; gossip gets garbage only
		c, err := port.host.dial(ctx, port.address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
	}
	for _, port := range ports {
		for _, g := range garbage {
			c, err := port.host.dial(ctx, port.address)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			if _, err := c.Write(g); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
		}
	}
	// Real ones are served all the same: a request, and a new link between the guests.
	begin := time.Now()
	if n := len(m.known()); n != 3 {
		t.Errorf("the manager knows %d nodes", n)
	}
	t.Logf("the manager answers after %s with %d connections open", time.Since(begin), len(conns))
	begin = time.Now()
	q := connect(t, m.workers[0], m.workers[1], enduring)
	q.exchange(2)
	q.close()
	t.Logf("a new connection of the guests works after %s", time.Since(begin))
	if strings.Contains(m.manager.Log()+w1.Log(), "panic") {
		t.Error("a process panicked")
	}
}

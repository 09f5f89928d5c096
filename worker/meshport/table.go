// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
)

// Bounds of the table of addresses.
const (
	maxEntries     = 16384
	maxNodeEntries = 1024
	tableShards    = 64
	// lifetime is how long an address that is not heard of stays, in seconds, as
	// IEEE 802.1D recommends.
	lifetime = 300
	// steady is for how many seconds an address belongs to the node that used it
	// last whatever another says.
	steady = 2
)

// address is an Ethernet address as a number.
type address uint64

func addressOf(b []byte) address {
	return address(b[0])<<40 | address(b[1])<<32 | address(be.Uint32(b[2:]))
}

func (a address) mac() (m [6]byte) {
	m[0], m[1] = byte(a>>40), byte(a>>32)
	be.PutUint32(m[2:], uint32(a))
	return m
}

// entry says behind which node an address is.
type entry struct {
	node atomic.Uint32
	seen atomic.Uint32 // seconds
}

func (e *entry) expired(now uint32) bool { return e.age(now) > lifetime }

// age returns for how many seconds the address was not seen. Another goroutine may
// have seen it later than now.
func (e *entry) age(now uint32) int32 { return int32(now - e.seen.Load()) }

type entries map[address]*entry

// table is what was learned from the frames of peers. Reading takes no lock; a new
// address costs a copy of one shard.
type table struct {
	seed   maphash.Seed
	shards [tableShards]atomic.Pointer[entries]

	mu    sync.Mutex // serialises writers, guards what follows
	total int
	nodes map[uint32]int // entries of a node
	swept uint32         // second of the last search for expired entries
}

func (t *table) init() {
	t.seed, t.nodes = maphash.MakeSeed(), map[uint32]int{}
	for i := range t.shards {
		t.shards[i].Store(&entries{})
	}
}

func (t *table) shard(a address) *atomic.Pointer[entries] {
	return &t.shards[maphash.Comparable(t.seed, a)%tableShards]
}

// find returns the node an address is behind.
func (t *table) find(a address, now uint32) (uint32, bool) {
	e := (*t.shard(a).Load())[a]
	if e == nil || e.expired(now) {
		return 0, false
	}
	return e.node.Load(), true
}

// learn notes that a node sent from an address. It reports false if the address is
// another node's or the table has no room for it.
func (t *table) learn(a address, node, now uint32) bool {
	if e := (*t.shard(a).Load())[a]; e != nil && e.node.Load() == node {
		if e.seen.Load() != now {
			e.seen.Store(now)
		}
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shard(a)
	if e := (*s.Load())[a]; e != nil {
		old := e.node.Load()
		if old != node && e.age(now) < steady {
			return false
		}
		if old != node && !t.room(node, now, 0) {
			return false
		}
		t.count(old, -1)
		t.count(node, 1)
		e.node.Store(node)
		e.seen.Store(now)
		return true
	}
	if !t.room(node, now, 1) {
		return false
	}
	next := maps.Clone(*s.Load())
	e := new(entry)
	e.node.Store(node)
	e.seen.Store(now)
	next[a] = e
	s.Store(&next)
	t.count(node, 1)
	return true
}

// room reports whether a node may have one more entry and the table more. Holds mu.
func (t *table) room(node, now uint32, more int) bool {
	full := func() bool { return t.nodes[node] >= maxNodeEntries || t.total+more > maxEntries }
	if full() && now != t.swept {
		t.swept = now
		t.removeIf(func(e *entry) bool { return e.expired(now) })
	}
	return !full()
}

// count changes the number of entries of a node. Holds mu.
func (t *table) count(node uint32, by int) {
	t.total += by
	if t.nodes[node] += by; t.nodes[node] == 0 {
		delete(t.nodes, node)
	}
}

// forget removes an address: the guest here sends from it.
func (t *table) forget(a address) {
	s := t.shard(a)
	if (*s.Load())[a] == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := (*s.Load())[a]
	if e == nil {
		return
	}
	next := maps.Clone(*s.Load())
	delete(next, a)
	s.Store(&next)
	t.count(e.node.Load(), -1)
}

// keep removes the addresses of all nodes but those given.
func (t *table) keep(nodes map[uint32]*source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeIf(func(e *entry) bool { return nodes[e.node.Load()] == nil })
}

// removeIf removes entries. Holds mu.
func (t *table) removeIf(gone func(*entry) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		var next entries
		for a, e := range *s.Load() {
			if !gone(e) {
				continue
			}
			if next == nil {
				next = maps.Clone(*s.Load())
			}
			delete(next, a)
			t.count(e.node.Load(), -1)
		}
		if next != nil {
			s.Store(&next)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package idtable maps the small integer ids a driver chooses (QP, CQ, MR, AH)
// to objects in constant time. Memory is taken page by page as ids come into
// use, so a large id space costs nothing while it is empty.
package idtable

import (
	"sync"
	"sync/atomic"
)

const (
	pageBits = 9
	pageSize = 1 << pageBits
)

type page[T any] [pageSize]atomic.Pointer[T]

// Table holds pointers for ids 0 to Limit-1. Get may run at any time beside
// one another and beside changes; changes exclude each other.
type Table[T any] struct {
	limit uint32
	pages []atomic.Pointer[page[T]]

	mu   sync.Mutex // serialises changes; guards live
	live int
}

// New returns an empty table for limit ids.
func New[T any](limit uint32) *Table[T] {
	n := (uint64(limit) + pageSize - 1) / pageSize
	return &Table[T]{limit: limit, pages: make([]atomic.Pointer[page[T]], n)}
}

// Limit is the number of ids.
func (t *Table[T]) Limit() uint32 { return t.limit }

// Get returns the object of id, nil when there is none or id is out of range.
func (t *Table[T]) Get(id uint32) *T {
	if id >= t.limit {
		return nil
	}
	p := t.pages[id>>pageBits].Load()
	if p == nil {
		return nil
	}
	return p[id&(pageSize-1)].Load()
}

// Add gives id to v; false when id is taken or out of range.
func (t *Table[T]) Add(id uint32, v *T) bool {
	if id >= t.limit {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.slot(id).CompareAndSwap(nil, v) {
		return false
	}
	t.live++
	return true
}

// Replace gives id to v, whoever had it before; false when id is out of range.
func (t *Table[T]) Replace(id uint32, v *T) (old *T, ok bool) {
	if id >= t.limit {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.slot(id).Swap(v)
	if old == nil {
		t.live++
	}
	return old, true
}

// Remove frees id and returns what it named, nil when it named nothing.
func (t *Table[T]) Remove(id uint32) *T {
	if t.Get(id) == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.slot(id).Swap(nil)
	if old != nil {
		t.live--
	}
	return old
}

// RemoveIf frees id if it names v.
func (t *Table[T]) RemoveIf(id uint32, v *T) bool {
	if v == nil || t.Get(id) != v {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.slot(id).CompareAndSwap(v, nil) {
		return false
	}
	t.live--
	return true
}

// slot returns the place of id < limit, with its page. Caller holds mu.
func (t *Table[T]) slot(id uint32) *atomic.Pointer[T] {
	at := &t.pages[id>>pageBits]
	p := at.Load()
	if p == nil {
		p = new(page[T])
		at.Store(p)
	}
	return &p[id&(pageSize-1)]
}

// Len is the number of objects.
func (t *Table[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// All calls f for every object, in order of id, until f returns false.
func (t *Table[T]) All(f func(id uint32, v *T) bool) {
	for i := range t.pages {
		p := t.pages[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			if v := p[j].Load(); v != nil && !f(uint32(i)<<pageBits|uint32(j), v) {
				return
			}
		}
	}
}

// Clear forgets every object and gives the pages back.
func (t *Table[T]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.pages {
		t.pages[i].Store(nil)
	}
	t.live = 0
}

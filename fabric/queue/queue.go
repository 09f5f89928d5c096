// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"

	"github.com/ernic-dev/ernic/fabric"
)

// Surcharge is what a frame costs beyond its bytes: the memory that holds it
// while it waits.
const Surcharge = 256

// maxCost is the cost of the largest frame.
const maxCost = fabric.MaxHeader + fabric.MaxChunk + Surcharge

// lightBytes is what a group may hold and still be light.
const lightBytes = 4 << 10

// lightShare is how many bytes of light groups pass before a heavy one has its
// turn.
const lightShare = 64 << 10

// keepNodes bounds the unused nodes a queue keeps for reuse.
const keepNodes = 4096

// Limits bounds a queue, in bytes with Surcharge per frame. Zero means the
// default.
type Limits struct {
	// Group bounds one group. Default 1 MiB.
	Group int
	// Reliable bounds the reliable classes of all groups. Default 4 MiB.
	Reliable int
	// Lossy bounds the lossy classes of all groups. Default 1 MiB.
	Lossy int
	// Quantum is what Pop takes from one group before it visits the next.
	// Default fabric.MaxChunk.
	Quantum int
}

// WithDefaults fills in what is zero and refuses limits below one frame.
func (l Limits) WithDefaults() (Limits, error) {
	for _, f := range []struct {
		name  string
		value *int
		dflt  int
		least int
	}{
		{"group", &l.Group, 1 << 20, maxCost},
		{"reliable", &l.Reliable, 4 << 20, maxCost},
		{"lossy", &l.Lossy, 1 << 20, maxCost},
		{"quantum", &l.Quantum, fabric.MaxChunk, 1},
	} {
		if *f.value == 0 {
			*f.value = f.dflt
		}
		if *f.value < f.least {
			return l, fmt.Errorf("queue: %s limit of %d bytes is below %d", f.name, *f.value, f.least)
		}
	}
	return l, nil
}

// Outcome is the answer of Push.
type Outcome uint8

// Outcomes.
const (
	// Queued means that the queue took the frame.
	Queued Outcome = iota
	// Starved means that a reliable frame found no room; its group will be in
	// a later TakeRoom.
	Starved
	// NoRoom means that a lossy frame found no room.
	NoRoom
)

type node struct {
	frame fabric.Frame
	next  *node
}

type group struct {
	head, tail *node
	bytes      int
}

// Queue is not safe for concurrent use: its owner has a lock.
type Queue struct {
	limits Limits
	groups [fabric.Groups]group

	light, heavy set // groups with something in them
	starved      set // groups whose Push returned Starved since

	current     uint8 // group Pop is visiting
	credit      int   // what is left of its quantum
	lastLight   uint8 // group of either kind that was visited last
	lastHeavy   uint8
	lightPassed int // bytes of light groups since the last visit to a heavy one

	reliable, lossy int // bytes, by kind of class
	frames, bytes   int // without surcharge

	free  *node
	nfree int
}

// New makes a queue. Limits must come from WithDefaults.
func New(l Limits) *Queue { return &Queue{limits: l} }

func cost(f *fabric.Frame) int { return f.Size() + Surcharge }

// Push appends *f to its group, or says why not. *f is copied.
func (q *Queue) Push(f *fabric.Frame) Outcome {
	g, c := fabric.Group(f.Flow), cost(f)
	grp := &q.groups[g]
	if f.Class.Lossy() {
		if grp.bytes+c > q.limits.Group || q.lossy+c > q.limits.Lossy {
			return NoRoom
		}
	} else {
		limit := q.limits.Reliable
		if grp.head == nil {
			limit *= 2
		}
		if grp.bytes+c > q.limits.Group || q.reliable+c > limit {
			q.starved.add(g)
			return Starved
		}
	}
	q.append(g, f, c)
	return Queued
}

func (q *Queue) append(g uint8, f *fabric.Frame, c int) {
	n := q.free
	if n != nil {
		q.free, n.next = n.next, nil
		q.nfree--
	} else {
		n = new(node)
	}
	n.frame = *f
	grp := &q.groups[g]
	if grp.tail == nil {
		grp.head = n
	} else {
		grp.tail.next = n
	}
	grp.tail = n
	grp.bytes += c
	q.sort(g)
	q.frames++
	q.bytes += f.Size()
	if f.Class.Lossy() {
		q.lossy += c
	} else {
		q.reliable += c
	}
}

// Pop moves the next frame into *f if its payload is at most limit bytes.
func (q *Queue) Pop(f *fabric.Frame, limit int) bool {
	if q.frames == 0 {
		return false
	}
	if q.credit <= 0 || q.groups[q.current].head == nil {
		q.visit()
	}
	grp := &q.groups[q.current]
	n := grp.head
	if len(n.frame.Payload) > limit {
		return false
	}
	*f = n.frame
	c := cost(f)
	q.credit -= c
	grp.head = n.next
	if grp.head == nil {
		grp.tail = nil
	}
	grp.bytes -= c
	q.sort(q.current)
	q.frames--
	q.bytes -= f.Size()
	if f.Class.Lossy() {
		q.lossy -= c
	} else {
		q.reliable -= c
	}
	*n = node{}
	if q.nfree < keepNodes {
		n.next = q.free
		q.free = n
		q.nfree++
	}
	return true
}

// visit chooses the next group. There must be one.
func (q *Queue) visit() {
	if !q.light.empty() && (q.heavy.empty() || q.lightPassed < lightShare) {
		q.current = q.light.after(q.lastLight)
		q.lastLight = q.current
		q.credit = min(q.groups[q.current].bytes, q.limits.Quantum)
		q.lightPassed += q.credit
		return
	}
	q.credit = q.limits.Quantum
	q.current = q.heavy.after(q.lastHeavy)
	q.lastHeavy = q.current
	q.lightPassed = 0
}

// sort puts a group where it belongs after what it holds has changed.
func (q *Queue) sort(g uint8) {
	grp := &q.groups[g]
	switch {
	case grp.head == nil:
		q.light.remove(g)
		q.heavy.remove(g)
	case grp.bytes <= lightBytes:
		q.heavy.remove(g)
		q.light.add(g)
	default:
		q.light.remove(g)
		q.heavy.add(g)
	}
}

// TakeRoom writes the starved groups that have room again into room, forgets
// that they were starved and returns their number.
func (q *Queue) TakeRoom(room *[fabric.Groups]uint8) int {
	if q.starved.empty() || q.reliable > q.limits.Reliable/4*3 {
		return 0
	}
	n := 0
	for g := range fabric.Groups {
		g := uint8(g)
		if q.starved.has(g) && q.groups[g].bytes <= q.limits.Group/2 {
			q.starved.remove(g)
			room[n] = g
			n++
		}
	}
	return n
}

// Starving reports whether a TakeRoom is owed to somebody.
func (q *Queue) Starving() bool { return !q.starved.empty() }

// Len is the number of frames that wait.
func (q *Queue) Len() int { return q.frames }

// Bytes is the transport bytes that wait.
func (q *Queue) Bytes() int { return q.bytes }

// MoveTo empties q into the queues that pick chooses for each group. Order
// within a group is kept; limits do not apply, frames that were accepted stay
// accepted. Starved groups move too.
func (q *Queue) MoveTo(pick func(g uint8) *Queue) {
	for g := range fabric.Groups {
		g := uint8(g)
		to := pick(g)
		for n := q.groups[g].head; n != nil; n = n.next {
			to.append(g, &n.frame, cost(&n.frame))
		}
		if q.starved.has(g) {
			to.starved.add(g)
		}
	}
	*q = Queue{limits: q.limits}
}

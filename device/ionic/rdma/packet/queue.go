// SPDX-License-Identifier: Apache-2.0

package packet

// Queue is an intrusive first-in first-out list of packets. The zero value is
// empty. It is not safe for concurrent use.
type Queue struct {
	head, tail *Packet
	n, bytes   int
}

// Push appends p.
func (q *Queue) Push(p *Packet) {
	p.next = nil
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
	q.n++
	q.bytes += len(p.Payload)
}

// Pop removes and returns the oldest packet, nil when there is none.
func (q *Queue) Pop() *Packet {
	p := q.head
	if p == nil {
		return nil
	}
	q.head = p.next
	if q.head == nil {
		q.tail = nil
	}
	p.next = nil
	q.n--
	q.bytes -= len(p.Payload)
	return p
}

// Take moves all packets of q into the returned queue.
func (q *Queue) Take() Queue {
	t := *q
	*q = Queue{}
	return t
}

// Len is the number of packets.
func (q *Queue) Len() int { return q.n }

// Bytes is the payload of all packets together.
func (q *Queue) Bytes() int { return q.bytes }

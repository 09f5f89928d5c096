// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"sync"
)

const (
	rxDescSize = 16
	rxSGSize   = 128
	rxOpSG     = 1
	rxHeader   = 18 // Ethernet header and VLAN tag over the MTU

	rxFlagVLAN = 0x40
	rxFlagCsum = 0x80
)

// rxQueue is one receive queue. Each slot has a buffer of whole pages, of which
// the device is told only what a frame of the MTU needs.
type rxQueue struct {
	p              *queuePair
	ring, comp, sg DMA
	hwIndex        uint32
	hwType         uint8
	size, total    int

	mu       sync.Mutex // guards what follows
	head     int
	tail     int
	compHead int
	colour   uint8
	rung     int // head at the last doorbell
	bufs     []DMA
	dropped  uint64 // completions with an error status
}

func (q *rxQueue) init(p *queuePair) (err error) {
	d := p.d
	q.p, q.size, q.total, q.colour = p, d.eth.ring, d.options.MTU+rxHeader, 1
	q.bufs = make([]DMA, q.size)
	if q.ring, err = d.mem.Alloc(q.size * rxDescSize); err != nil {
		return err
	}
	if q.comp, err = d.mem.Alloc(q.size * compSize); err != nil {
		return err
	}
	if q.sg, err = d.mem.Alloc(q.size * rxSGSize); err != nil {
		return err
	}
	cmd := d.queueInit(queueRx, uint32(p.index), p.intr.Index, qFlagIRQ|qFlagSG, log2(q.size), q.ring.IOVA, q.comp.IOVA, q.sg.IOVA)
	comp, err := d.Admin(cmd)
	q.hwIndex, q.hwType = le.Uint32(comp[4:]), comp[8]
	return err
}

func (q *rxQueue) free(m *Memory) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.bufs {
		m.Free(b)
	}
	m.Free(q.ring)
	m.Free(q.comp)
	m.Free(q.sg)
}

// fill posts buffers until one slot is left and rings the doorbell.
func (q *rxQueue) fill() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refill(1)
}

// refill posts buffers if at least want slots are free; the queue is locked.
func (q *rxQueue) refill(want int) {
	d := q.p.d
	free := (q.tail - q.head - 1 + q.size) % q.size
	if free < want {
		return
	}
	for range free {
		if err := q.post(); err != nil {
			d.Fail(err)
			return
		}
	}
	if q.head != q.rung {
		q.rung = q.head
		d.io.ring(d.hwIndex*d.DoorbellPages(), q.hwType, uint64(q.hwIndex)<<24|uint64(q.head))
	}
}

// post gives the device one buffer: the first piece in the descriptor, further
// pages in the scatter-gather list.
func (q *rxQueue) post() error {
	slot := q.head
	if q.bufs[slot].Size == 0 {
		b, err := q.p.d.mem.Alloc(pagesOf(q.total) * PageSize)
		if err != nil {
			return err
		}
		q.bufs[slot] = b
	}
	buf := q.bufs[slot]
	guard := buf.Bytes()[q.total:]
	for i := range guard {
		guard[i] = freedByte
	}
	desc := q.ring.Bytes()[slot*rxDescSize : (slot+1)*rxDescSize]
	sg := q.sg.Bytes()[slot*rxSGSize : (slot+1)*rxSGSize]
	clear(desc)
	clear(sg)
	le.PutUint16(desc[6:], uint16(min(q.total, PageSize)))
	le.PutUint64(desc[8:], buf.IOVA)
	for at, i := PageSize, 0; at < q.total; at, i = at+PageSize, i+1 {
		desc[0] = rxOpSG
		le.PutUint64(sg[16*i:], buf.IOVA+uint64(at))
		le.PutUint16(sg[16*i+8:], uint16(min(PageSize, q.total-at)))
	}
	q.head = (slot + 1) % q.size
	return nil
}

// service takes received frames and returns the number of completions.
func (q *rxQueue) service(budget int) (n int) {
	for n < budget {
		p, ok := q.next()
		if !ok {
			break
		}
		n++
		if f := q.p.d.eth.receive.Load(); f != nil && p.Data != nil {
			(*f)(p)
		}
	}
	return n
}

// next takes one completion. The packet has no data if it was in error.
func (q *rxQueue) next() (Packet, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.compHead * compSize
	if uint8(q.comp.Load64(at+8)>>63) != q.colour {
		return Packet{}, false
	}
	c := q.comp.Bytes()[at : at+compSize]
	if index := int(le.Uint16(c[2:])); index != q.tail || q.tail == q.head {
		q.p.d.fault("receive queue %d: completion of slot %d, the oldest posted is %d: the kernel would stop on it for ever",
			q.p.index, index, q.tail)
		return Packet{}, false
	}
	p := Packet{Queue: q.p.index, Hash: le.Uint32(c[4:]), Type: c[15] & 0x7f}
	if flags := c[14]; flags&rxFlagCsum != 0 {
		p.Csum, p.CsumValid = le.Uint16(c[8:]), true
	}
	if c[14]&rxFlagVLAN != 0 {
		p.VLAN, p.Tagged = le.Uint16(c[10:]), true
	}
	buf := q.bufs[q.tail].Bytes()
	length, pieces := int(le.Uint16(c[12:])), 1+int(c[1])
	switch {
	case firstWrite(buf[q.total:]) >= 0:
		q.p.d.fault("receive queue %d slot %d: the device wrote beyond the %d bytes of the buffer", q.p.index, q.tail, q.total)
	case c[0] != 0:
		q.dropped++
	case length > q.total || length < 14:
		q.p.d.fault("receive queue %d slot %d: frame of %d bytes in a buffer of %d", q.p.index, q.tail, length, q.total)
	case pieces != max(1, pagesOf(length)):
		q.p.d.fault("receive queue %d slot %d: frame of %d bytes in %d pieces: the kernel would truncate or drop it",
			q.p.index, q.tail, length, pieces)
	default:
		p.Data = bytes.Clone(buf[:length])
	}
	q.tail = (q.tail + 1) % q.size
	if q.compHead = (q.compHead + 1) % q.size; q.compHead == 0 {
		q.colour ^= 1
	}
	q.refill(min(16, q.size/8))
	return p, true
}

// Dropped counts the received frames of a queue pair that came with an error status.
func (d *Device) Dropped(queue int) uint64 {
	p, err := d.pair(queue)
	if err != nil {
		return 0
	}
	p.rx.mu.Lock()
	defer p.rx.mu.Unlock()
	return p.rx.dropped
}

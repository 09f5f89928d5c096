// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

const (
	txDescSize = 16
	txSGSize   = 256
	txMaxSG    = 15

	txOpCsumPartial = 1
	txOpTSO         = 3

	txFlagVLAN = 0x1
	txFlagSOT  = 0x4
	txFlagEOT  = 0x8
)

// TxFrame is a frame to send and the offloads it needs.
type TxFrame struct {
	Data      []byte // from the destination address on, without FCS
	Fragments int    // pieces to cut it into; above 1 needs FeatureTxSG

	Csum       bool // fill in a checksum
	CsumStart  int  // byte that it starts at
	CsumOffset int  // where it goes, from CsumStart

	Tagged bool // insert a VLAN tag
	VLAN   uint16

	// MSS above 0 sends Data, whose first HdrLen bytes are Ethernet, IP and TCP
	// headers, in TCP segments.
	HdrLen, MSS int
}

// txQueue is one transmit queue. A slot's buffer is free when its frame's last
// slot has been completed.
type txQueue struct {
	p              *queuePair
	ring, comp, sg DMA
	hwIndex        uint32
	hwType         uint8
	size           int

	mu       sync.Mutex // guards what follows
	room     room       // for senders while the ring is full
	head     int
	tail     int
	compHead int
	colour   uint8
	bufs     []DMA
	last     []bool // slot ends a frame
}

func (q *txQueue) init(p *queuePair) (err error) {
	d := p.d
	q.p, q.size, q.colour = p, min(d.eth.ring, 8192), 1
	q.bufs, q.last = make([]DMA, q.size), make([]bool, q.size)
	if q.ring, err = d.mem.Alloc(q.size * txDescSize); err != nil {
		return err
	}
	if q.comp, err = d.mem.Alloc(q.size * compSize); err != nil {
		return err
	}
	if q.sg, err = d.mem.Alloc(q.size * txSGSize); err != nil {
		return err
	}
	cmd := d.queueInit(queueTx, uint32(p.index), p.intr.Index, qFlagIRQ|qFlagSG, log2(q.size), q.ring.IOVA, q.comp.IOVA, q.sg.IOVA)
	comp, err := d.Admin(cmd)
	q.hwIndex, q.hwType = le.Uint32(comp[4:]), comp[8]
	return err
}

func (q *txQueue) free(m *Memory) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.bufs {
		m.Free(b)
	}
	m.Free(q.ring)
	m.Free(q.comp)
	m.Free(q.sg)
}

// Transmit queues a frame on a queue pair and rings the doorbell. It waits for
// room, not for the completion.
func (d *Device) Transmit(queue int, f TxFrame) error {
	p, err := d.pair(queue)
	if err != nil {
		return err
	}
	if f.Fragments == 0 {
		f.Fragments = 1
	}
	if err := d.checkFrame(&f); err != nil {
		return err
	}
	q := &p.tx
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.MSS > 0 {
		err = q.segments(&f)
	} else {
		err = q.post(&f, f.Data, 0, 0)
	}
	if err != nil {
		return err
	}
	d.io.ring(d.hwIndex*d.DoorbellPages(), q.hwType, uint64(q.hwIndex)<<24|uint64(q.head))
	return nil
}

func (d *Device) checkFrame(f *TxFrame) error {
	needs := func(feature uint64, wanted bool, what string) error {
		if wanted && d.feature&feature == 0 {
			return fmt.Errorf("driver: frame needs %s, which the device did not grant", what)
		}
		return nil
	}
	if len(f.Data) < 14 || f.Fragments > txMaxSG+1 || f.Fragments > len(f.Data) || f.MSS < 0 || f.HdrLen > len(f.Data) {
		return fmt.Errorf("driver: frame of %d bytes in %d fragments, header %d, MSS %d", len(f.Data), f.Fragments, f.HdrLen, f.MSS)
	}
	for _, err := range []error{
		needs(FeatureTxSG, f.Fragments > 1, "scatter-gather"),
		needs(FeatureTxCsum, f.Csum, "checksums"),
		needs(FeatureVLANTx, f.Tagged, "VLAN insertion"),
		needs(FeatureTSO, f.MSS > 0, "segmentation"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// segments posts one descriptor for each wire segment, as ionic_tx_tso does.
func (q *txQueue) segments(f *TxFrame) error {
	f.Data = append([]byte(nil), f.Data...)
	if err := prepareTCP(f.Data, f.HdrLen); err != nil {
		return err
	}
	for at := 0; at < len(f.Data); {
		end := min(at+f.MSS, len(f.Data))
		flags := uint64(0)
		if at == 0 {
			flags |= txFlagSOT
			end = min(f.HdrLen+f.MSS, len(f.Data))
		}
		if end == len(f.Data) {
			flags |= txFlagEOT
		}
		if err := q.post(f, f.Data[at:end], txOpTSO, flags); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// post fills one slot; the queue is locked. op 0 is a whole frame.
func (q *txQueue) post(f *TxFrame, data []byte, op, flags uint64) error {
	d := q.p.d
	for (q.head+1)%q.size == q.tail {
		if err := d.Err(); err != nil {
			return err
		}
		q.room.await(&q.mu, d.Failed())
	}
	slot := q.head
	buf, err := q.buffer(slot, len(data))
	if err != nil {
		return err
	}
	copy(buf.Bytes(), data)
	n := min(f.Fragments, len(data))
	piece := (len(data) + n - 1) / n
	sg := q.sg.Bytes()[slot*txSGSize : (slot+1)*txSGSize]
	clear(sg)
	elements := 0
	for at := piece; at < len(data); at += piece {
		le.PutUint64(sg[16*elements:], buf.IOVA+uint64(at))
		le.PutUint16(sg[16*elements+8:], uint16(min(piece, len(data)-at)))
		elements++
	}
	desc := q.ring.Bytes()[slot*txDescSize : (slot+1)*txDescSize]
	clear(desc)
	switch {
	case op == txOpTSO:
		le.PutUint16(desc[12:], uint16(f.HdrLen))
		le.PutUint16(desc[14:], uint16(f.MSS))
	case f.Csum:
		op = txOpCsumPartial
		le.PutUint16(desc[12:], uint16(f.CsumStart))
		le.PutUint16(desc[14:], uint16(f.CsumOffset))
	}
	if f.Tagged {
		flags |= txFlagVLAN
		le.PutUint16(desc[10:], f.VLAN)
	}
	le.PutUint16(desc[8:], uint16(min(piece, len(data))))
	le.PutUint64(desc, flags|op<<4|uint64(elements)<<8|buf.IOVA<<12)
	q.last[slot] = op != txOpTSO || flags&txFlagEOT != 0
	q.head = (slot + 1) % q.size
	return nil
}

// buffer returns the slot's buffer of at least n bytes.
func (q *txQueue) buffer(slot, n int) (DMA, error) {
	if b := q.bufs[slot]; pagesOf(b.Size) >= pagesOf(n) {
		b.Size = max(n, b.Size)
		return b, nil
	}
	b, err := q.p.d.mem.Alloc(pagesOf(n) * PageSize)
	if err != nil {
		return DMA{}, err
	}
	q.p.d.mem.Free(q.bufs[slot])
	q.bufs[slot] = b
	return b, nil
}

// service retires what the device completed and returns the number of completions.
func (q *txQueue) service(budget int) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < budget {
		at := q.compHead * compSize
		if uint8(q.comp.Load64(at+8)>>63) != q.colour {
			break
		}
		index := int(le.Uint16(q.comp.Bytes()[at+2:]))
		if posted := (q.head - q.tail + q.size) % q.size; index >= q.size || (index-q.tail+q.size)%q.size >= posted {
			q.p.d.fault("transmit queue %d: completion of slot %d, posted are %d..%d: the kernel would loop for ever",
				q.p.index, index, q.tail, q.head)
			return n
		}
		if !q.last[index] {
			q.p.d.fault("transmit queue %d: completion of slot %d inside a segmented frame: the kernel would free memory that is being sent",
				q.p.index, index)
			return n
		}
		q.tail = (index + 1) % q.size
		if q.compHead = (q.compHead + 1) % q.size; q.compHead == 0 {
			q.colour ^= 1
		}
		n++
	}
	if n > 0 {
		q.room.wake()
	}
	return n
}

// FlushTransmit waits until all frames of a queue pair have been completed.
func (d *Device) FlushTransmit(queue int, timeout time.Duration) error {
	p, err := d.pair(queue)
	if err != nil {
		return err
	}
	q := &p.tx
	deadline := time.Now().Add(timeout)
	for {
		q.mu.Lock()
		empty := q.tail == q.head
		q.mu.Unlock()
		switch {
		case empty:
			return nil
		case d.Err() != nil:
			return d.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("driver: transmit queue %d: frames not completed in %v", queue, timeout)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// prepareTCP does to the headers what the kernel does before segmentation: the
// lengths and the IPv4 checksum are zero, and the TCP checksum is the folded sum
// of the pseudo-header with length 0.
func prepareTCP(b []byte, hdrLen int) error {
	const ethLen, tcpMin = 14, 20
	if hdrLen < ethLen+40 || hdrLen > len(b) {
		return fmt.Errorf("driver: header of %d bytes cannot hold Ethernet, IP and TCP", hdrLen)
	}
	var pseudo []byte
	tcp := 0
	ip := b[ethLen:hdrLen]
	switch be := binary.BigEndian; be.Uint16(b[12:]) {
	case 0x0800:
		tcp = ethLen + int(ip[0]&0xf)*4
		be.PutUint16(ip[2:], 0)
		be.PutUint16(ip[10:], 0)
		pseudo = ip[12:20]
	case 0x86dd:
		tcp = ethLen + 40
		be.PutUint16(ip[4:], 0)
		pseudo = ip[8:40]
	default:
		return fmt.Errorf("driver: segmentation of EtherType %#x", be.Uint16(b[12:]))
	}
	if tcp+tcpMin > hdrLen {
		return fmt.Errorf("driver: header of %d bytes is too short for TCP", hdrLen)
	}
	sum := uint32(6)
	for i := 0; i < len(pseudo); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(pseudo[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[tcp+16:], uint16(sum))
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// Statistics buffers, and the bits of stats_type.
const (
	statsSize   = 4096
	statsEntry  = 32
	statsMax    = 128
	statsGlobal = 1 << 0
	statsQP     = 1 << 1
)

// Value types of counters, and their sizes in bytes.
var statsSizes = [...]int{0, 1, 2, 4, 8, 2, 4, 8}

// Counter describes one counter.
type Counter struct {
	Name   string
	kind   uint8
	offset int
}

// statistics asks the device to fill a buffer by a statistics command and returns
// a copy of it. qpn is 0 but for the values of a queue pair.
func (d *Device) statistics(op uint8, qpn uint32) ([]byte, error) {
	buf, err := d.mem.Alloc(statsSize)
	if err != nil {
		return nil, err
	}
	defer d.mem.Free(buf)
	if err := d.command(op, statsBody(buf, qpn)); err != nil {
		return nil, err
	}
	return append([]byte(nil), buf.Bytes()[:statsSize]...), nil
}

// statsBody is the body of the four statistics commands.
func statsBody(buf driver.DMA, qpn uint32) []byte {
	b := make([]byte, 17)
	le.PutUint64(b[0:], buf.IOVA)
	le.PutUint32(b[8:], statsSize)
	le.PutUint32(b[12:], qpn)
	return b
}

// readCounterNames asks for the lists of counters that the device offers, once.
func (d *Device) readCounterNames() error {
	for _, l := range []struct {
		bit  uint16
		op   uint8
		list *[]Counter
	}{{statsGlobal, admStatsHdrs, &d.counter}, {statsQP, admQPStatsHdrs, &d.qpCounter}} {
		if d.Stats&l.bit == 0 {
			continue
		}
		b, err := d.statistics(l.op, 0)
		if err != nil {
			return err
		}
		if *l.list, err = parseCounters(b); err != nil {
			return err
		}
	}
	return nil
}

// parseCounters reads a list of counters by the kernel driver's rules: it ends
// with an entry of type 0, or after 128.
//
//	0  be32  bits 28-31 type of the value, bits 0-27 its byte offset
//	4  28 bytes of name, NUL terminated
func parseCounters(b []byte) (list []Counter, err error) {
	for i := 0; i < statsMax && len(b) >= statsEntry; i++ {
		e := b[:statsEntry]
		b = b[statsEntry:]
		word := be.Uint32(e)
		c := Counter{kind: uint8(word >> 28), offset: int(word & 0xfffffff)}
		if c.kind == 0 {
			break
		}
		if int(c.kind) >= len(statsSizes) {
			return nil, fmt.Errorf("counter %d has value type %d", i, c.kind)
		}
		n := statsSizes[c.kind]
		if c.offset%n != 0 || c.offset+n > statsSize {
			return nil, fmt.Errorf("counter %d at offset %d is not aligned or beyond the buffer: it would read as all ones", i, c.offset)
		}
		for j, ch := range e[4:] {
			if ch == 0 {
				c.Name = string(e[4 : 4+j])
				break
			}
		}
		if c.Name == "" {
			return nil, fmt.Errorf("counter %d has no name, or one that does not end", i)
		}
		list = append(list, c)
	}
	return list, nil
}

// Counters reads all counters of the device.
func (d *Device) Counters() (map[string]uint64, error) {
	b, err := d.statistics(admStatsVals, 0)
	if err != nil {
		return nil, fmt.Errorf("verbs: read counters: %w", err)
	}
	return values(d.counter, b), nil
}

// Counters reads the counters of the queue pair alone, as a queue pair bound to
// an rdma statistic counter shows them.
func (qp *QP) Counters() (map[string]uint64, error) {
	d := qp.c.d
	if d.Stats&statsQP == 0 {
		return nil, fmt.Errorf("verbs: the device has no counters of queue pairs")
	}
	b, err := d.statistics(admQPStatsVals, qp.QPN)
	if err != nil {
		return nil, fmt.Errorf("verbs: read counters of queue pair %d: %w", qp.QPN, err)
	}
	return values(d.qpCounter, b), nil
}

// values reads the counters of a list out of b, which holds them all.
func values(list []Counter, b []byte) map[string]uint64 {
	out := make(map[string]uint64, len(list))
	for _, c := range list {
		b := b[c.offset:]
		switch c.kind {
		case 1:
			out[c.Name] = uint64(b[0])
		case 2:
			out[c.Name] = uint64(le.Uint16(b))
		case 3:
			out[c.Name] = uint64(le.Uint32(b))
		case 4:
			out[c.Name] = le.Uint64(b)
		case 5:
			out[c.Name] = uint64(be.Uint16(b))
		case 6:
			out[c.Name] = uint64(be.Uint32(b))
		case 7:
			out[c.Name] = be.Uint64(b)
		}
	}
	return out
}

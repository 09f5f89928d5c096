// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

const (
	statsSize   = 4096
	statsEntry  = 32
	statsMax    = 128
	statsGlobal = 1 << 0
)

// Value types of counters, and their sizes in bytes.
var statsSizes = [...]int{0, 1, 2, 4, 8, 2, 4, 8}

// Counter describes one counter.
type Counter struct {
	Name   string
	kind   uint8
	offset int
}

// statsBody is the body of the four statistics commands.
func statsBody(buf driver.DMA) []byte {
	b := make([]byte, 17)
	le.PutUint64(b[0:], buf.IOVA)
	le.PutUint32(b[8:], statsSize)
	return b
}

// readCounterNames asks for the list of counters once.
func (d *Device) readCounterNames() error {
	if d.Stats&statsGlobal == 0 {
		return nil
	}
	buf, err := d.mem.Alloc(statsSize)
	if err != nil {
		return err
	}
	defer d.mem.Free(buf)
	if err := d.command(admStatsHdrs, statsBody(buf)); err != nil {
		return err
	}
	for i := range statsMax {
		e := buf.Bytes()[i*statsEntry : (i+1)*statsEntry]
		word := be.Uint32(e)
		c := Counter{kind: uint8(word >> 28), offset: int(word & 0xfffffff)}
		if c.kind == 0 {
			return nil
		}
		if int(c.kind) >= len(statsSizes) {
			return fmt.Errorf("counter %d has value type %d", i, c.kind)
		}
		n := statsSizes[c.kind]
		if c.offset%n != 0 || c.offset+n > statsSize {
			return fmt.Errorf("counter %d at offset %d is not aligned or beyond the buffer: it would read as all ones", i, c.offset)
		}
		for j, ch := range e[4:] {
			if ch == 0 {
				c.Name = string(e[4 : 4+j])
				break
			}
		}
		if c.Name == "" {
			return fmt.Errorf("counter %d has no name, or one that does not end", i)
		}
		d.counter = append(d.counter, c)
	}
	return nil
}

// Counters reads all counters.
func (d *Device) Counters() (map[string]uint64, error) {
	buf, err := d.mem.Alloc(statsSize)
	if err != nil {
		return nil, err
	}
	defer d.mem.Free(buf)
	if err := d.command(admStatsVals, statsBody(buf)); err != nil {
		return nil, fmt.Errorf("verbs: read counters: %w", err)
	}
	out := make(map[string]uint64, len(d.counter))
	for _, c := range d.counter {
		b := buf.Bytes()[c.offset:]
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
	return out, nil
}

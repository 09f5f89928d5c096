// SPDX-License-Identifier: Apache-2.0

package pci

import "encoding/binary"

// ConfigSize is the size of a PCI Express configuration space in bytes.
const ConfigSize = 4096

// space is a configuration space with a write rule for every bit. A bit that is
// in neither rule is read-only. It knows nothing of the meaning of registers.
type space struct {
	cur   [ConfigSize]byte // what reads see
	init  [ConfigSize]byte // power-on value
	write [ConfigSize]byte // bits that take the written value
	clear [ConfigSize]byte // bits that a written one clears
}

// define16 and define32 set the power-on value and the writable bits of a register.
func (s *space) define16(off int, value, writable uint16) {
	binary.LittleEndian.PutUint16(s.init[off:], value)
	binary.LittleEndian.PutUint16(s.write[off:], writable)
}

func (s *space) define32(off int, value, writable uint32) {
	binary.LittleEndian.PutUint32(s.init[off:], value)
	binary.LittleEndian.PutUint32(s.write[off:], writable)
}

func (s *space) clearable16(off int, bits uint16) {
	binary.LittleEndian.PutUint16(s.clear[off:], bits)
}

// powerOn puts every register back to its power-on value.
func (s *space) powerOn() { s.cur = s.init }

// read copies the bytes at off; off+len(p) is within the space.
func (s *space) read(off int, p []byte) { copy(p, s.cur[off:]) }

// store applies the write rules of the bytes at off; off+len(p) is within the space.
func (s *space) store(off int, p []byte) {
	for i, v := range p {
		at := off + i
		w := s.write[at]
		s.cur[at] = (s.cur[at]&^w | v&w) &^ (v & s.clear[at])
	}
}

func (s *space) get16(off int) uint16 { return binary.LittleEndian.Uint16(s.cur[off:]) }

func (s *space) put16(off int, v uint16) { binary.LittleEndian.PutUint16(s.cur[off:], v) }

// written returns the value that the write of p at off puts into the byte at
// reg, and whether the write reaches that byte at all.
func written(off int, p []byte, reg int) (byte, bool) {
	i := reg - off
	if i < 0 || i >= len(p) {
		return 0, false
	}
	return p[i], true
}

// SPDX-License-Identifier: Apache-2.0

package abi

// StatLen is the size of a statistics header entry; a list ends with an entry
// of type 0 or after MaxStats of them.
const (
	StatLen     = 32
	MaxStats    = 128
	StatNameLen = 27 // characters, without the final NUL
)

// StatLE64 is the type of a statistics value that is a little-endian 64-bit
// word at an aligned offset.
const StatLE64 = 4

// LIFStatsLen is the size of struct ionic_lif_stats. STATS_VALS answers with
// this block, as the LIF information area shows it, and appends the counters
// that have no field there.
const LIFStatsLen = 1024

// Stat is a statistics header entry (struct ionic_v1_stat).
//
//	0  be32  bits 28-31 type, bits 0-27 byte offset of the value
//	4  28 bytes of name, NUL terminated
type Stat struct {
	Type   uint8
	Offset uint32
	Name   string
}

// Put writes the entry to b.
func (s *Stat) Put(b []byte) {
	b = b[:StatLen]
	clear(b)
	be.PutUint32(b, uint32(s.Type)<<28|s.Offset&(1<<28-1))
	copy(b[4:4+StatNameLen], s.Name)
}

// Get reads the entry from b.
func (s *Stat) Get(b []byte) {
	b = b[:StatLen]
	v := be.Uint32(b)
	s.Type, s.Offset = uint8(v>>28), v&(1<<28-1)
	n := 4
	for n < StatLen-1 && b[n] != 0 {
		n++
	}
	s.Name = string(b[4:n])
}

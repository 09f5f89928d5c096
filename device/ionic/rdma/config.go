// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"fmt"
	"math/bits"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/device/ionic/rdma/wqe"
)

// Interrupts is the bank of interrupt vectors. Its methods neither block nor
// allocate.
type Interrupts interface {
	// Len is the number of vectors.
	Len() int
	// Post adds credits events to vector vec.
	Post(vec, credits int)
	// Reset masks vector vec and drops what is pending. Nothing posts to it
	// any more.
	Reset(vec int)
}

// Link carries packets to other engines, and to this one.
type Link interface {
	// Transmit takes a packet for dst. It never blocks. The packet belongs to
	// the link unless the verdict is qp.Full; then Engine.Writable must be
	// called once there is room.
	Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict
}

// AddressSource says where an address of the guest was seen.
type AddressSource uint8

// Sources of addresses.
const (
	SourceAH AddressSource = iota // CREATE_AH
	SourceQP                      // MODIFY_QP with an address vector
)

// String returns a short name.
func (s AddressSource) String() string {
	if s == SourceAH {
		return "ah"
	}
	return "qp"
}

// AddressObserver hears of the addresses the guest sends from: the driver has
// no command that tells them. AddressSeen is called on an admin queue's
// goroutine and must not block.
type AddressObserver interface {
	AddressSeen(a packet.Address, s AddressSource)
}

// Limits are the numbers of objects the device offers. Zero fields take the
// default named. Every one is really there; memory is taken as they are used.
type Limits struct {
	QPs        uint32 // power of two; default 16384
	CQs        uint32 // power of two; default 32768
	MRs        uint32 // regions and windows, at most 1<<24; default 131072
	AHs        uint32 // at most 1<<24; default 65536
	EQs        uint32 // 4 to 32 are useful; default 32
	AQs        uint32 // 1 to 4; default 1
	PageTables uint32 // page table entries of all regions and rings; default 1<<24
	HeldCQEs   uint32 // completions held back for full CQs; default 1<<21
}

// Config is what an Engine needs.
type Config struct {
	Limits     Limits
	Interrupts Interrupts
	Link       Link
	Addresses  AddressObserver // may be nil
	Workers    int             // goroutines that run QPs; default one for each processor, at least two
	// Opcodes is the version of send queue opcodes that the identity announces
	// and the guest then uses; default wqe.V1, for which all versions of kernel
	// and provider agree on every layout.
	Opcodes wqe.Version
	Log     zerolog.Logger
}

// udmaShift is the bit of a QP or CQ id that tells its half (udma).
const udmaShift = 3

// maxStrideLog2 is the largest SQ or RQ entry: 512 bytes hold 480 bytes of
// inline data, which perftest's latency tests need.
const maxStrideLog2 = 9

func (l *Limits) setDefaults() {
	for _, d := range []struct {
		v   *uint32
		def uint32
	}{
		{&l.QPs, 16384}, {&l.CQs, 32768}, {&l.MRs, 131072}, {&l.AHs, 65536}, {&l.EQs, 32},
		{&l.AQs, 1}, {&l.PageTables, 1 << 24}, {&l.HeldCQEs, 1 << 21},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
}

func (l *Limits) check() error {
	const least = 2 << udmaShift // the driver's id permutation needs both halves of a group
	for _, c := range []struct {
		name     string
		v        uint32
		min, max uint32
		pow2     bool
	}{
		{"QPs", l.QPs, least, 1 << 24, true},
		{"CQs", l.CQs, least, 1 << 24, true},
		{"MRs", l.MRs, 2, 1 << 24, false},
		{"AHs", l.AHs, 1, 1 << 24, false},
		{"EQs", l.EQs, 1, 1024, false},
		{"AQs", l.AQs, 1, 4, false},
	} {
		if c.v < c.min || c.v > c.max || c.pow2 && bits.OnesCount32(c.v) != 1 {
			return fmt.Errorf("rdma limits: %s is %d, want %d to %d%s", c.name, c.v, c.min, c.max,
				map[bool]string{true: ", a power of two"}[c.pow2])
		}
	}
	return nil
}

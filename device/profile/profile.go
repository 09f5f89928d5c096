// SPDX-License-Identifier: Apache-2.0

// Package profile is the shape of the emulated NIC: what it reports about
// itself, its link, and the queues and interrupt vectors it offers.
//
// A profile is built in layers over the built-in "compat". Each layer is another
// built-in profile or an ini file; later layers win, key by key:
//
//	[identity]
//	asic_type  = none | capri | elba | giglio | salina
//	asic_rev   = 0..255
//	fw_version = 1 to 31 printable ASCII characters
//	[link]
//	speed_mbps = 1000 | 10000 | 25000 | 40000 | 50000 | 100000 | 200000 | 400000
//	xcvr       = copper | fiber | none
//	mtu_max    = 1500..9582
//	offloads   = off | on
//	[stats]
//	interval_ms = 10..60000
//	[queues]
//	eth          = 1..64
//	rdma_eqs     = 4..32
//	intr_vectors = auto | 2..128
package profile

import "strconv"

// AsicType is the ASIC type in the device info registers. The driver re-checks
// its doorbells every second for None and Elba only.
type AsicType uint8

// ASIC types.
const (
	AsicNone AsicType = iota
	AsicCapri
	AsicElba
	AsicGiglio
	AsicSalina
)

// Xcvr is the kind of transceiver.
type Xcvr uint8

// Kinds of transceiver: ethtool's port is Direct Attach Copper, FIBRE or None.
const (
	XcvrCopper Xcvr = iota
	XcvrFiber
	XcvrNone
)

// VectorsAuto as Profile.IntrVectors asks for a vector for every queue and
// event queue.
const VectorsAuto = 0

// Profile is the shape of a NIC. The comment of each field is its key.
type Profile struct {
	AsicType        AsicType // identity.asic_type
	AsicRev         uint8    // identity.asic_rev
	FWVersion       string   // identity.fw_version
	SpeedMbps       int      // link.speed_mbps
	Xcvr            Xcvr     // link.xcvr
	MTUMax          int      // link.mtu_max
	Offloads        bool     // link.offloads
	StatsIntervalMS int      // stats.interval_ms
	EthQueues       int      // queues.eth
	RDMAEQs         int      // queues.rdma_eqs
	IntrVectors     int      // queues.intr_vectors, VectorsAuto for auto
}

// Compat returns the base of every profile.
func Compat() Profile {
	return Profile{
		AsicType: AsicNone, AsicRev: 0, FWVersion: "rocm-ernic-1.0",
		SpeedMbps: 100000, Xcvr: XcvrCopper, MTUMax: 9198, Offloads: false,
		StatsIntervalMS: 1000,
		EthQueues:       4, RDMAEQs: 32, IntrVectors: 32,
	}
}

// Needed returns the number of vectors that gives every queue pair and every
// event queue its own: one for the admin and notify queue, and theirs.
func (p *Profile) Needed() int { return 1 + p.EthQueues + p.RDMAEQs }

// Vectors returns the number of interrupt vectors the device advertises.
func (p *Profile) Vectors() int {
	if p.IntrVectors == VectorsAuto {
		return p.Needed()
	}
	return p.IntrVectors
}

// Shortfall says, for a warning at start, what a guest with enough CPUs loses
// because there are fewer vectors than Needed; "" if it loses nothing.
func (p *Profile) Shortfall() string {
	if p.Vectors() >= p.Needed() {
		return ""
	}
	return "queues.intr_vectors = " + strconv.Itoa(p.Vectors()) + " is less than the " +
		strconv.Itoa(p.Needed()) + " of 1 + queues.eth + queues.rdma_eqs: a guest with enough CPUs gets " +
		"fewer event queues or queue pairs than the profile names"
}

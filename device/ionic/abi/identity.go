// SPDX-License-Identifier: Apache-2.0

package abi

// DriverIdentity is the side data the driver passes to IDENTIFY.
type DriverIdentity []byte

// OSType returns the operating system: 1 is Linux.
func (d DriverIdentity) OSType() uint32 { return le.Uint32(d[0:]) }

// DriverVersion returns the driver_ver_str field up to its NUL.
func (d DriverIdentity) DriverVersion() string { return cString(d[172:204]) }

// DeviceIdentity is the answer to IDENTIFY (union ionic_dev_identity).
type DeviceIdentity []byte

// DeviceIdentityVersion is the newest version this package lays out.
const DeviceIdentityVersion = 2

// Capability bits of the device identity.
const (
	DevCapVFCtrl     = 1 << 0
	DevCapDiscCMB    = 1 << 1
	DevCapExtraStats = 1 << 4
)

// SetVersion stores the structure version.
func (d DeviceIdentity) SetVersion(v uint8) { d[0] = v }

// SetPorts stores the number of ports.
func (d DeviceIdentity) SetPorts(n uint8) { d[4] = n }

// SetLIFs stores the number of LIFs.
func (d DeviceIdentity) SetLIFs(n uint32) { le.PutUint32(d[8:], n) }

// SetIntrs stores the number of interrupt vectors the driver may use.
func (d DeviceIdentity) SetIntrs(n uint32) { le.PutUint32(d[12:], n) }

// Intrs returns the number of interrupt vectors.
func (d DeviceIdentity) Intrs() uint32 { return le.Uint32(d[12:]) }

// SetDoorbellPages stores the number of doorbell pages of a LIF. 0 makes the
// driver's probe fail.
func (d DeviceIdentity) SetDoorbellPages(n uint32) { le.PutUint32(d[16:], n) }

// DoorbellPages returns the number of doorbell pages of a LIF.
func (d DeviceIdentity) DoorbellPages() uint32 { return le.Uint32(d[16:]) }

// SetCoalesce stores the multiplier and divisor that turn microseconds into
// interrupt coalescing units.
func (d DeviceIdentity) SetCoalesce(mult, div uint32) {
	le.PutUint32(d[20:], mult)
	le.PutUint32(d[24:], div)
}

// SetCapabilities stores the DevCap bits.
func (d DeviceIdentity) SetCapabilities(c uint64) { le.PutUint64(d[48:], c) }

// PortIdentity is the answer to PORT_IDENTIFY (union ionic_port_identity).
type PortIdentity []byte

// PortIdentityVersion is the version this package lays out.
const PortIdentityVersion = 1

// Port types.
const (
	PortTypeEth  = 1
	PortTypeMgmt = 2
)

// SetVersion stores the structure version.
func (p PortIdentity) SetVersion(v uint8) { p[0] = v }

// SetType stores the port type.
func (p PortIdentity) SetType(t uint8) { p[1] = t }

// SetLanes stores the number of lanes.
func (p PortIdentity) SetLanes(n uint8) { p[2] = n }

// SetAutoneg stores whether autonegotiation is supported.
func (p PortIdentity) SetAutoneg(n uint8) { p[3] = n }

// SetFrameSize stores the smallest and largest frame in bytes, without FCS.
func (p PortIdentity) SetFrameSize(lo, hi uint32) {
	le.PutUint32(p[4:], lo)
	le.PutUint32(p[8:], hi)
}

// MaxFrameSize returns the largest frame in bytes.
func (p PortIdentity) MaxFrameSize() uint32 { return le.Uint32(p[8:]) }

// SetFECTypes stores up to four supported FEC types.
func (p PortIdentity) SetFECTypes(t ...uint8) { copy(p[12:16], t) }

// SetPauseTypes stores up to two supported pause types.
func (p PortIdentity) SetPauseTypes(t ...uint8) { copy(p[16:18], t) }

// SetSpeed stores entry i (0..15) of the list of speeds, Mb/s.
func (p PortIdentity) SetSpeed(i int, mbps uint32) { le.PutUint32(p[20+4*i:], mbps) }

// Config returns the current port configuration, which the driver hands back in
// PORT_INIT.
func (p PortIdentity) Config() PortConfig { return PortConfig(p[128 : 128+PortConfigSize]) }

// LIFIdentity is the answer to LIF_IDENTIFY (union ionic_lif_identity). Its
// multi-byte fields sit at odd alignment: the structure is packed.
type LIFIdentity []byte

// LIFIdentityVersion is the version this package lays out.
const LIFIdentityVersion = 1

// Place of the RDMA block in the LIF identity.
const (
	LIFIdentityRDMAOffset = 392
	LIFIdentityRDMASize   = 256
)

// SetCapabilities stores the LIFCap bits.
func (l LIFIdentity) SetCapabilities(c uint64) { le.PutUint64(l[0:], c) }

// Capabilities returns the LIFCap bits.
func (l LIFIdentity) Capabilities() uint64 { return le.Uint64(l[0:]) }

// SetEthVersion stores the version of the Ethernet block.
func (l LIFIdentity) SetEthVersion(v uint8) { l[8] = v }

// SetFilters stores the capacity for unicast (the driver counts multicast in
// it, too) and multicast filters.
func (l LIFIdentity) SetFilters(unicast, multicast uint32) {
	le.PutUint32(l[12:], unicast)
	le.PutUint32(l[16:], multicast)
}

// MaxUnicastFilters returns the unicast filter capacity.
func (l LIFIdentity) MaxUnicastFilters() uint32 { return le.Uint32(l[12:]) }

// SetRSSTableSize stores the number of indirection table entries; 0 makes the
// driver's probe fail.
func (l LIFIdentity) SetRSSTableSize(n uint16) { le.PutUint16(l[20:], n) }

// RSSTableSize returns the number of indirection table entries.
func (l LIFIdentity) RSSTableSize() uint16 { return le.Uint16(l[20:]) }

// SetFrameSize stores the smallest and largest frame. The driver takes the
// first as its smallest MTU and the second less 18 as its largest.
func (l LIFIdentity) SetFrameSize(lo, hi uint32) {
	le.PutUint32(l[22:], lo)
	le.PutUint32(l[26:], hi)
}

// MaxFrameSize returns the largest frame in bytes.
func (l LIFIdentity) MaxFrameSize() uint32 { return le.Uint32(l[26:]) }

// Config returns the LIF configuration of the Ethernet block.
func (l LIFIdentity) Config() LIFConfig { return LIFConfig(l[136 : 136+LIFConfigSize]) }

// RDMA returns the RDMA block.
func (l LIFIdentity) RDMA() []byte {
	return l[LIFIdentityRDMAOffset : LIFIdentityRDMAOffset+LIFIdentityRDMASize]
}

// QIdentity is the answer to Q_IDENTIFY (union ionic_q_identity).
type QIdentity struct {
	Version      uint8 // copied by the driver into Q_INIT
	Supported    uint8 // bit n: version n
	Features     QFeatures
	DescSize     uint16
	CompSize     uint16
	SGDescSize   uint16
	MaxSG        uint16
	SGDescStride uint16
}

// QIdentitySize is the number of bytes Encode stores.
const QIdentitySize = 26

// Encode stores the identity at the start of b.
func (q QIdentity) Encode(b []byte) {
	b[0], b[1] = q.Version, q.Supported
	le.PutUint64(b[8:], uint64(q.Features))
	le.PutUint16(b[16:], q.DescSize)
	le.PutUint16(b[18:], q.CompSize)
	le.PutUint16(b[20:], q.SGDescSize)
	le.PutUint16(b[22:], q.MaxSG)
	le.PutUint16(b[24:], q.SGDescStride)
}

// DecodeQIdentity reads the identity from the start of b.
func DecodeQIdentity(b []byte) QIdentity {
	return QIdentity{
		Version: b[0], Supported: b[1], Features: QFeatures(le.Uint64(b[8:])),
		DescSize: le.Uint16(b[16:]), CompSize: le.Uint16(b[18:]), SGDescSize: le.Uint16(b[20:]),
		MaxSG: le.Uint16(b[22:]), SGDescStride: le.Uint16(b[24:]),
	}
}

// cString returns the bytes up to the first NUL.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

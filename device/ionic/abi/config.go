// SPDX-License-Identifier: Apache-2.0

package abi

// PortConfigSize is the size of a port configuration in bytes.
const PortConfigSize = 256

// PortConfig is union ionic_port_config.
type PortConfig []byte

// Speed returns the link speed in Mb/s.
func (p PortConfig) Speed() uint32 { return le.Uint32(p[0:]) }

// SetSpeed stores the link speed in Mb/s.
func (p PortConfig) SetSpeed(mbps uint32) { le.PutUint32(p[0:], mbps) }

// MTU returns the port MTU in bytes.
func (p PortConfig) MTU() uint32 { return le.Uint32(p[4:]) }

// SetMTU stores the port MTU in bytes.
func (p PortConfig) SetMTU(n uint32) { le.PutUint32(p[4:], n) }

// State returns the administrative state.
func (p PortConfig) State() PortAdminState { return PortAdminState(p[8]) }

// SetState stores the administrative state.
func (p PortConfig) SetState(s PortAdminState) { p[8] = byte(s) }

// Autoneg returns 1 if autonegotiation is on.
func (p PortConfig) Autoneg() uint8 { return p[9] }

// SetAutoneg stores whether autonegotiation is on.
func (p PortConfig) SetAutoneg(v uint8) { p[9] = v }

// FEC returns the FEC type.
func (p PortConfig) FEC() uint8 { return p[10] }

// SetFEC stores the FEC type.
func (p PortConfig) SetFEC(v uint8) { p[10] = v }

// Pause returns the pause type in the low nibble and the direction flags.
func (p PortConfig) Pause() uint8 { return p[11] }

// SetPause stores the pause type and direction flags.
func (p PortConfig) SetPause(v uint8) { p[11] = v }

// Loopback returns the loopback mode.
func (p PortConfig) Loopback() uint8 { return p[12] }

// SetLoopback stores the loopback mode.
func (p PortConfig) SetLoopback(v uint8) { p[12] = v }

// FEC types.
const (
	FECNone     = 0
	FECFirecode = 1
	FECRS       = 2
)

// Pause types and direction flags.
const (
	PauseNone = 0
	PauseLink = 1
	PausePFC  = 2
	PauseTx   = 0x10
	PauseRx   = 0x20
)

// LIFConfigSize is the size of a LIF configuration in bytes.
const LIFConfigSize = 256

// LIFConfig is union ionic_lif_config.
type LIFConfig []byte

// SetState stores the LIF state.
func (l LIFConfig) SetState(s LIFState) { l[0] = byte(s) }

// SetName stores the NUL-terminated name.
func (l LIFConfig) SetName(n []byte) { copy(l[4:4+LIFNameLen], n) }

// SetMTU stores the MTU in bytes.
func (l LIFConfig) SetMTU(n uint32) { le.PutUint32(l[20:], n) }

// SetMAC stores the station address.
func (l LIFConfig) SetMAC(m [6]byte) { copy(l[24:30], m[:]) }

// SetFeatures stores the feature mask.
func (l LIFConfig) SetFeatures(f Features) { le.PutUint64(l[32:], uint64(f)) }

// SetQueueCount stores the number of queues of a logical type.
func (l LIFConfig) SetQueueCount(t QType, n uint32) { le.PutUint32(l[40+4*int(t):], n) }

// QueueCount returns the number of queues of a logical type.
func (l LIFConfig) QueueCount(t QType) uint32 { return le.Uint32(l[40+4*int(t):]) }

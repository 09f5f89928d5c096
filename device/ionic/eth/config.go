// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth/learn"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/netport"
)

// RDMA is what the LIF needs of the RDMA half.
type RDMA interface {
	// Identity fills the RDMA block of the LIF identity, 256 bytes.
	Identity(b []byte)
	// Command executes one of the opcodes 50 to 53 and returns its status.
	Command(cmd *[abi.CommandSize]byte, comp *[abi.CompletionSize]byte) (status uint8)
	// Reset forgets every object; all DMA and interrupts have stopped when it
	// returns.
	Reset()
	// StatsInto stores the RDMA counters at their offsets of the 1024-byte
	// lif_stats block.
	StatsInto(block []byte)
}

// Observer hears what the guest's behaviour says about its addresses. It is
// called from the goroutines that move frames and run commands: it hands over
// and returns, and calls nothing of the NIC.
type Observer interface {
	// AddressSeen tells that the guest owns ip on mac.
	AddressSeen(mac [6]byte, ip netip.Addr, s learn.Source)
	// MACFilter tells that the guest began or ceased to listen on a unicast
	// address.
	MACFilter(mac [6]byte, added bool)
}

// Xcvr is the kind of transceiver the port shows.
type Xcvr uint8

// Kinds of transceiver.
const (
	XcvrCopper Xcvr = iota
	XcvrFiber
	XcvrNone
)

// Config is the shape of the LIF and what it is joined to.
type Config struct {
	MAC     [6]byte
	MTUMax  int    // largest MTU the guest may set
	Speed   uint32 // Mb/s
	Xcvr    Xcvr
	Queues  int          // queue pairs, 1..64
	Vectors int          // interrupt vectors the driver may use
	Offload abi.Features // features the LIF grants when asked

	StatsInterval time.Duration // how often counters are rewritten in guest memory

	Bank     *intr.Bank
	Port     netport.Port // nil: no wire, the carrier is down
	RDMA     RDMA         // nil: the RDMA capability is off
	Observer Observer     // may be nil
	Log      zerolog.Logger
}

// MaxQueues is the largest number of queue pairs.
const MaxQueues = 64

// frameOverhead is what a frame adds to the MTU: Ethernet header and one tag.
const frameOverhead = 18

// minMTU is the smallest MTU the driver may set (IPv4's minimum).
const minMTU = 68

// maxPortMTU bounds the MTU in the port's configuration.
const maxPortMTU = 9000

func (c *Config) check() error {
	switch {
	case c.MAC == [6]byte{} || c.MAC[0]&1 != 0:
		return fmt.Errorf("eth: %x is no unicast MAC address", c.MAC)
	case c.MTUMax < 1500 || c.MTUMax > 65535-frameOverhead:
		return fmt.Errorf("eth: largest MTU %d is not within 1500..%d", c.MTUMax, 65535-frameOverhead)
	case c.Queues < 1 || c.Queues > MaxQueues:
		return fmt.Errorf("eth: %d queue pairs, want 1..%d", c.Queues, MaxQueues)
	case c.Vectors < 2 || c.Vectors > abi.MaxVectors:
		return fmt.Errorf("eth: %d interrupt vectors, want 2..%d", c.Vectors, abi.MaxVectors)
	case c.Offload&^supportedOffloads != 0:
		return fmt.Errorf("eth: features %#x cannot be granted", uint64(c.Offload&^supportedOffloads))
	case c.StatsInterval <= 0:
		return fmt.Errorf("eth: statistics interval %v is not positive", c.StatsInterval)
	case c.Bank == nil || c.Bank.Len() < c.Vectors:
		return fmt.Errorf("eth: the interrupt bank has fewer than %d vectors", c.Vectors)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package ionic

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/eth"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/pci"
	"github.com/ernic-dev/ernic/device/profile"
)

// RDMA is the RDMA half as the NIC sees it.
type RDMA interface {
	eth.RDMA
	// Doorbell takes a doorbell of a queue type that is not Ethernet's. It runs
	// on the goroutine that serves the guest: it records, hands over and
	// returns, and does not allocate.
	Doorbell(pid uint32, qtype uint8, val uint64)
	// Attach gives the memory of a new guest.
	Attach(mem *guestmem.Space)
}

// BusMasterer is implemented by an RDMA half that can pause: while bus
// mastering is off it does no DMA and keeps its objects. One that cannot is
// reset instead.
type BusMasterer interface {
	BusMaster(on bool)
}

// Unmasker is implemented by an RDMA half that keeps account of what the driver
// has read of its event queues. Unmasking is called when the driver unmasks
// vector vec, before the vector can interrupt again.
type Unmasker interface {
	Unmasking(vec int)
}

// Observer hears of the guest's addresses.
type Observer = eth.Observer

// Config describes the NIC.
type Config struct {
	Profile  profile.Profile
	MAC      [6]byte // station address, unicast
	Serial   string  // up to 31 characters, shown by devlink; "" takes the MAC
	Port     netport.Port
	RDMA     func(*intr.Bank) (RDMA, error) // makes the RDMA half; nil: none
	Observer Observer
	Log      zerolog.Logger
}

// NIC is one emulated adapter. Function is what a vfio-user server serves.
type NIC struct {
	*pci.Function

	lif  *eth.LIF
	rdma RDMA
	bank *intr.Bank
	regs registers
	dbs  doorbells
}

// New checks the configuration and returns a NIC without a guest.
func New(c Config) (*NIC, error) {
	if err := c.Profile.Check(); err != nil {
		return nil, err
	}
	p := &c.Profile
	n := &NIC{bank: intr.New(p.Vectors())}
	ec := eth.Config{
		MAC: c.MAC, MTUMax: p.MTUMax, Speed: uint32(p.SpeedMbps), Xcvr: xcvr(p.Xcvr),
		Queues: p.EthQueues, Vectors: p.Vectors(), Offload: offloads(p.Offloads),
		StatsInterval: time.Duration(p.StatsIntervalMS) * time.Millisecond,
		Bank:          n.bank, Port: c.Port, Observer: c.Observer, Log: c.Log,
	}
	if c.RDMA != nil {
		r, err := c.RDMA(n.bank)
		if err != nil {
			return nil, fmt.Errorf("ionic: RDMA half: %w", err)
		}
		n.rdma, ec.RDMA = r, r
		if u, ok := r.(Unmasker); ok {
			n.bank.SetUnmasking(u.Unmasking)
		}
	}
	lif, err := eth.New(ec)
	if err != nil {
		return nil, err
	}
	n.lif = lif
	if c.Serial == "" {
		c.Serial = fmt.Sprintf("%x", c.MAC)
	}
	n.regs.init(n, p, c.Serial)
	n.dbs.nic = n
	n.Function, err = pci.New(pci.Config{
		Vendor: abi.VendorID, Device: abi.DeviceID,
		SubVendor: abi.SubVendorID, SubDevice: abi.SubDeviceID,
		Class: abi.PCIClass,
		BARs: [pci.NumBARs]pci.BAR{
			0: {Size: abi.BAR0Size, Is64: true, Handler: &n.regs},
			2: {Size: abi.BAR2Size, Is64: true, Handler: &n.dbs},
		},
		MSIX: pci.MSIX{
			Vectors: abi.MaxVectors, TableBAR: 0, TableOffset: abi.MSIXTableOffset,
			PBABAR: 0, PBAOffset: abi.MSIXPBAOffset,
		},
		Express: true, NoFLR: rechecksDoorbells(p.AsicType), PM: true,
		Hooks: hooks{n},
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// rechecksDoorbells reports whether the driver runs its doorbell check every
// second (ionic_doorbell_wa). A function-level reset is then fatal to the guest:
// ionic_reset_prepare leaves the check's timer pending, and ionic_dev_setup
// initialises it again while it is, which ends in a corrupted timer list. Such a
// NIC does not offer the reset.
func rechecksDoorbells(a profile.AsicType) bool {
	return a == profile.AsicNone || a == profile.AsicElba
}

func xcvr(x profile.Xcvr) eth.Xcvr {
	switch x {
	case profile.XcvrFiber:
		return eth.XcvrFiber
	case profile.XcvrNone:
		return eth.XcvrNone
	}
	return eth.XcvrCopper
}

func offloads(on bool) abi.Features {
	if on {
		return eth.AllOffloads
	}
	return 0
}

// LIF returns the Ethernet half.
func (n *NIC) LIF() *eth.LIF { return n.lif }

// Bank returns the interrupt control blocks.
func (n *NIC) Bank() *intr.Bank { return n.bank }

// SetLink tells whether the wire behind the LIF is there.
func (n *NIC) SetLink(up bool) { n.lif.SetLink(up) }

// Close ends the NIC's goroutines and closes its port.
func (n *NIC) Close() error { return n.lif.Close() }

// hooks is what the PCI function calls.
type hooks struct{ n *NIC }

// Attach implements [pci.Hooks].
func (h hooks) Attach(mem *guestmem.Space, signal func(vector int)) {
	h.n.regs.reset()
	h.n.lif.Attach(mem)
	if h.n.rdma != nil {
		h.n.rdma.Attach(mem)
	}
	h.n.bank.SetSignal(signal)
}

// Detach implements [pci.Hooks].
func (h hooks) Detach() {
	h.n.lif.Detach() // resets the RDMA half, too
	h.n.bank.SetSignal(nil)
}

// Reset implements [pci.Hooks].
func (h hooks) Reset() {
	h.n.lif.Reset()
	h.n.regs.reset()
}

// BusMaster implements [pci.Hooks].
func (h hooks) BusMaster(on bool) {
	switch r := h.n.rdma.(type) {
	case nil:
	case BusMasterer:
		r.BusMaster(on)
	default:
		if !on {
			r.Reset()
		}
	}
	h.n.lif.BusMaster(on)
}

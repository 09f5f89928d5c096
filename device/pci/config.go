// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"fmt"
	"math/bits"
)

// NumBARs is the number of base address registers of a type-0 header.
const NumBARs = 6

// minBAR is the smallest memory BAR: the low four bits of the register are flags.
const minBAR = 16

// pageSize is the granule at which a client traps the MSI-X table.
const pageSize = 4096

// Handler answers the accesses of one BAR. off is the byte offset in the BAR,
// and off+len(p) is within it; p has 1 to any number of bytes at any alignment,
// and is valid only during the call. The calls of one function come one at a
// time, from the goroutine that serves the client: a handler never does slow
// work and never waits for the client.
type Handler interface {
	// ReadBAR fills p, which arrives zeroed; holes stay zero.
	ReadBAR(off uint64, p []byte)
	// WriteBAR takes p; writes to holes are dropped.
	WriteBAR(off uint64, p []byte)
}

// BAR describes one memory BAR. The zero value is an absent BAR.
type BAR struct {
	Size     uint64  // bytes, a power of two, at least 16; 0 means absent
	Is64     bool    // takes the next BAR register too, which must be absent
	Prefetch bool    // prefetchable
	Handler  Handler // nil: reads as zero
}

// MSIX places the MSI-X table and the pending-bit array. Each has 4 KiB pages
// of its own, because some clients move a table that has not.
type MSIX struct {
	Vectors     int // 1..2048
	TableBAR    int // index of the BAR that holds the table
	PBABAR      int // index of the BAR that holds the pending-bit array
	TableOffset uint32
	PBAOffset   uint32
}

// Config describes a function.
type Config struct {
	Vendor, Device       uint16
	SubVendor, SubDevice uint16
	Class                uint32 // 24 bits: base class, subclass, programming interface
	Revision             uint8
	BARs                 [NumBARs]BAR
	MSIX                 MSIX
	Express              bool // PCI Express endpoint capability, with function-level reset
	NoFLR                bool // without function-level reset
	PM                   bool // power management capability
	Hooks                Hooks
}

// carve is a byte range of a BAR that the handler does not see.
type carve struct{ start, end uint64 }

// check says what is wrong with the configuration.
func (c *Config) check() error {
	if c.Hooks == nil {
		return fmt.Errorf("pci: function %04x:%04x has no hooks", c.Vendor, c.Device)
	}
	if c.Class>>24 != 0 {
		return fmt.Errorf("pci: class %#x has more than 24 bits", c.Class)
	}
	for i := range c.BARs {
		if err := c.checkBAR(i); err != nil {
			return err
		}
	}
	return c.checkMSIX()
}

func (c *Config) checkBAR(i int) error {
	b := &c.BARs[i]
	switch {
	case b.Size == 0 && (b.Is64 || b.Prefetch || b.Handler != nil):
		return fmt.Errorf("pci: BAR%d has attributes but no size", i)
	case b.Size == 0:
		return nil
	case bits.OnesCount64(b.Size) != 1 || b.Size < minBAR:
		return fmt.Errorf("pci: BAR%d size %#x is not a power of two of at least %d", i, b.Size, minBAR)
	case !b.Is64 && b.Size > 1<<31:
		return fmt.Errorf("pci: BAR%d size %#x needs a 64-bit BAR", i, b.Size)
	case b.Is64 && i == NumBARs-1:
		return fmt.Errorf("pci: BAR%d cannot be 64-bit: there is no register after it", i)
	case b.Is64 && c.BARs[i+1].Size != 0:
		return fmt.Errorf("pci: BAR%d holds the upper half of 64-bit BAR%d and cannot have a size", i+1, i)
	}
	return nil
}

func (c *Config) checkMSIX() error {
	m := &c.MSIX
	if m.Vectors < 1 || m.Vectors > msixMaxVectors {
		return fmt.Errorf("pci: %d MSI-X vectors, want 1..%d", m.Vectors, msixMaxVectors)
	}
	place := func(what string, bar int, off uint32, size uint64) error {
		if bar < 0 || bar >= NumBARs || c.BARs[bar].Size == 0 {
			return fmt.Errorf("pci: MSI-X %s is in absent BAR%d", what, bar)
		}
		if off%pageSize != 0 || uint64(off)+size > c.BARs[bar].Size {
			return fmt.Errorf("pci: MSI-X %s of %d bytes at %#x is unaligned or beyond BAR%d (%#x bytes)",
				what, size, off, bar, c.BARs[bar].Size)
		}
		return nil
	}
	if err := place("table", m.TableBAR, m.TableOffset, m.tableSize()); err != nil {
		return err
	}
	if err := place("pending-bit array", m.PBABAR, m.PBAOffset, m.pbaSize()); err != nil {
		return err
	}
	tableEnd := uint64(m.TableOffset) + roundToPage(m.tableSize())
	pbaEnd := uint64(m.PBAOffset) + roundToPage(m.pbaSize())
	if m.TableBAR == m.PBABAR && uint64(m.TableOffset) < pbaEnd && uint64(m.PBAOffset) < tableEnd {
		return fmt.Errorf("pci: MSI-X table at %#x and pending-bit array at %#x share a page", m.TableOffset, m.PBAOffset)
	}
	return nil
}

func (m *MSIX) tableSize() uint64 { return uint64(m.Vectors) * msixEntrySize }

// pbaSize is one bit a vector in 64-bit words.
func (m *MSIX) pbaSize() uint64 { return uint64(m.Vectors+63) / 64 * 8 }

// carves returns the MSI-X ranges in a BAR in ascending order.
func (m *MSIX) carves(bar int) []carve {
	var out []carve
	if m.TableBAR == bar {
		out = append(out, carve{uint64(m.TableOffset), uint64(m.TableOffset) + m.tableSize()})
	}
	if m.PBABAR == bar {
		p := carve{uint64(m.PBAOffset), uint64(m.PBAOffset) + m.pbaSize()}
		if len(out) == 1 && p.start < out[0].start {
			return []carve{p, out[0]}
		}
		out = append(out, p)
	}
	return out
}

func roundToPage(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }

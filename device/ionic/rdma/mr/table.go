// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"math"
	"sync"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic/rdma/abi"
	"github.com/ernic-dev/ernic/device/ionic/rdma/idtable"
	"github.com/ernic-dev/ernic/device/ionic/rdma/pbl"
)

// PageSizes are the page sizes of a region's page list, a bitmap as in the
// identity: 4 KiB, 2 MiB, 1 GiB.
const PageSizes = 1<<12 | 1<<21 | 1<<30

// Table holds the regions and windows of a device. All methods are safe for
// concurrent use.
type Table struct {
	entries *idtable.Table[entry]
	mem     *guestmem.Space
	budget  *pbl.Budget

	mu   sync.Mutex // for idle only
	idle *sync.Cond // an entry that is being shut lost its last user
}

// New returns an empty table for keys with indices 1 to limit-1.
func New(limit uint32, mem *guestmem.Space, budget *pbl.Budget) *Table {
	t := &Table{entries: idtable.New[entry](limit), mem: mem, budget: budget}
	t.idle = sync.NewCond(&t.mu)
	return t
}

// Len is the number of regions and windows.
func (t *Table) Len() int { return t.entries.Len() }

// Create executes CREATE_MR. Errors are *abi.Refusal.
func (t *Table) Create(c *abi.CreateMR) error {
	index := c.ID >> 8
	if index == 0 || index >= t.entries.Limit() {
		return abi.Refuse(abi.AdminBadIndex, "memory region %#x: index is not in 1 to %d", c.ID, t.entries.Limit()-1)
	}
	e := &entry{kind: region, pd: c.PD, key: uint8(c.ID), access: c.Flags & abi.MRAccessMask}
	e.users.Store(closed)
	switch {
	case c.Flags&abi.MRWindow != 0:
		e.kind = window1
		if c.Flags&abi.MRInvalidate != 0 {
			e.kind = window2
		}
		e.access = 0
	case c.Flags&abi.MRInvalidate != 0:
		e.kind = fast
		e.access = 0
	default:
		if err := t.fill(e, c); err != nil {
			return err
		}
		e.life++
		e.admit()
	}
	if !t.entries.Add(index, e) {
		e.pages.Free(t.budget)
		return abi.Refuse(abi.AdminBadIndex, "memory region %#x: index %d is in use", c.ID, index)
	}
	return nil
}

// fill gives a new region its memory.
func (t *Table) fill(e *entry, c *abi.CreateMR) error {
	e.va, e.length = c.VA, c.Length
	if c.Length > 0 && c.Length-1 > math.MaxUint64-c.VA {
		return abi.Refuse(abi.AdminBadAttr, "memory region %#x: %d bytes at %#x pass the end of the address space", c.ID, c.Length, c.VA)
	}
	if c.MapCount > 1 {
		if c.PageSizeLog2 >= 64 || PageSizes>>c.PageSizeLog2&1 == 0 {
			return abi.Refuse(abi.AdminBadAttr, "memory region %#x: page size 2^%d is not offered", c.ID, c.PageSizeLog2)
		}
		e.offset = c.VA & (1<<c.PageSizeLog2 - 1)
		if e.offset > math.MaxUint64-c.Length {
			return abi.Refuse(abi.AdminBadAttr, "memory region %#x: %d bytes are too many", c.ID, c.Length)
		}
	}
	n := c.Length
	if n > 0 {
		n += e.offset
	}
	if err := e.pages.Load(t.mem, t.budget, c.MapCount, c.DMA, c.PageSizeLog2, n); err != nil {
		e.pages.Free(t.budget)
		return abi.Refuse(abi.AdminBadAttr, "memory region %#x: %v", c.ID, err)
	}
	e.pages.Trim(t.budget)
	return nil
}

// Destroy executes DESTROY_MR of a region or window; when it returns, nothing
// touches its memory any more. Only the index of id counts.
func (t *Table) Destroy(id uint32) error {
	e := t.entries.Remove(id >> 8)
	if e == nil {
		return abi.Refuse(abi.AdminBadIndex, "memory region %#x: does not exist", id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	t.shut(e)
	e.pages.Free(t.budget)
	e.parent = nil
	return nil
}

// Clear destroys everything.
func (t *Table) Clear() {
	t.entries.All(func(index uint32, _ *entry) bool {
		// A missing entry was destroyed meanwhile, which is what is wanted.
		_ = t.Destroy(index << 8)
		return true
	})
	t.entries.Clear()
}

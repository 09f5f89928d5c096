// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"github.com/ernic-dev/ernic/device/ionic/driver"
)

// Access are the rights of a memory key, with the device's bits.
type Access uint16

// Rights of memory regions and windows.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindMW       Access = 1 << 4
	ZeroBased    Access = 1 << 5

	mrUserKey = 1 << 13
	mrWindow  = 1 << 14
	mrInvEn   = 1 << 15
)

// MR is a memory region.
type MR struct {
	pd     *PD
	Key    uint32 // lkey and rkey: index << 8 | key byte
	id     uint32 // as it was created
	Buffer *Buffer
	table  buffer // of a fast-register region: lives as long as the region is mapped
}

// mrBody is the body of CREATE_MR.
func mrBody(va, length uint64, pd, id uint32, buf buffer, flags uint16) []byte {
	b := make([]byte, 45)
	le.PutUint64(b[0:], va)
	le.PutUint64(b[8:], length)
	le.PutUint32(b[16:], pd)
	le.PutUint32(b[20:], id)
	le.PutUint32(b[24:], 0xffffffff)
	le.PutUint32(b[28:], buf.count)
	le.PutUint64(b[32:], buf.address)
	le.PutUint16(b[40:], flags)
	b[44] = buf.pageLog2
	return b
}

func (p *PD) newKeyID() (uint32, error) {
	d := p.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	index, err := d.mrIDs.take()
	if err != nil {
		return 0, err
	}
	return index<<8 | uint32(d.newKey()), nil
}

func (p *PD) putKeyID(id uint32) {
	d := p.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mrIDs.put(id >> 8)
}

// describe returns the pages of a buffer as a memory region's: a single page is
// given by the address of the first byte itself.
func (b *Buffer) describe() (buffer, error) {
	buf, err := describePages(b.mem, b.pages, pageLog2)
	if buf.count == 1 {
		buf.address += uint64(b.offset)
	}
	return buf, err
}

// RegMR registers a buffer.
func (p *PD) RegMR(b *Buffer, access Access) (*MR, error) { return p.RegMRAt(b, b.VA, access) }

// RegMRAt registers a buffer under the address va, which has the buffer's offset
// in its page.
func (p *PD) RegMRAt(b *Buffer, va uint64, access Access) (*MR, error) {
	if va%driver.PageSize != uint64(b.offset) {
		return nil, fmt.Errorf("verbs: address %#x for a buffer at page offset %#x", va, b.offset)
	}
	buf, err := b.describe()
	if err != nil {
		return nil, err
	}
	// The guest frees the table as soon as the command is done.
	defer buf.release(b.mem)
	id, err := p.newKeyID()
	if err != nil {
		return nil, err
	}
	buf.pageLog2 = pageLog2
	if err := p.c.d.command(admCreateMR, mrBody(va, uint64(b.Len), p.ID, id, buf, uint16(access))); err != nil {
		p.putKeyID(id)
		return nil, fmt.Errorf("verbs: register %d bytes at %#x: %w", b.Len, va, err)
	}
	return &MR{pd: p, Key: id, id: id, Buffer: b}, nil
}

// Dereg destroys the region; the device touches its memory no more.
func (m *MR) Dereg() error {
	if err := m.pd.c.d.command(admDestroyMR, le.AppendUint32(nil, m.id)); err != nil {
		return fmt.Errorf("verbs: destroy memory region %#x: %w", m.id, err)
	}
	m.table.release(m.pd.c.d.mem)
	m.pd.putKeyID(m.id)
	return nil
}

// AllocFastMR makes a region that is registered by REG_MR work requests (kernel).
func (p *PD) AllocFastMR() (*MR, error) {
	id, err := p.newKeyID()
	if err != nil {
		return nil, err
	}
	if err := p.c.d.command(admCreateMR, mrBody(0, 0, p.ID, id, buffer{}, mrUserKey|mrInvEn)); err != nil {
		p.putKeyID(id)
		return nil, fmt.Errorf("verbs: allocate fast-register region: %w", err)
	}
	return &MR{pd: p, Key: id, id: id}, nil
}

// Map gives a fast-register region the pages of a buffer for the next REG_MR,
// as ib_map_mr_sg does. The page table lives until the next Map or Dereg.
func (m *MR) Map(b *Buffer) error {
	mem := m.pd.c.d.mem
	m.table.release(mem)
	m.table = buffer{}
	t, err := b.describe()
	if err != nil {
		return err
	}
	t.pageLog2 = pageLog2
	m.table, m.Buffer = t, b
	return nil
}

// MW is a memory window.
type MW struct {
	pd    *PD
	Key   uint32 // current rkey
	id    uint32
	Type2 bool
}

// AllocMW makes an unbound memory window.
func (p *PD) AllocMW(type2 bool) (*MW, error) {
	id, err := p.newKeyID()
	if err != nil {
		return nil, err
	}
	w := &MW{pd: p, Key: id, id: id, Type2: type2}
	if err := p.c.d.command(admCreateMR, mrBody(0, 0, p.ID, id, buffer{}, w.flags()|mrUserKey)); err != nil {
		p.putKeyID(id)
		return nil, fmt.Errorf("verbs: allocate memory window: %w", err)
	}
	return w, nil
}

// flags are the bits of a BIND_MW request that say what kind of window it is.
func (w *MW) flags() uint16 {
	if w.Type2 {
		return mrWindow | mrInvEn
	}
	return mrWindow
}

// Dealloc destroys the window.
func (w *MW) Dealloc() error {
	if err := w.pd.c.d.command(admDestroyMR, le.AppendUint32(nil, w.id)); err != nil {
		return fmt.Errorf("verbs: destroy memory window %#x: %w", w.id, err)
	}
	w.pd.putKeyID(w.id)
	return nil
}

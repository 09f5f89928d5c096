// SPDX-License-Identifier: Apache-2.0

package vfioclient

import "fmt"

// DeviceInfo is the answer to GET_INFO.
type DeviceInfo struct {
	Flags              uint32 // bit 0 reset, bit 1 PCI
	NumRegions, NumIRQ uint32
}

// RegionInfo is the answer to GET_REGION_INFO. A mappable region's descriptor
// and areas are checked for form and then let go.
type RegionInfo struct {
	Flags uint32 // bit 0 read, bit 1 write, bit 2 mmap, bit 3 capabilities
	Size  uint64 // bytes
	Areas int    // mappable areas
}

// IRQInfo is the answer to GET_IRQ_INFO.
type IRQInfo struct {
	Flags uint32 // bit 0 eventfd, bit 1 maskable, bit 2 automasked, bit 3 noresize
	Count uint32
}

// GetInfo asks what the device has and applies QEMU's limits.
func (c *Client) GetInfo() (DeviceInfo, error) {
	b, err := c.request(cmdGetInfo, "GET_INFO", words(16, 0, 0, 0))
	if err != nil {
		return DeviceInfo{}, err
	}
	if len(b) != 16 || le.Uint32(b) != 16 {
		return DeviceInfo{}, c.malformed("GET_INFO", b)
	}
	d := DeviceInfo{le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if d.Flags&2 == 0 || d.NumRegions < 8 || d.NumRegions > 100 || d.NumIRQ < 3 || d.NumIRQ > 50 {
		return d, fmt.Errorf("vfioclient: GET_INFO: flags %#x, %d regions, %d interrupt kinds: not a PCI device QEMU takes",
			d.Flags, d.NumRegions, d.NumIRQ)
	}
	return d, nil
}

const (
	regionInfoSize = 32
	flagMMAP       = 1 << 2
	flagCaps       = 1 << 3
)

// RegionInfo asks for one region, a second time with more room if the answer
// has capabilities.
func (c *Client) RegionInfo(index int) (RegionInfo, error) {
	room := uint32(regionInfoSize)
	for {
		b, nfds, err := c.regionInfo(index, room)
		if err != nil {
			return RegionInfo{}, err
		}
		name := fmt.Sprintf("GET_REGION_INFO %d", index)
		need := le.Uint32(b)
		if need < regionInfoSize || need > maxDataTransfer || le.Uint32(b[8:]) != uint32(index) {
			return RegionInfo{}, c.malformed(name, b)
		}
		if need > room {
			if nfds != 0 || len(b) != regionInfoSize {
				return RegionInfo{}, c.malformed(name, b)
			}
			room = need
			continue
		}
		r := RegionInfo{Flags: le.Uint32(b[4:]), Size: le.Uint64(b[16:])}
		if r.Size&(r.Size-1) != 0 {
			return r, fmt.Errorf("vfioclient: region %d has size %#x, not a power of two: QEMU would abort", index, r.Size)
		}
		if uint32(len(b)) != need || (nfds == 1) != (r.Flags&flagMMAP != 0) {
			return r, c.malformed(name, b)
		}
		if r.Flags&flagCaps != 0 {
			at := le.Uint32(b[12:])
			if at < regionInfoSize || at > need-16 || le.Uint16(b[at:]) != 1 || at+16+16*le.Uint32(b[at+8:]) != need {
				return r, c.malformed(name, b)
			}
			r.Areas = int(le.Uint32(b[at+8:]))
		}
		return r, nil
	}
}

// regionInfo asks once; it returns the payload and the number of descriptors.
func (c *Client) regionInfo(index int, room uint32) ([]byte, int, error) {
	p := append(words(room, 0, uint32(index), 0), make([]byte, 16)...)
	name := fmt.Sprintf("GET_REGION_INFO %d", index)
	w, err := c.start(cmdGetRegionInfo, name, p, true)
	if err != nil {
		return nil, 0, err
	}
	b, err := c.finish(w)
	closeAll(w.gotFDs)
	if err == nil && len(b) < regionInfoSize {
		err = c.malformed(name, b)
	}
	return b, len(w.gotFDs), err
}

// IRQInfo asks for one kind of interrupt.
func (c *Client) IRQInfo(index int) (IRQInfo, error) {
	name := fmt.Sprintf("GET_IRQ_INFO %d", index)
	b, err := c.request(cmdGetIRQInfo, name, words(16, 0, uint32(index), 0))
	if err != nil {
		return IRQInfo{}, err
	}
	if len(b) != 16 || le.Uint32(b) != 16 || le.Uint32(b[8:]) != uint32(index) {
		return IRQInfo{}, c.malformed(name, b)
	}
	return IRQInfo{le.Uint32(b[4:]), le.Uint32(b[12:])}, nil
}

func regionHead(region int, off uint64, count int) []byte {
	b := le.AppendUint64(make([]byte, 0, 16), off)
	b = le.AppendUint32(b, uint32(region))
	return le.AppendUint32(b, uint32(count))
}

// ReadRegion fills p from a region at off; len(p) is at most the server's
// largest transfer.
func (c *Client) ReadRegion(region int, off uint64, p []byte) error {
	head := regionHead(region, off, len(p))
	name := "REGION_READ"
	b, err := c.request(cmdRegionRead, name, head)
	if err != nil {
		return fmt.Errorf("%w (%d bytes at %#x of region %d)", err, len(p), off, region)
	}
	if len(b) != 16+len(p) || string(b[:16]) != string(head) {
		return c.malformed(name, b)
	}
	copy(p, b[16:])
	return nil
}

// WriteRegion writes p to a region at off and waits until the server has taken it.
func (c *Client) WriteRegion(region int, off uint64, p []byte) error {
	head := regionHead(region, off, len(p))
	name := "REGION_WRITE"
	b, err := c.request(cmdRegionWrite, name, append(head, p...))
	if err != nil {
		return fmt.Errorf("%w (%d bytes at %#x of region %d)", err, len(p), off, region)
	}
	if len(b) != 16 || string(b) != string(head[:16]) {
		return c.malformed(name, b)
	}
	c.noteCommand(region, off, p)
	return nil
}

// PostRegion writes p to a region at off and does not wait, as QEMU does for
// every write of a memory BAR. The order of posted writes and requests of one
// goroutine is kept. It does not allocate.
func (c *Client) PostRegion(region int, off uint64, p []byte) error {
	var head [16]byte
	le.PutUint64(head[:], off)
	le.PutUint32(head[8:], uint32(region))
	le.PutUint32(head[12:], uint32(len(p)))
	return c.post(cmdRegionWrite, head[:], p)
}

// MultiWrite is one entry of PostMulti; Data has 1 to 8 bytes.
type MultiWrite struct {
	Region int
	Off    uint64
	Data   []byte
}

// PostMulti posts several small writes in one message, as QEMU does when the
// server has stopped reading for a while. The server must have offered it.
func (c *Client) PostMulti(writes []MultiWrite) error {
	if !c.Capabilities().WriteMultiple {
		return fmt.Errorf("vfioclient: the server did not offer write_multiple")
	}
	p := le.AppendUint64(nil, uint64(len(writes)))
	for _, w := range writes {
		p = append(p, regionHead(w.Region, w.Off, len(w.Data))...)
		p = append(append(p, w.Data...), make([]byte, 8-len(w.Data))...)
	}
	return c.post(cmdRegionWriteMulti, nil, p)
}

// ResetDevice resets the device.
func (c *Client) ResetDevice() error {
	w, err := c.start(cmdReset, "DEVICE_RESET", nil, false)
	if err != nil {
		return err
	}
	if err := c.finishEmpty(w); err != nil {
		return err
	}
	c.command.Store(0)
	return nil
}

// noteCommand keeps a copy of the COMMAND register, by whose bus-master bit the
// client allows DMA messages.
func (c *Client) noteCommand(region int, off uint64, p []byte) {
	if region != RegionConfig || off > 4 || off+uint64(len(p)) <= 4 {
		return
	}
	c.command.Store(uint32(p[4-off]))
}

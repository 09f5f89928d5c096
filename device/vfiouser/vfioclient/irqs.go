// SPDX-License-Identifier: Apache-2.0

package vfioclient

import "fmt"

// irqChunk is how many descriptors QEMU puts into one SET_IRQS message.
const irqChunk = 16

func (c *Client) setIRQs(flags uint32, index, start, count int, fds ...int) error {
	name := fmt.Sprintf("SET_IRQS flags %#x index %d start %d count %d", flags, index, start, count)
	w, err := c.start(cmdSetIRQs, name, words(20, flags, uint32(index), uint32(start), uint32(count)), false, fds...)
	if err != nil {
		return err
	}
	return c.finishEmpty(w)
}

// EnableMSIX does what QEMU does when the guest turns MSI-X on with all vectors
// masked: the capability's enable bit, and an empty assignment of vector 0.
func (c *Client) EnableMSIX(cap MSIXCap) error {
	if err := c.writeConfig16(cap.Offset+2, 0xc000); err != nil {
		return err
	}
	if err := c.setIRQs(irqDataEventFD|irqActionTrigger, IRQMSIX, 0, 1); err != nil {
		return err
	}
	return c.writeConfig16(cap.Offset+2, 0x8000)
}

// UseVector gives the server an eventfd for one vector, as QEMU does when the
// guest unmasks the vector for the first time.
func (c *Client) UseVector(n int) (*Vector, error) {
	c.irqs.Lock()
	defer c.irqs.Unlock()
	if v := c.irqs.vectors[n]; v != nil {
		return v, nil
	}
	v, err := newVector()
	if err != nil {
		return nil, err
	}
	var sendErr error
	err = v.control(func(fd int) {
		sendErr = c.setIRQs(irqDataEventFD|irqActionTrigger, IRQMSIX, n, 1, fd)
	})
	if err == nil {
		err = sendErr
	}
	if err != nil {
		v.close()
		return nil, err
	}
	c.irqs.vectors[n] = v
	return v, nil
}

// EnableMSIXAtOnce does what QEMU does when the guest unmasked vectors before it
// turned MSI-X on: all of them in chunks of 16 descriptors.
func (c *Client) EnableMSIXAtOnce(cap MSIXCap, count int) ([]*Vector, error) {
	out := make([]*Vector, count)
	fds := make([]int, count)
	for i := range out {
		v, err := newVector()
		if err != nil {
			return nil, err
		}
		if err := v.control(func(fd int) { fds[i] = fd }); err != nil {
			return nil, err
		}
		out[i] = v
	}
	for at := 0; at < count; at += irqChunk {
		n := min(irqChunk, count-at)
		if err := c.setIRQs(irqDataEventFD|irqActionTrigger, IRQMSIX, at, n, fds[at:at+n]...); err != nil {
			return nil, err
		}
	}
	c.irqs.Lock()
	defer c.irqs.Unlock()
	for i, v := range out {
		if old := c.irqs.vectors[i]; old != nil {
			old.close()
		}
		c.irqs.vectors[i] = v
	}
	return out, c.writeConfig16(cap.Offset+2, 0x8000)
}

// ReleaseVector takes the eventfd of one vector away: a message with a count
// and no descriptor. The vector fires no more after it.
func (c *Client) ReleaseVector(n int) error {
	if err := c.setIRQs(irqDataEventFD|irqActionTrigger, IRQMSIX, n, 1); err != nil {
		return err
	}
	c.irqs.Lock()
	defer c.irqs.Unlock()
	if v := c.irqs.vectors[n]; v != nil {
		v.close()
		delete(c.irqs.vectors, n)
	}
	return nil
}

// DisableMSIX turns MSI-X off; every vector is gone after it.
func (c *Client) DisableMSIX(cap MSIXCap) error {
	if err := c.setIRQs(irqDataNone|irqActionTrigger, IRQMSIX, 0, 0); err != nil {
		return err
	}
	c.irqs.Lock()
	for n, v := range c.irqs.vectors {
		v.close()
		delete(c.irqs.vectors, n)
	}
	c.irqs.Unlock()
	return c.writeConfig16(cap.Offset+2, 0)
}

func (c *Client) usesVectors() bool {
	c.irqs.Lock()
	defer c.irqs.Unlock()
	return len(c.irqs.vectors) > 0
}

func (c *Client) writeConfig16(off uint64, v uint16) error {
	return c.WriteRegion(RegionConfig, off, le.AppendUint16(nil, v))
}

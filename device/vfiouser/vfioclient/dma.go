// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"fmt"
	"sync"
	"syscall"
)

// MapDMA gives the server a window of the guest's memory by descriptor.
func (c *Client) MapDMA(w Window) error {
	call, err := c.startMap(w.IOVA, w.Size, w.Offset, dmaRead|dmaWrite, c.ram.fd)
	if err != nil {
		return err
	}
	return c.finishEmpty(call)
}

// MapMessageMemory gives the server a window without a descriptor, which it can
// reach only by DMA messages. writable as the window's access flag says.
func (c *Client) MapMessageMemory(iova, size uint64, writable bool) error {
	flags := uint32(dmaRead)
	if writable {
		flags |= dmaWrite
	}
	call, err := c.startMap(iova, size, 0, flags)
	if err != nil {
		return err
	}
	return c.finishEmpty(call)
}

func (c *Client) startMap(iova, size, offset uint64, flags uint32, fd ...int) (*call, error) {
	p := words(32, flags)
	p = le.AppendUint64(p, offset)
	p = le.AppendUint64(p, iova)
	p = le.AppendUint64(p, size)
	return c.start(cmdDMAMap, fmt.Sprintf("DMA_MAP of %#x bytes at %#x", size, iova), p, false, fd...)
}

// UnmapDMA takes the windows inside a range of bus addresses away.
func (c *Client) UnmapDMA(iova, size uint64) error {
	p := words(24, 0)
	p = le.AppendUint64(p, iova)
	p = le.AppendUint64(p, size)
	name := fmt.Sprintf("DMA_UNMAP of %#x bytes at %#x", size, iova)
	reply, err := c.request(cmdDMAUnmap, name, p)
	if err != nil {
		return err
	}
	if len(reply) != len(p) || le.Uint64(reply[8:]) != iova || le.Uint64(reply[16:]) != size {
		return c.malformed(name, reply)
	}
	return nil
}

// finishEmpty waits for a reply that has no payload.
func (c *Client) finishEmpty(w *call) error {
	reply, err := c.finish(w)
	if err == nil && len(reply) != 0 {
		err = c.malformed(w.name, reply)
	}
	return err
}

// malformed ends the session on a reply of the wrong form.
func (c *Client) malformed(name string, reply []byte) error {
	err := fmt.Errorf("vfioclient: reply to %s is malformed: %d bytes, % x", name, len(reply), reply[:min(len(reply), 48)])
	c.fail(err)
	return err
}

// responder answers the server's DMA messages.
type responder struct {
	ram *RAM
	sync.Mutex
	private map[uint64][]byte // message memory by bus address
}

// AddMessageMemory makes size zero bytes at iova that the server reaches by
// messages once they are mapped with MapMessageMemory.
func (c *Client) AddMessageMemory(iova, size uint64) {
	c.dma.Lock()
	defer c.dma.Unlock()
	if c.dma.private == nil {
		c.dma.private = make(map[uint64][]byte)
	}
	c.dma.private[iova] = make([]byte, size)
}

// ReadMessageMemory fills p from message memory, or from RAM, at iova.
func (c *Client) ReadMessageMemory(iova uint64, p []byte) error {
	return c.atMessageMemory(iova, uint64(len(p)), func(b []byte) { copy(p, b) })
}

// WriteMessageMemory copies p to message memory, or to RAM, at iova.
func (c *Client) WriteMessageMemory(iova uint64, p []byte) error {
	return c.atMessageMemory(iova, uint64(len(p)), func(b []byte) { copy(b, p) })
}

func (c *Client) atMessageMemory(iova, n uint64, f func([]byte)) error {
	c.dma.Lock()
	defer c.dma.Unlock()
	b := c.dma.lookup(iova, n)
	if b == nil {
		return fmt.Errorf("vfioclient: %d bytes at %#x are not in the guest's memory", n, iova)
	}
	f(b)
	return nil
}

// lookup returns the n bytes at iova, or nil; the responder is locked.
func (r *responder) lookup(iova, n uint64) []byte {
	if b := r.ram.lookup(iova, n); b != nil {
		return b
	}
	for at, b := range r.private {
		if iova >= at && iova-at <= uint64(len(b)) && n <= uint64(len(b))-(iova-at) {
			return b[iova-at:][:n]
		}
	}
	return nil
}

const busMasterBit = 1 << 2

// serverRequest answers a command of the server as QEMU 11.1.3 does.
func (c *Client) serverRequest(h header, p []byte, fds []int) error {
	closeAll(fds)
	reply, errno := c.dmaMessage(h, p, len(fds))
	if h.flags&flagNoReply != 0 && errno == 0 {
		return nil
	}
	flags := uint32(flagReply)
	if errno != 0 {
		flags, reply = flagReply|flagError, nil
	}
	c.send.Lock()
	defer c.send.Unlock()
	return c.transmit(h.id, h.cmd, flags, uint32(errno), reply, nil)
}

func (c *Client) dmaMessage(h header, p []byte, nfds int) ([]byte, syscall.Errno) {
	switch {
	case h.cmd != cmdDMARead && h.cmd != cmdDMAWrite:
		return nil, syscall.ENOSYS
	case nfds != 0 || len(p) < 16:
		return nil, syscall.EINVAL
	}
	iova, count := le.Uint64(p), le.Uint64(p[8:])
	if count > uint64(c.Capabilities().MaxDataXfer) || h.cmd == cmdDMAWrite && count > uint64(len(p)-16) {
		return nil, syscall.E2BIG
	}
	if c.command.Load()&busMasterBit == 0 {
		return nil, syscall.ENODEV
	}
	c.dma.Lock()
	defer c.dma.Unlock()
	b := c.dma.lookup(iova, count)
	if b == nil {
		return nil, syscall.ENODEV
	}
	if h.cmd == cmdDMAWrite {
		copy(b, p[16:])
		return p[:16], 0
	}
	return append(p[:16:16], b...), 0
}

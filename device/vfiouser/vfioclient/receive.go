// SPDX-License-Identifier: Apache-2.0

package vfioclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxServerMessage bounds what a server may send: a reply of the largest
// transfer, or a DMA_WRITE of it.
const maxServerMessage = headerSize + 16 + maxDataTransfer

// receive reads what the server sends until the session ends.
func (c *Client) receive() {
	head := make([]byte, headerSize)
	control := make([]byte, unix.CmsgSpace(253*4))
	for {
		n, oobn, flags, _, err := c.conn.ReadMsgUnix(head, control)
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			c.fail(endOf(err))
			return
		}
		fds, err := parseRights(control[:oobn])
		switch {
		case err != nil:
		case flags&unix.MSG_CTRUNC != 0:
			err = fmt.Errorf("vfioclient: server sent more descriptors than a message can hold")
		case n < headerSize:
			err = fmt.Errorf("vfioclient: server's message header came in pieces: %d of %d bytes", n, headerSize)
		default:
			err = c.message(parseHeader(head), fds)
		}
		if err != nil {
			closeAll(fds)
			c.fail(err)
			return
		}
	}
}

func endOf(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return ErrClosed
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("vfioclient: server closed the connection: %w", io.EOF)
	}
	return fmt.Errorf("vfioclient: read a message header: %w", err)
}

func parseRights(control []byte) ([]int, error) {
	if len(control) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("vfioclient: server's control message: %w", err)
	}
	var fds []int
	for i := range msgs {
		f, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("vfioclient: server's descriptors: %w", err)
		}
		fds = append(fds, f...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// message takes one message. It owns the descriptors if it returns no error.
func (c *Client) message(h header, fds []int) error {
	if h.size < headerSize || h.size > maxServerMessage {
		return fmt.Errorf("vfioclient: server's message has size %d", h.size)
	}
	payload := make([]byte, h.size-headerSize)
	if _, err := io.ReadFull(c.conn, payload); err != nil {
		return endOf(err)
	}
	switch h.flags & flagTypeMask {
	case 0:
		return c.serverRequest(h, payload, fds)
	case flagReply:
		return c.serverReply(h, payload, fds)
	}
	return fmt.Errorf("vfioclient: server's message has type %d", h.flags&flagTypeMask)
}

func (c *Client) serverReply(h header, payload []byte, fds []int) error {
	c.calls.Lock()
	w := c.calls.wait[h.id]
	delete(c.calls.wait, h.id)
	_, posted := c.calls.posted[h.id]
	c.calls.Unlock()
	switch {
	case w == nil && posted:
		return fmt.Errorf("vfioclient: server answered posted message %d (command %d)", h.id, h.cmd)
	case w == nil:
		return fmt.Errorf("vfioclient: server sent an unexpected reply, id %d command %d", h.id, h.cmd)
	}
	err := checkReply(w, h, payload, fds)
	switch {
	case err != nil:
		w.err = err
	case h.flags&flagError != 0:
		closeAll(fds)
		w.err = &ServerError{w.name, syscall.Errno(h.errno)}
	default:
		w.reply, w.gotFDs = payload, fds
	}
	close(w.arrived)
	return err
}

func checkReply(w *call, h header, payload []byte, fds []int) error {
	switch {
	case h.cmd != w.cmd:
		return fmt.Errorf("vfioclient: reply to %s has command %d, want %d", w.name, h.cmd, w.cmd)
	case len(fds) > 0 && !w.fds:
		return fmt.Errorf("vfioclient: reply to %s brought %d descriptors", w.name, len(fds))
	case len(fds) > 1:
		return fmt.Errorf("vfioclient: reply to %s brought %d descriptors, want at most 1", w.name, len(fds))
	case h.flags&flagNoReply != 0:
		return fmt.Errorf("vfioclient: reply to %s has the no-reply flag", w.name)
	case h.flags&flagError != 0 && (len(payload) != 0 || h.errno == 0):
		return fmt.Errorf("vfioclient: error reply to %s has %d payload bytes and errno %d", w.name, len(payload), h.errno)
	case h.flags&flagError == 0 && h.errno != 0:
		return fmt.Errorf("vfioclient: reply to %s has errno %d without the error flag", w.name, h.errno)
	}
	return nil
}

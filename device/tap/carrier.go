// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// monitor follows the state of the interface by the kernel's messages about
// interfaces; nothing is polled.
type monitor struct {
	mu      sync.Mutex // guards what follows
	file    *os.File   // nil until there is a watcher
	closing bool
	done    chan struct{}
}

// state is what the kernel says of the interface.
type state struct {
	present, up, running bool
}

// reason says what is missing for a carrier, "" if nothing is.
func (s state) reason() string {
	switch {
	case !s.present:
		return "the interface is gone"
	case !s.up:
		return "the interface is down"
	case !s.running:
		return "the interface has no carrier"
	}
	return ""
}

func (p *Port) state() state {
	i, err := net.InterfaceByName(p.name)
	if err != nil {
		return state{}
	}
	return state{true, i.Flags&net.FlagUp != 0, i.Flags&net.FlagRunning != 0}
}

// Watch implements [netport.Carrier]. On a host that does not tell of interfaces
// the carrier stays up, and the log says so.
func (p *Port) Watch(changed func(up bool, why string)) {
	m := &p.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing || m.file != nil {
		return
	}
	file, err := subscribe()
	if err != nil {
		p.log.Warn().Str("side", "host").Str("tap", p.name).Err(err).
			Msg("the host does not tell of its interfaces: the guest's carrier does not follow the TAP")
		changed(true, "")
		return
	}
	m.file, m.done = file, make(chan struct{})
	// Subscribed first, then asked: no change falls in between.
	now := p.state()
	changed(now.reason() == "", now.reason())
	go func() {
		defer close(m.done)
		p.follow(file, now, changed)
	}()
}

// subscribe opens a socket that the kernel sends messages about interfaces to.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// follow reads messages until the socket is closed.
func (p *Port) follow(socket *os.File, last state, changed func(up bool, why string)) {
	b := make([]byte, 64<<10)
	for {
		n, err := socket.Read(b)
		now := last
		switch {
		case err == nil:
			now = update(b[:n], p.name, last)
		case errors.Is(err, unix.ENOBUFS):
			now = p.state() // messages were lost
		default:
			return
		}
		if now != last {
			last = now
			changed(now.reason() == "", now.reason())
		}
	}
}

func (m *monitor) close() error {
	m.mu.Lock()
	m.closing = true
	file := m.file
	m.mu.Unlock()
	if file == nil {
		return nil
	}
	err := file.Close()
	<-m.done
	if err != nil {
		return fmt.Errorf("tap: netlink socket: %w", err)
	}
	return nil
}

// ifInfoLen is the length of struct ifinfomsg:
//
//	 0        2      4       8       12       16
//	| family | type | index | flags | change | attributes ...
const ifInfoLen = 16

// attrTypeMask leaves the type of an attribute without its flags (NLA_TYPE_MASK).
const attrTypeMask = 0x3fff

// update takes messages of the kernel in and returns what they make of the state of
// the interface called name.
func update(b []byte, name string, s state) state {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return s
	}
	for _, m := range messages {
		gone := m.Header.Type == unix.RTM_DELLINK
		if !gone && m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < ifInfoLen {
			continue
		}
		// Messages of a family are about its own part of an interface, such as a
		// port that leaves a bridge.
		if m.Data[0] != unix.AF_UNSPEC || nameOf(m.Data[ifInfoLen:]) != name {
			continue
		}
		flags := binary.NativeEndian.Uint32(m.Data[8:])
		s = state{present: !gone, up: !gone && flags&unix.IFF_UP != 0, running: !gone && flags&unix.IFF_RUNNING != 0}
	}
	return s
}

// nameOf finds the name in the attributes of an interface:
//
//	 0     2      4
//	| len | type | value ... | padding to 4 bytes
func nameOf(b []byte) string {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return ""
		}
		if binary.NativeEndian.Uint16(b[2:])&attrTypeMask == unix.IFLA_IFNAME {
			return unix.ByteSliceToString(b[unix.SizeofRtAttr:n])
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return ""
}

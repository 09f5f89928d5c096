// SPDX-License-Identifier: Apache-2.0

// Package gso cuts large TCP packets into those that fit a wire. The packets come
// from peers and from the host and are not trusted.
//
//	| headers | payload ........................ |     one packet
//
//	| headers' | size | headers'' | size | ... |       its segments
//
// The headers of each segment have lengths, IPv4 identification and checksum, TCP
// sequence number, flags and checksum of their own.
package gso

import (
	"encoding/binary"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
)

var be = binary.BigEndian

// MaxHeader is the longest header chain that is cut: Ethernet, two tags, IPv4 or
// IPv6 with options or extensions, TCP with options.
const MaxHeader = 256

// tcpMin is the length of a TCP header without options.
const tcpMin = 20

// Bits of the TCP flags byte.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// HeaderLen returns the length of everything in front of the TCP payload of f,
// which i was parsed from. ok is false if f is no whole TCP packet.
func HeaderLen(f []byte, i *flow.Info) (n int, ok bool) {
	if i.IP == 0 || i.Proto != flow.ProtoTCP || !i.Ports || len(f) < i.L4+tcpMin {
		return 0, false
	}
	doff := int(f[i.L4+12]>>4) * 4
	n = i.L4 + doff
	return n, doff >= tcpMin && n <= len(f) && n <= MaxHeader
}

// Pseudo returns the sum of the pseudo header of a transport header with length
// bytes, header and payload, in the form of [flow.Sum].
func Pseudo(f []byte, i *flow.Info, length int) uint16 {
	var b [6]byte
	b[1] = i.Proto
	be.PutUint32(b[2:], uint32(length))
	return flow.Add(flow.Sum(i.Addresses(f)), flow.Sum(b[:]))
}

// FinishIP stores the length of the IP header at i and, for IPv4, its checksum.
// The packet ends at end. It reports false if the length cannot be said.
func FinishIP(f []byte, i *flow.Info, end int) bool {
	ip := f[i.L3:]
	n := end - i.L3
	if i.IP == 6 {
		if n -= 40; n > 0xffff {
			return false
		}
		be.PutUint16(ip[4:], uint16(n))
		return true
	}
	if n > 0xffff {
		return false
	}
	be.PutUint16(ip[2:], uint16(n))
	ip[10], ip[11] = 0, 0
	binary.LittleEndian.PutUint16(ip[10:], ^flow.Sum(ip[:i.L4-i.L3]))
	return true
}

// Cutter cuts one packet at a time. It holds the headers of the segment at hand.
type Cutter struct {
	info    flow.Info
	n       int // bytes of headers
	size    int // payload bytes of a segment
	payload []byte
	off     int     // payload that is cut already
	first   [4]byte // identification and flags of the packet
	seq     uint32
	head    [MaxHeader]byte
}

// Start begins with packet f, which i was parsed from. It reports false if f is
// not what o says. f is not written to and must stay as it is until the last
// segment is cut.
func (c *Cutter) Start(f []byte, i *flow.Info, o *netport.Offload) bool {
	n, ok := HeaderLen(f, i)
	want := uint8(4)
	if o.Segment == netport.SegmentTCP6 {
		want = 6
	}
	if !ok || i.IP != want || o.Segment > netport.SegmentTCP6 || o.Size == 0 || n == len(f) {
		return false
	}
	if n-i.L3+min(int(o.Size), len(f)-n) > 0xffff {
		return false // a segment with no length an IP header can say
	}
	c.info, c.n, c.size = *i, n, int(o.Size)
	c.payload, c.off = f[n:], 0
	copy(c.head[:n], f)
	tcp := c.head[i.L4:n]
	c.seq = be.Uint32(tcp[4:])
	c.first[0] = tcp[13]
	if i.IP == 4 {
		copy(c.first[1:3], c.head[i.L3+4:])
	}
	return true
}

// Header returns the number of bytes in front of the payload of every segment.
func (c *Cutter) Header() int { return c.n }

// Segments returns into how many segments the packet is cut, at least 1.
func (c *Cutter) Segments() int { return (len(c.payload) + c.size - 1) / c.size }

// Payload returns the number of payload bytes of a segment, counted from 0.
func (c *Cutter) Payload(segment int) int {
	return min(c.size, len(c.payload)-segment*c.size)
}

// Next cuts the next segment: its headers, which stay as they are until the next
// call, its payload, and the sum of the payload in the form of [flow.Sum]. ok is
// false when all are cut.
func (c *Cutter) Next() (head, payload []byte, sum uint16, ok bool) {
	if c.off == len(c.payload) {
		c.payload, c.off = nil, 0
		return nil, nil, 0, false
	}
	payload = c.payload[c.off:min(c.off+c.size, len(c.payload))]
	head = c.head[:c.n]
	last := c.off+len(payload) == len(c.payload)
	if c.info.IP == 4 {
		id := be.Uint16(c.first[1:]) + uint16(c.off/c.size)
		be.PutUint16(head[c.info.L3+4:], id)
	}
	// Start has seen to it that the length can be said.
	FinishIP(head, &c.info, c.n+len(payload))
	tcp := head[c.info.L4:]
	be.PutUint32(tcp[4:], c.seq+uint32(c.off))
	flags := c.first[0]
	if c.off > 0 {
		flags &^= tcpCWR
	}
	if !last {
		flags &^= tcpFIN | tcpPSH
	}
	tcp[13] = flags
	tcp[16], tcp[17] = 0, 0
	sum = flow.Sum(payload)
	s := flow.Add(flow.Add(Pseudo(head, &c.info, len(tcp)+len(payload)), flow.Sum(tcp)), sum)
	binary.LittleEndian.PutUint16(tcp[16:], ^s)
	c.off += len(payload)
	return head, payload, sum, true
}

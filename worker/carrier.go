// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/ionic/rdma/qp"
	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/worker/meshport"
)

// engine is what the carrier hands arriving packets to.
type engine interface {
	Deliver(p *packet.Packet)
	Writable(match func(qpn uint32) bool)
}

// router finds the node that answers for a destination now.
type router interface {
	Route(dst *packet.Address) (node uint32, ok bool)
	RouteMAC(mac [6]byte) (node uint32, ok bool)
}

// gsi is the queue pair of connection management.
const gsi = 1

// lan is what the carrier hands arriving Ethernet frames to.
type lan interface {
	Deliver(f *fabric.Frame)
}

// carrier is the RDMA engine's link: it puts packets into frames and back. Frames
// of the guest's Ethernet pass by.
// Who owns an address is looked up at every send, so a GID that moves to
// another node is followed at once.
type carrier struct {
	router router
	engine engine
	lan    lan                         // nil unless the LIF is on the mesh
	noLAN  meshport.Absent             // in its place
	link   atomic.Pointer[fabric.Link] // nil until the node has an identity

	noRoute   atomic.Uint64 // packets to an address that nobody answers for
	noLink    atomic.Uint64 // packets sent before the node joined the mesh
	dropped   atomic.Uint64 // packets the link gave up
	badHeader atomic.Uint64 // frames from a peer that hold no packet
	badClass  atomic.Uint64 // frames of a class nobody here wants
}

// frames keeps the frame descriptors that pass through the Link interface off
// the heap's growth.
var frames = sync.Pool{New: func() any { return new(fabric.Frame) }}

// Transmit implements rdma.Link.
func (c *carrier) Transmit(dst *packet.Address, p *packet.Packet) qp.Verdict {
	link := c.link.Load()
	if link == nil {
		c.noLink.Add(1)
		p.Release()
		return qp.Lost
	}
	node, ok := c.router.Route(dst)
	if !ok && p.DstQPN == gsi {
		// A guest that has sent nothing yet has told nobody its addresses. The
		// first connection to it may come from a neighbour that knows its MAC
		// from before; with the answer the address is known.
		node, ok = c.router.RouteMAC(dst.MAC)
	}
	if !ok {
		c.noRoute.Add(1)
		p.Release()
		return qp.Lost
	}
	f := frames.Get().(*fabric.Frame)
	*f = fabric.Frame{
		Dst: node, Class: class(p), Flow: flow(p),
		Header: p.Encode(), Payload: p.Payload, Owner: p,
	}
	v := (*link).Send(f)
	*f = fabric.Frame{}
	frames.Put(f)
	switch v {
	case fabric.Sent:
		return qp.Sent
	case fabric.Full:
		return qp.Full
	case fabric.NoRoute:
		c.noRoute.Add(1)
	default:
		c.dropped.Add(1)
	}
	return qp.Lost
}

// answers marks the flow of a queue pair's acknowledgements and responses.
// Queue pair numbers have 24 bits.
const answers = 1 << 24

// flow is the ordering key of a packet. A queue pair's requests keep their
// order, and so do its answers; an answer does not wait behind the requests of
// the same queue pair, or the peer's timer would run out under load.
func flow(p *packet.Packet) uint32 {
	if p.Op.IsRequest() {
		return p.SrcQPN
	}
	return p.SrcQPN | answers
}

// class tells the link what it may do with a packet when it has no room: what
// a connected queue pair sends waits, a datagram may be dropped. A UC message is
// many packets, often more than the link holds, and useless without any of
// them; the engine gives it up when the link stays full.
func class(p *packet.Packet) fabric.Class {
	if p.Op.IsDatagram() {
		return fabric.Datagram
	}
	return fabric.Reliable
}

// Receive implements fabric.Receiver.
func (c *carrier) Receive(f *fabric.Frame) {
	switch f.Class {
	case fabric.Reliable, fabric.Datagram:
	case fabric.Ethernet:
		if c.lan == nil {
			var link fabric.Link
			if l := c.link.Load(); l != nil {
				link = *l
			}
			c.noLAN.Deliver(f, link)
			return
		}
		c.lan.Deliver(f)
		return
	default:
		c.badClass.Add(1)
		f.Release()
		return
	}
	p := packet.Wrap(f.Payload, f.Owner)
	if err := p.Decode(f.Header); err != nil {
		c.badHeader.Add(1)
		p.Release()
		return
	}
	c.engine.Deliver(p)
}

// Writable implements fabric.Receiver.
func (c *carrier) Writable(_ uint32, group uint8) {
	c.engine.Writable(func(qpn uint32) bool {
		return fabric.Group(qpn) == group || fabric.Group(qpn|answers) == group
	})
}

// use makes l the link for everything sent from now on; nil takes it away.
func (c *carrier) use(l fabric.Link) {
	if l == nil {
		c.link.Store(nil)
		return
	}
	c.link.Store(&l)
}

// SPDX-License-Identifier: Apache-2.0

package meshport

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ernic-dev/ernic/device/ionic/eth/flow"
	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/fabric"
)

// Config describes a port.
type Config struct {
	MAC    [6]byte // of the LIF
	Queues int     // receive queues, at least 1
	// Owner tells which node claims a MAC address, the own one included. It is
	// called for every frame: it takes no lock and does not allocate.
	Owner func(mac [6]byte) (node uint32, ok bool)
}

// Port is the place of one worker in the switch.
type Port struct {
	Counters Counters

	cfg    Config
	own    address
	born   time.Time
	mesh   atomic.Pointer[membership] // nil while there is none
	peers  atomic.Pointer[peers]
	table  table
	storm  bucket // frames of the guest for everybody
	queues []*rxQueue

	mu      sync.Mutex // guards what follows
	changed func(up bool, why string)
	why     string // there is no mesh
	closed  bool
}

// membership is what a worker has of a mesh.
type membership struct {
	link fabric.Link
	self uint32
}

// peers is who is in the mesh.
type peers struct {
	sources map[uint32]*source
	flood   []flooded // nodes that get frames for everybody
}

// flooded is a node that frames go to.
type flooded struct {
	node uint32
	*source
}

// source is a node that frames come from.
type source struct {
	storm  bucket
	absent atomic.Int64 // until when it gets no frames for everybody; 0: it gets them
}

// New returns a port that is in no mesh yet.
func New(c Config) (*Port, error) {
	if c.Queues < 1 || c.Owner == nil {
		return nil, errors.New("mesh port: needs a receive queue and somebody who knows addresses")
	}
	p := &Port{cfg: c, own: addressOf(c.MAC[:]), born: time.Now(), why: "this worker is not registered with the manager yet"}
	p.peers.Store(&peers{})
	p.table.init()
	for range c.Queues {
		p.queues = append(p.queues, newRxQueue())
	}
	return p, nil
}

var (
	_ netport.Offloader = (*Port)(nil)
	_ netport.Carrier   = (*Port)(nil)
)

// Name implements [netport.Port].
func (p *Port) Name() string { return "mesh" }

// Queues implements [netport.Port].
func (p *Port) Queues() int { return len(p.queues) }

// Watch implements [netport.Carrier]: the carrier is up while the worker is in a
// mesh, also if it has no peer and if it does not reach its manager.
func (p *Port) Watch(changed func(up bool, why string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = changed
	p.tell()
}

// tell says what the carrier is. Holds mu.
func (p *Port) tell() {
	if p.changed == nil || p.closed {
		return
	}
	if p.mesh.Load() != nil {
		p.changed(true, "")
	} else {
		p.changed(false, p.why)
	}
}

// Join says that this worker is node self now and reaches the others by link.
func (p *Port) Join(link fabric.Link, self uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mesh.Store(&membership{link, self})
	p.tell()
}

// Leave says that this worker is in no mesh any more, and why.
func (p *Port) Leave(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mesh.Store(nil)
	p.why = why
	p.tell()
}

// SetPeers says who is in the mesh besides this worker. flood are those that get
// frames for everybody. What was learned of nodes that left is forgotten.
func (p *Port) SetPeers(nodes, flood []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.peers.Load()
	next := &peers{sources: make(map[uint32]*source, len(nodes))}
	for _, n := range nodes {
		s := old.sources[n]
		if s == nil {
			s = new(source)
		}
		// A worker that started anew may have a LIF on the mesh now.
		s.absent.Store(0)
		next.sources[n] = s
	}
	for _, n := range flood {
		if s := next.sources[n]; s != nil {
			next.flood = append(next.flood, flooded{n, s})
		}
	}
	p.peers.Store(next)
	p.table.keep(next.sources)
}

// now returns the time as nanoseconds and as seconds since the port was made.
func (p *Port) now() (ns int64, s uint32) {
	ns = int64(time.Since(p.born))
	return ns, uint32(ns / int64(time.Second))
}

var (
	errNoMesh   = errors.New("mesh port: this worker is in no mesh")
	errStorm    = errors.New("mesh port: more frames for everybody than the switch carries")
	errNoNode   = errors.New("mesh port: the node of the address is not reachable")
	errOversize = fmt.Errorf("mesh port: a frame has more than %d bytes", netport.MaxOffload)
)

// Send implements [netport.Port].
func (p *Port) Send(_ int, frame []byte) error { return p.send(frame, &netport.Offload{}) }

// SendOffload implements [netport.Offloader].
func (p *Port) SendOffload(_ int, frame []byte, o *netport.Offload) error { return p.send(frame, o) }

func (p *Port) send(frame []byte, o *netport.Offload) error {
	m := p.mesh.Load()
	switch {
	case m == nil:
		p.Counters.TxNoMesh.Add(1)
		return errNoMesh
	case len(frame) < flow.EthHeader || len(frame) > netport.MaxOffload:
		p.Counters.TxOversize.Add(1)
		return errOversize
	}
	ns, s := p.now()
	if from := addressOf(frame[6:]); from != p.own {
		p.table.forget(from)
	}
	node, known := uint32(0), false
	if frame[0]&1 == 0 {
		if node, known = p.locate(addressOf(frame), s); known && node == m.self {
			p.Counters.TxLocal.Add(1)
			return nil // a switch sends nothing back to where it came from
		}
	}
	if !known && !p.storm.take(ns, floodRate, floodBurst) {
		p.Counters.TxStorm.Add(1)
		return errStorm
	}
	b := getBuffer(frame)
	encode(&b.header, o)
	i := flow.Parse(frame)
	b.frame = fabric.Frame{
		Class: fabric.Ethernet, Flow: i.FNV(frame), Header: b.header[:], Payload: b.data, Owner: b,
	}
	if !known {
		p.flood(m, b, ns)
		return nil
	}
	p.Counters.TxUnicast.Add(1)
	b.refs.Add(1) // the frame is in the buffer
	defer b.Release()
	b.frame.Dst = node
	switch m.link.Send(&b.frame) {
	case fabric.Sent:
		return nil
	case fabric.Full: // not said of a class that may be lost
		b.Release()
		fallthrough
	case fabric.Dropped:
		p.Counters.TxLost.Add(1)
		return netport.ErrFull
	}
	p.Counters.TxLost.Add(1)
	return errNoNode
}

// flood sends a frame to every other node that has a LIF on the mesh. It is no
// error that there is none.
func (p *Port) flood(m *membership, b *buffer, ns int64) {
	defer b.Release()
	p.Counters.TxFlooded.Add(1)
	for _, to := range p.peers.Load().flood {
		if to.node == m.self || to.absent.Load() > ns {
			continue
		}
		b.refs.Add(1)
		b.frame.Dst = to.node
		switch m.link.Send(&b.frame) {
		case fabric.Sent:
			p.Counters.TxCopies.Add(1)
		case fabric.Full:
			b.Release()
			fallthrough
		default:
			p.Counters.TxLost.Add(1)
		}
	}
}

// locate returns the node behind which an address is: the one that claims it, or
// else the one that sent from it last.
func (p *Port) locate(a address, s uint32) (uint32, bool) {
	if node, ok := p.cfg.Owner(a.mac()); ok {
		return node, true
	}
	return p.table.find(a, s)
}

// Close implements [netport.Port].
func (p *Port) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mesh.Store(nil)
	p.mu.Unlock()
	for _, q := range p.queues {
		q.close()
	}
	return nil
}

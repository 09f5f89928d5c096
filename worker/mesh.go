// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
	fabricmesh "github.com/ernic-dev/ernic/fabric/mesh"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/relay"
	"github.com/ernic-dev/ernic/worker/session"
)

// mesh is the worker's place among the others: the session with the manager
// tells who is there and who owns what; the fabric link carries the frames.
type mesh struct {
	worker    *Worker
	session   *session.Session
	directory *directory.Directory
	gossip    *gossiper    // nil: the worker takes no part
	relay     *relay.Relay // nil: peers are reached directly only
	listen    string       // address of the fabric listener, port known
	roams     bool         // on all addresses of the host: which one peers are told is found out

	unreachable sync.Map // node ids whose failure to connect was logged
	refusals    refusals

	mu       sync.Mutex // guards all below
	listener net.Listener
	link     *fabricmesh.Link // nil before the first registration
	node     uint32
	address  string // where peers have reached the worker since link was made or told
	closed   bool
}

func newMesh(w *Worker) (*mesh, error) {
	c := &w.config
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("fabric listener %s: %w", c.Listen, err)
	}
	m := &mesh{worker: w, directory: directory.New(), listener: l, listen: l.Addr().String()}
	advertise, locate := c.Advertise, (func(string) string)(nil)
	if advertise == "" {
		if advertise = m.listen; everywhere(advertise) {
			advertise, locate, m.roams = "", m.locate, true
		}
	}
	creds := c.ToManager
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	if c.Instance == [16]byte{} {
		// Read never fails; see its documentation.
		rand.Read(c.Instance[:])
	}
	handlers := session.Handlers{Registered: m.registered, Mesh: m.changed, Drain: func(string) { w.drain.begin() }, SetLink: w.setLink}
	if c.Relay {
		m.relay = m.newRelay()
		handlers.Relay = m.relay.Answer
	}
	if c.Gossip.Listen != "" {
		if m.gossip, err = newGossiper(w, c.Instance); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		handlers.Gossip = m.gossip.invited
	}
	m.session, err = session.New(session.Config{
		Manager: c.Manager, Dial: []grpc.DialOption{grpc.WithTransportCredentials(creds)},
		Name: c.Name, Addr: advertise, Locate: locate, Version: c.Version, Instance: c.Instance,
		Report:   m.report,
		Stats:    w.Stats,
		Handlers: handlers,
		Log:      c.Log,
	})
	if err != nil {
		if m.gossip != nil {
			err = errors.Join(err, m.gossip.pool.Close())
		}
		return nil, errors.Join(err, l.Close())
	}
	if m.gossip != nil {
		m.gossip.session.Store(m.session)
	}
	return m, nil
}

// everywhere reports whether a listener is on all addresses of the host.
func everywhere(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsUnspecified()
}

// locate returns the address of the fabric listener on the way to the manager, ""
// if there is none. It sends nothing: to connect a datagram socket is to look up
// the route.
func (m *mesh) locate(manager string) string {
	// A name that nobody resolves must not hold the worker up.
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.Dial("udp", manager)
	if err != nil {
		return ""
	}
	defer c.Close()
	here, _, errHere := net.SplitHostPort(c.LocalAddr().String())
	_, port, errPort := net.SplitHostPort(m.listen)
	if errHere != nil || errPort != nil {
		return ""
	}
	return net.JoinHostPort(here, port)
}

func (m *mesh) run(ctx context.Context) error { return m.session.Run(ctx) }

// route finds the owner of a GID in the view that the worker holds now.
func (m *mesh) route(g gid.GID) (uint32, bool) { return m.session.Resolve(g) }

// registered gives the worker the identity the manager assigned. A worker that
// comes back under the id it has keeps its links; one that became another node
// makes new ones.
func (m *mesh) registered(node uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	address := m.session.Addr()
	if m.closed || m.link != nil && m.node == node {
		if m.link != nil && m.address != address {
			m.address = address
			m.link.Moved()
		}
		return
	}
	log := &m.worker.config.Log
	if m.link != nil {
		log.Warn().Uint32("was", m.node).Uint32("node", node).Msg("this worker is another node now; its links are made anew")
		m.unlink("this worker becomes another node")
		l, err := net.Listen("tcp", m.listen)
		if err != nil {
			log.Error().Err(err).Msg("fabric listener is lost; peers with a lower id cannot connect until the worker is restarted")
		}
		m.listener = l
	}
	instance, incarnation := m.session.Instance()
	o := fabricmesh.Options{
		Self: node, Instance: instance, Incarnation: incarnation,
		Directory: m.directory, Receiver: m.worker.carrier, Listener: m.listener, Lanes: m.worker.config.Lanes,
		ServerCredentials: m.worker.config.Server, ClientCredentials: m.worker.config.Client,
		Insecure: m.worker.config.Server == nil,
		Verify:   m.verifier(),
		OnEvent:  m.linkEvent,

		Reflection: m.worker.config.Reflection,
	}
	if m.relay != nil {
		o.Dial = m.relay.Dial
	}
	link, err := fabricmesh.New(o)
	if err != nil {
		log.Error().Err(err).Uint32("node", node).Msg("mesh link cannot be made; RDMA packets are lost")
		return
	}
	m.link, m.node, m.address = link, node, address
	m.worker.self.Store(node)
	m.worker.carrier.use(link)
	if m.worker.lan != nil {
		m.worker.lan.Join(link, node)
	}
}

// unlink ends the link to the peers. Holds mu.
func (m *mesh) unlink(why string) {
	if m.worker.lan != nil {
		m.worker.lan.Leave(why)
	}
	m.worker.carrier.use(nil)
	m.link.Close()
	m.link = nil
}

// changed follows the mesh: the fabric needs to know where nodes are. Who owns
// a GID is looked up in the session's view.
func (m *mesh) changed(_, now *session.Mesh) {
	c := directory.Change{Snapshot: true}
	var all, living []uint32
	for _, n := range now.Nodes() {
		if n.Addr == "" {
			continue
		}
		all = append(all, n.ID)
		if n.State != ernicv1.NodeState_NODE_STATE_DEAD && n.State != ernicv1.NodeState_NODE_STATE_EVICTED {
			living = append(living, n.ID)
		}
		c.Nodes = append(c.Nodes, directory.Node{
			ID: n.ID, Name: n.Name, Address: n.Addr, Instance: n.Instance, Incarnation: n.Incarnation,
		})
	}
	m.directory.Apply(c)
	if m.worker.lan != nil {
		m.worker.lan.SetPeers(all, living)
	}
}

// linkEvent logs what happens to links. A peer that cannot be reached is tried
// for ever; that it cannot is said once, until it was reached again.
func (m *mesh) linkEvent(e fabricmesh.Event) {
	log := &m.worker.config.Log
	level := zerolog.InfoLevel
	switch e.Kind {
	case fabricmesh.LinkUp:
		m.unreachable.Delete(e.Node)
	case fabricmesh.ConnectFailed:
		level = zerolog.WarnLevel
		if _, said := m.unreachable.LoadOrStore(e.Node, true); said {
			level = zerolog.DebugLevel
		}
	case fabricmesh.Refused:
		if held, ok := m.refusals.say(time.Now()); ok {
			log.Warn().Err(e.Err).Uint32("peer", e.Node).Str("address", e.Address).Uint64("more", held).Msg("a connection is refused")
		}
		return
	default:
		level = zerolog.WarnLevel
	}
	ev := log.WithLevel(level)
	if e.Err != nil {
		ev = ev.Err(e.Err)
	}
	ev.Uint32("peer", e.Node).Str("address", e.Address).Stringer("event", e.Kind).Msg("peer link")
	m.session.ReportChanged()
}

func (m *mesh) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if s := m.worker.config.Status; s != nil {
		s.Close()
	}
	if m.gossip != nil {
		m.gossip.close()
	}
	if m.relay != nil {
		m.relay.Close()
	}
	if m.link != nil {
		m.unlink("this worker ends")
	} else if m.listener != nil {
		m.listener.Close()
	}
}

// claim tells the manager of an address of the guest.
func (w *Worker) claim(g gid.GID, s ernicv1.ClaimSource) {
	if w.mesh == nil {
		return
	}
	if err := w.mesh.session.Claim(g, s); err != nil {
		w.config.Log.Warn().Err(err).Stringer("gid", g).Msg("address of the guest is not claimed")
		return
	}
	w.config.Log.Info().Stringer("gid", g).Str("source", s.String()).Msg("address of the guest")
}

var _ fabric.Link = (*fabricmesh.Link)(nil)

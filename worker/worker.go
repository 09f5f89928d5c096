// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ernic-dev/ernic/device/guestmem"
	"github.com/ernic-dev/ernic/device/ionic"
	"github.com/ernic-dev/ernic/device/ionic/intr"
	"github.com/ernic-dev/ernic/device/ionic/rdma"
	"github.com/ernic-dev/ernic/device/ionic/rdma/packet"
	"github.com/ernic-dev/ernic/device/vfiouser"
	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/loopback"
	"github.com/ernic-dev/ernic/fabric/none"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/meshport"
)

// localNode is the node id of a worker that is in no mesh.
const localNode = 1

// Worker is one NIC with all that it is joined to.
type Worker struct {
	config    Config
	addresses *addresses
	carrier   *carrier
	engine    *rdma.Engine
	nic       *ionic.NIC
	server    *vfiouser.Server
	socket    *net.UnixListener
	mesh      *mesh          // nil unless the fabric is the mesh
	lan       *meshport.Port // nil unless the LIF is on the mesh
	self      atomic.Uint32
	attached  atomic.Bool
	memory    atomic.Pointer[guestmem.Space] // of the guest, nil without one
	linkDown  atomic.Bool                    // an operator has taken the link down
	drain     drain
	observers observers
	closing   sync.Once
}

// New opens all that a worker holds: TAP, sockets, listener. What is missing
// or in use is an error that names it; nothing stays open then.
func New(c Config) (*Worker, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	w := &Worker{config: c, carrier: &carrier{}}
	if err := w.open(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) open() (err error) {
	c := &w.config
	w.carrier.router = w
	if c.Fabric == FabricMesh {
		if w.mesh, err = newMesh(w); err != nil {
			return err
		}
	}
	w.addresses = newAddresses(c.MAC, c.GIDs, w.claim)

	port, err := w.openPort()
	if err != nil {
		return err
	}
	w.nic, err = ionic.New(ionic.Config{
		Profile: c.Profile.Profile, MAC: c.MAC, Port: port, Observer: w.addresses, Log: c.Log,
		RDMA: func(b *intr.Bank) (ionic.RDMA, error) {
			var err error
			w.engine, err = rdma.New(rdma.Config{
				Limits:     rdma.Limits{EQs: uint32(c.Profile.Profile.RDMAEQs)},
				Interrupts: b, Link: w.carrier, Addresses: templates{w.addresses}, Log: c.Log,
			})
			if err != nil {
				return nil, err
			}
			w.carrier.engine = w.engine
			return w.engine, nil
		},
	})
	if err != nil {
		if port != nil {
			err = errors.Join(err, port.Close())
		}
		return err
	}
	switch c.Fabric {
	case FabricNone:
		w.carrier.use(none.New())
	case FabricLoopback:
		w.self.Store(localNode)
		l, err := loopback.New(loopback.Options{Self: localNode, Receiver: w.carrier})
		if err != nil {
			return err
		}
		w.carrier.use(l)
	}
	w.server = &vfiouser.Server{Options: vfiouser.Options{PollFor: c.PollFor, Logger: c.Log}}
	w.socket, err = vfiouser.Listen(c.Socket, vfiouser.ListenOptions{Mode: c.SocketMode, Group: c.SocketGroup})
	if err != nil {
		return err
	}
	return w.openObservers()
}

// Run serves guests until ctx ends or a part fails for good. The guest's device
// is gone when it returns.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.drain.running(stop)

	p := &w.config.Profile
	w.config.Log.Info().
		Str("socket", w.config.Socket).Str("mac", net.HardwareAddr(w.config.MAC[:]).String()).
		Str("fabric", string(w.config.Fabric)).Str("lif", w.config.lifName()).
		Str("nic_profile", p.Chain()).Str("nic_profile_hash", fmt.Sprintf("%016x", p.Profile.Hash())).
		Msg("worker is ready for a guest")
	if s := p.Profile.Shortfall(); s != "" {
		w.config.Log.Warn().Msg(s)
	}
	if w.config.LIF == LIFNone {
		w.config.Log.Warn().Msg("the guest's Ethernet has no wire: the carrier stays down (--lif tap:NAME or --lif mesh gives it one)")
	}

	parts := []func(context.Context) error{
		func(ctx context.Context) error {
			return w.server.Serve(ctx, w.socket, presence{w.nic, &w.attached, &w.memory, &w.drain})
		},
	}
	if w.mesh != nil {
		parts = append(parts, w.mesh.run)
		if w.mesh.gossip != nil {
			parts = append(parts, w.mesh.gossip.run)
		}
		if w.config.Status != nil {
			parts = append(parts, w.mesh.serveStatus)
		}
	}
	parts = append(parts, w.observing()...)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			defer stop() // one part gone, all go
			if err := part(ctx); err != nil && !errors.Is(err, context.Canceled) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Route implements router: an address of the guest itself is this node, any
// other is whose the manager says it is.
func (w *Worker) Route(dst *packet.Address) (uint32, bool) {
	if w.addresses.Owns(dst.GID) || dst.MAC == w.config.MAC {
		return w.self.Load(), true
	}
	if w.mesh == nil {
		return 0, false
	}
	return w.mesh.route(dst.GID)
}

// RouteMAC implements router: the node whose LIF has the MAC address.
func (w *Worker) RouteMAC(mac [6]byte) (uint32, bool) {
	if w.mesh == nil {
		return 0, false
	}
	return w.mesh.route(gid.FromMAC(mac))
}

// close gives back what New opened. Parts that were never made are skipped.
func (w *Worker) close() {
	w.closing.Do(func() {
		w.observers.close()
		if w.socket != nil {
			w.socket.Close()
		}
		if w.nic != nil {
			w.nic.Close()
		}
		if w.engine != nil {
			w.engine.Close()
		}
		if w.mesh != nil {
			w.mesh.close()
		}
		if l := w.carrier.link.Swap(nil); l != nil {
			(*l).Close()
		}
	})
}

var _ fabric.Receiver = (*carrier)(nil)

// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"runtime"

	"github.com/ernic-dev/ernic/device/netport"
	"github.com/ernic-dev/ernic/device/tap"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/meshport"
)

// lifName is the LIF as the command line has it.
func (c *Config) lifName() string {
	if c.LIF == LIFTAP {
		return string(c.LIF) + ":" + c.TAP
	}
	return string(c.LIF)
}

// openPort opens the wire of the LIF; nil means that there is none.
func (w *Worker) openPort() (netport.Port, error) {
	c := &w.config
	// More receiving goroutines than processors do not receive more.
	queues := min(c.Profile.Profile.EthQueues, runtime.GOMAXPROCS(0))
	switch c.LIF {
	case LIFTAP:
		return tap.Open(c.TAP, tap.Options{Queues: queues, Offloads: c.Profile.Profile.Offloads, Log: c.Log})
	case LIFMesh:
		p, err := meshport.New(meshport.Config{MAC: c.MAC, Queues: queues, Owner: w.macOwner})
		if err != nil {
			return nil, err
		}
		w.lan, w.carrier.lan = p, p
		return p, nil
	}
	return nil, nil
}

// macOwner tells which node has a MAC address: the one that claims the GID made of
// it.
func (w *Worker) macOwner(mac [6]byte) (uint32, bool) {
	g := gid.FromMAC(mac)
	if w.addresses.Owns(g) {
		return w.self.Load(), true
	}
	return w.mesh.route(g)
}

// setLink takes the link of the NIC down whatever its wire is, or leaves it to the
// wire again.
func (w *Worker) setLink(up bool) {
	w.linkDown.Store(!up)
	w.nic.SetLink(up)
}

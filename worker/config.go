// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"

	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker/session"
)

// FabricKind says where the RDMA traffic of the guest goes.
type FabricKind string

// Kinds of fabric.
const (
	FabricNone     FabricKind = "none"     // nowhere: every packet is lost
	FabricLoopback FabricKind = "loopback" // back to the same guest only
	FabricMesh     FabricKind = "mesh"     // to the workers that the manager knows
)

// LIFKind says what carries the Ethernet frames of the guest.
type LIFKind string

// Kinds of LIF.
const (
	LIFNone LIFKind = "none" // nothing: the guest has no carrier
	LIFTAP  LIFKind = "tap"  // a TAP interface of the host
	LIFMesh LIFKind = "mesh" // the mesh: a switch that joins the guests of all workers
)

// Config describes a worker. The zero value of an optional field takes the
// default named.
type Config struct {
	Name     string // shown by ernictl; default the host's name
	Instance [16]byte

	Socket      string      // path of the vfio-user socket
	SocketMode  os.FileMode // default 0660
	SocketGroup string      // group that owns the socket; default the process's
	PollFor     time.Duration

	LIF     LIFKind // default none
	TAP     string  // name of an existing TAP; LIFTAP only
	MAC     [6]byte
	GIDs    []gid.GID // claimed besides what the guest shows to own
	Profile profile.Set

	Fabric    FabricKind // default mesh
	Manager   string     // host:port, of several managers separated by commas; mesh only
	Listen    string     // host:port of the fabric listener; default 127.0.0.1:0
	Advertise string     // host:port that peers dial; default the listener's
	Lanes     int        // connections per peer; default the mesh's

	// Server and Client secure the connections of peers and to peers, ToManager
	// that to the manager. All nil: plain TCP, which the caller must have allowed.
	Server, Client, ToManager credentials.TransportCredentials

	// Status accepts operators who ask how the worker stands; nil: none. Mesh only.
	Status net.Listener

	// Reflection lets those who may connect ask which calls there are.
	Reflection bool

	// Relay lets peers that cannot be reached be reached by way of the manager. Mesh only.
	Relay bool

	Gossip  Gossip // mesh only
	Observe Observe

	Version string
	Log     zerolog.Logger
}

func (c *Config) setDefaults() {
	if c.Fabric == "" {
		c.Fabric = FabricMesh
	}
	if c.LIF == "" {
		c.LIF = LIFNone
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
}

func (c *Config) check() error {
	switch c.Fabric {
	case FabricNone, FabricLoopback:
	case FabricMesh:
		if c.Manager == "" {
			return errors.New("fabric mesh needs the address of a manager")
		}
		if _, err := session.ManagerAddrs(c.Manager); err != nil {
			return err
		}
		if c.Advertise != "" {
			if _, _, err := net.SplitHostPort(c.Advertise); err != nil {
				return fmt.Errorf("advertised address %q is not host:port: %w", c.Advertise, err)
			}
		}
	default:
		return fmt.Errorf("fabric %q is none of none, loopback, mesh", c.Fabric)
	}
	switch {
	case c.LIF != LIFNone && c.LIF != LIFTAP && c.LIF != LIFMesh:
		return fmt.Errorf("LIF %q is none of none, tap, mesh", c.LIF)
	case c.LIF == LIFMesh && c.Fabric != FabricMesh:
		return fmt.Errorf("LIF mesh needs fabric mesh, not %s", c.Fabric)
	case (c.LIF == LIFTAP) != (c.TAP != ""):
		return fmt.Errorf("LIF %s with TAP interface %q", c.LIF, c.TAP)
	}
	if c.Socket == "" {
		return errors.New("a worker needs the path of its vfio-user socket")
	}
	if c.MAC == [6]byte{} || c.MAC[0]&1 != 0 {
		return fmt.Errorf("MAC address %s is not a unicast address", net.HardwareAddr(c.MAC[:]))
	}
	if (c.Server == nil) != (c.Client == nil) || (c.Server == nil) != (c.ToManager == nil) {
		return errors.New("credentials for some of the connections only")
	}
	return nil
}

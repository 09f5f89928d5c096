// SPDX-License-Identifier: Apache-2.0

// Command ernic-worker serves one emulated ionic NIC to one guest and carries
// its RDMA traffic to other workers.
package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker"
	"github.com/ernic-dev/ernic/worker/session"
)

func main() { cli.Main(command()) }

// flags are the flags as typed; config turns them into a worker.Config.
type flags struct {
	log    cli.Log
	tls    cli.TLS
	gossip cli.Gossip

	manager, name, listen, advertise string
	relay                            string
	reflection                       bool
	status                           string
	insecure                         bool
	lanes                            int

	socket, socketMode, socketGroup string
	poll                            time.Duration

	lif, tap, mac string
	gids          []string
	fabric        string

	profiles     []string
	printProfile bool
	ethQueues    int
	statsMS      int
	observe      observe
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "ernic-worker --manager ADDR --socket PATH [flags]",
		Short: "Serve one emulated RDMA NIC to a QEMU guest",
		Long: `ernic-worker serves one emulated AMD Pensando ionic NIC (1dd8:1002) over vfio-user
to one guest at a time and carries its RDMA traffic to the other workers of the mesh.
Start it before QEMU; it waits for the next guest when one leaves.

Every flag can come from the environment: --log-level from ERNIC_LOG_LEVEL.`,
		Example: `  ernic-worker --manager head:6320 --socket /run/ernic/vm1.sock --tap ernic-tap1
  ernic-worker --manager head:6320 --socket /run/ernic/vm1.sock --lif mesh
  ernic-worker --fabric loopback --socket /run/ernic/vm1.sock`,
		RunE: func(c *cobra.Command, _ []string) error { return run(c, &f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.manager, "manager", "", "`address` of the manager, host or host:port (port 6320); of several that share a state, separated by commas")
	fs.StringVar(&f.name, "name", "", "`name` of this worker in listings (default: the host's name)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:0", "`address` to accept peers on; port 0 takes any")
	fs.StringVar(&f.advertise, "advertise", "", "`address` that peers connect to (default: that of --listen; if that is all "+
		"addresses of the host, the one that leads to the manager, also after it has changed)")
	fs.BoolVar(&f.insecure, "insecure", false, "allow plain connections with other hosts")
	fs.StringVar(&f.status, "status", "", "`address` to answer \"ernictl status\" and \"ernictl stats\" on (default: none)")
	fs.IntVar(&f.lanes, "lanes", 0, "`connections` to each peer (default 4)")
	fs.StringVar(&f.socket, "socket", "", "`path` of the vfio-user socket that QEMU connects to")
	fs.StringVar(&f.socketMode, "socket-mode", "0660", "octal `mode` of the socket")
	fs.StringVar(&f.socketGroup, "socket-group", "", "`group` that owns the socket, by name or number")
	fs.DurationVar(&f.poll, "poll", 0, "`time` to poll the guest's socket before sleeping; costs a CPU")
	fs.StringVar(&f.lif, "lif", "", "what carries the guest's Ethernet `frames`: tap:NAME, an existing TAP; mesh, a switch of all workers with "+
		"--lif mesh; none, no carrier (default none)")
	fs.StringVarP(&f.tap, "tap", "T", "", "short for --lif tap:`NAME`")
	fs.StringVar(&f.mac, "mac", "", "MAC `address` of the NIC (default: made from the host, the name and the socket path)")
	fs.StringSliceVar(&f.gids, "gid", nil, "`GID` or IPv4 address the guest owns besides what it shows; repeatable")
	fs.StringVar(&f.fabric, "fabric", "mesh", "where RDMA goes: none, loopback or mesh")
	fs.StringArrayVar(&f.profiles, "nic-profile", nil, "`profile` to lay over compat: a built-in name or a file; repeatable, later ones win")
	fs.BoolVar(&f.printProfile, "print-profile", false, "print the merged NIC profile and exit")
	fs.IntVar(&f.ethQueues, "eth-queues", 0, "Ethernet queue `pairs`, whatever the profile says")
	fs.IntVar(&f.statsMS, "stats-interval-ms", 0, "`milliseconds` between updates of the guest's counters, whatever the profile says")
	f.tls.AddFlags(fs, identity.Worker)
	fs.StringVar(&f.relay, "relay", "on", "on or off: reach peers by way of the manager that cannot be reached directly")
	fs.BoolVar(&f.reflection, "grpc-reflection", false, "let clients ask which calls there are")
	f.gossip.AddFlags(fs)
	f.observe.addFlags(c)
	f.log.AddFlags(fs)
	complete(c, "fabric", "none", "loopback", "mesh")
	complete(c, "gossip", "on", "off")
	complete(c, "lif", "none", "mesh", "tap:")
	complete(c, "nic-profile", profile.Names()...)
	return c
}

func complete(c *cobra.Command, flag string, values ...string) {
	err := c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveDefault
	})
	if err != nil {
		panic(err) // the flag does not exist: a mistake in this file
	}
}

func run(c *cobra.Command, f *flags) error {
	set, err := f.profile()
	if err != nil {
		return err
	}
	if f.printProfile {
		return set.Print(c.OutOrStdout())
	}
	config, err := f.config(set)
	if err != nil {
		return err
	}
	if config.Log, err = f.log.New(os.Stderr); err != nil {
		return err
	}
	if err := f.connections(&config); err != nil {
		return err
	}
	worker.LimitProcs()
	if err := worker.ShortenSlices(); err != nil {
		config.Log.Debug().Err(err).Msg("scheduling slices stay as they are; latency may be higher when CPUs are scarce")
	}
	w, err := worker.New(config)
	if err != nil {
		return err
	}
	return w.Run(c.Context())
}

// profile merges the layers and the flags that win over every layer.
func (f *flags) profile() (profile.Set, error) {
	set, err := profile.Load(f.profiles...)
	if err != nil {
		return set, cli.Usagef("--nic-profile: %w", err)
	}
	for _, o := range []struct {
		flag, key string
		value     int
	}{
		{"eth-queues", "queues.eth", f.ethQueues},
		{"stats-interval-ms", "stats.interval_ms", f.statsMS},
	} {
		if o.value == 0 {
			continue
		}
		if err := set.Set(o.key, strconv.Itoa(o.value)); err != nil {
			return set, cli.Usagef("--%s: %w", o.flag, err)
		}
	}
	return set, nil
}

func (f *flags) config(set profile.Set) (worker.Config, error) {
	c := worker.Config{
		Name: f.name, Socket: f.socket, SocketGroup: f.socketGroup, PollFor: f.poll,
		Profile: set, Fabric: worker.FabricKind(f.fabric),
		Manager: f.manager, Listen: f.listen, Advertise: f.advertise, Lanes: f.lanes,
		Version: cli.Version(),
	}
	if f.socket == "" {
		return c, cli.Usagef("--socket is required: the path QEMU connects to")
	}
	mode, err := strconv.ParseUint(f.socketMode, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return c, cli.Usagef("--socket-mode %q is not an octal mode between 1 and 777", f.socketMode)
	}
	c.SocketMode = os.FileMode(mode)
	switch c.Fabric {
	case worker.FabricNone, worker.FabricLoopback:
	case worker.FabricMesh:
		if f.manager == "" {
			return c, cli.Usagef("--manager is required with --fabric mesh")
		}
		if _, err := session.ManagerAddrs(f.manager); err != nil {
			return c, cli.Usagef("--manager: %w", err)
		}
		if f.relay != "on" && f.relay != "off" {
			return c, cli.Usagef("--relay %q is none of on, off", f.relay)
		}
		c.Relay, c.Reflection = f.relay == "on", f.reflection
		if err := f.checkExposure(); err != nil {
			return c, err
		}
	default:
		return c, cli.Usagef("--fabric %q is none of none, loopback, mesh", f.fabric)
	}
	if c.LIF, c.TAP, err = f.wire(); err != nil {
		return c, err
	}
	if c.LIF == worker.LIFMesh && c.Fabric != worker.FabricMesh {
		return c, cli.Usagef("--lif mesh needs --fabric mesh, not %s", c.Fabric)
	}
	if c.Observe, err = f.observe.config(&f.tls, f.insecure); err != nil {
		return c, err
	}
	if c.MAC, err = f.macAddress(); err != nil {
		return c, err
	}
	for _, s := range f.gids {
		g, err := gid.Parse(s)
		if err != nil {
			return c, cli.Usagef("--gid: %w", err)
		}
		c.GIDs = append(c.GIDs, g)
	}
	return c, nil
}

// wire is what --lif or --tap asks for.
func (f *flags) wire() (worker.LIFKind, string, error) {
	if f.tap != "" {
		if f.lif != "" {
			return "", "", cli.Usagef("--lif %s and --tap %s: give one of them", f.lif, f.tap)
		}
		return worker.LIFTAP, f.tap, nil
	}
	name, isTAP := strings.CutPrefix(f.lif, "tap:")
	switch {
	case isTAP && name != "":
		return worker.LIFTAP, name, nil
	case f.lif == "" || f.lif == string(worker.LIFNone):
		return worker.LIFNone, "", nil
	case f.lif == string(worker.LIFMesh):
		return worker.LIFMesh, "", nil
	}
	return "", "", cli.Usagef("--lif %q is none of tap:NAME, mesh, none", f.lif)
}

// checkExposure refuses listeners that other hosts can reach unless their
// connections are protected or the user says that plain ones are meant.
func (f *flags) checkExposure() error {
	if err := cli.CheckListen("listen", f.listen, f.tls.Enabled(), f.insecure); err != nil || f.status == "" {
		return err
	}
	return cli.CheckListen("status", f.status, f.tls.Enabled(), f.insecure)
}

// connections opens the status listener and reads the certificates, if there
// are any.
func (f *flags) connections(c *worker.Config) (err error) {
	if c.Fabric != worker.FabricMesh {
		return nil
	}
	if c.Gossip.Listen, c.Gossip.Key, err = f.gossip.Setting(f.listen, f.insecure, c.Log); err != nil {
		return err
	}
	if f.tls.Enabled() {
		f.tls.OnReload(cli.LogReload(c.Log))
		if c.Server, err = f.tls.Server(); err != nil {
			return err
		}
		if c.Client, err = f.tls.Client(identity.Worker); err != nil {
			return err
		}
		if c.ToManager, err = f.tls.Client(identity.Manager); err != nil {
			return err
		}
	} else if f.insecure {
		c.Log.Warn().Msg("connections are plain: whoever can reach the ports can pose as a worker")
	}
	if f.status != "" {
		c.Status, err = cli.Listen("status", f.status)
	}
	return err
}

// macAddress is the one given, or one that stays the same for the same socket
// on the same host: a locally administered address made of a hash.
func (f *flags) macAddress() ([6]byte, error) {
	if f.mac != "" {
		m, err := net.ParseMAC(f.mac)
		if err != nil || len(m) != 6 {
			return [6]byte{}, cli.Usagef("--mac %q is not a MAC address of six bytes", f.mac)
		}
		if m[0]&1 != 0 || [6]byte(m) == [6]byte{} {
			return [6]byte{}, cli.Usagef("--mac %s is not a unicast address", m)
		}
		return [6]byte(m), nil
	}
	host, _ := os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", host, id, f.name, f.socket))
	m := [6]byte(sum[:6])
	m[0] = m[0]&^1 | 2
	return m, nil
}

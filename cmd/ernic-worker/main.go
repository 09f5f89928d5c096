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
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/device/profile"
	"github.com/ernic-dev/ernic/proto/gid"
	"github.com/ernic-dev/ernic/worker"
)

func main() { cli.Main(command()) }

// flags are the flags as typed; config turns them into a worker.Config.
type flags struct {
	log cli.Log

	manager, name, listen, advertise string
	insecure                         bool
	lanes                            int

	socket, socketMode, socketGroup string
	poll                            time.Duration

	tap, mac string
	gids     []string
	fabric   string

	profiles     []string
	printProfile bool
	ethQueues    int
	statsMS      int
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
  ernic-worker --fabric loopback --socket /run/ernic/vm1.sock`,
		RunE: func(c *cobra.Command, _ []string) error { return run(c, &f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.manager, "manager", "", "`address` of the manager, host or host:port (port 6320)")
	fs.StringVar(&f.name, "name", "", "`name` of this worker in listings (default: the host's name)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:0", "`address` to accept peers on; port 0 takes any")
	fs.StringVar(&f.advertise, "advertise", "", "`address` that peers connect to (default: that of --listen)")
	fs.BoolVar(&f.insecure, "insecure", false, "allow plain connections with other hosts")
	fs.IntVar(&f.lanes, "lanes", 0, "`connections` to each peer (default 4)")
	fs.StringVar(&f.socket, "socket", "", "`path` of the vfio-user socket that QEMU connects to")
	fs.StringVar(&f.socketMode, "socket-mode", "0660", "octal `mode` of the socket")
	fs.StringVar(&f.socketGroup, "socket-group", "", "`group` that owns the socket, by name or number")
	fs.DurationVar(&f.poll, "poll", 0, "`time` to poll the guest's socket before sleeping; costs a CPU")
	fs.StringVar(&f.tap, "tap", "", "existing TAP `interface` that carries the guest's Ethernet frames (default: none, no carrier)")
	fs.StringVar(&f.mac, "mac", "", "MAC `address` of the NIC (default: made from the host, the name and the socket path)")
	fs.StringSliceVar(&f.gids, "gid", nil, "`GID` or IPv4 address the guest owns besides what it shows; repeatable")
	fs.StringVar(&f.fabric, "fabric", "mesh", "where RDMA goes: none, loopback or mesh")
	fs.StringArrayVar(&f.profiles, "nic-profile", nil, "`profile` to lay over compat: a built-in name or a file; repeatable, later ones win")
	fs.BoolVar(&f.printProfile, "print-profile", false, "print the merged NIC profile and exit")
	fs.IntVar(&f.ethQueues, "eth-queues", 0, "Ethernet queue `pairs`, whatever the profile says")
	fs.IntVar(&f.statsMS, "stats-interval-ms", 0, "`milliseconds` between updates of the guest's counters, whatever the profile says")
	f.log.AddFlags(fs)
	complete(c, "fabric", "none", "loopback", "mesh")
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
		TAP: f.tap, Profile: set, Fabric: worker.FabricKind(f.fabric),
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
		if err := f.checkExposure(); err != nil {
			return c, err
		}
	default:
		return c, cli.Usagef("--fabric %q is none of none, loopback, mesh", f.fabric)
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

// checkExposure refuses a listener that other hosts can reach unless the user
// says that plain connections are meant.
func (f *flags) checkExposure() error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return cli.Usagef("--listen %q is not host:port: %w", f.listen, err)
	}
	ip := net.ParseIP(host)
	if !f.insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return cli.Usagef("--listen %s can be reached by other hosts in the clear: add --insecure if that is meant", f.listen)
	}
	return nil
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

// SPDX-License-Identifier: Apache-2.0

// Command ernic-manager is node 0 of a mesh: it says who is who and who owns which address.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/store"
)

func main() { cli.Main(command()) }

// backupPeriod is the time between two copies of a state that changes.
const backupPeriod = 10 * time.Minute

// noState as the state directory keeps the state in memory.
const noState = "none"

// flags are the flags as typed.
type flags struct {
	log    cli.Log
	tls    cli.TLS
	gossip cli.Gossip
	shared shared

	listen, name, stateDir         string
	metrics                        string
	insecure, reflection, repair   bool
	interval, claimTTL, quarantine time.Duration
	maxClaims                      int
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "ernic-manager [flags]",
		Short: "Say who is who in a mesh of RDMA workers",
		Long: `ernic-manager is node 0 of a mesh. Workers register with it; it gives them node ids, checks
their health and tells all of them which address belongs to whom. No payload passes through it:
while it is away, what works goes on working.

Every flag can come from the environment: --log-level from ERNIC_LOG_LEVEL.`,
		Example: `  ernic-manager
  ernic-manager --listen :6320 --tls-cert m.crt --tls-key m.key --tls-ca ca.crt
  ernic-manager --listen 192.168.1.1:6320 --insecure --state-dir /var/lib/ernic-manager
  ernic-manager --store etcds://e1:2379,e2:2379,e3:2379/mesh --store-ca etcd-ca.crt --listen 192.168.1.1:6320 ...`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.shared.check(c, f.listen, f.insecure); err != nil {
				return err
			}
			if f.repair {
				return repair(c, &f)
			}
			return run(c.Context(), &f)
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.listen, "listen", "127.0.0.1:6320", "`address` that workers and ernictl connect to")
	fs.BoolVar(&f.insecure, "insecure", false, "allow plain connections from other hosts")
	fs.StringVar(&f.name, "name", "", "`name` of the manager in listings (default: the host's name)")
	fs.StringVar(&f.stateDir, "state-dir", defaultStateDir(), "`directory` that keeps the state over restarts, or "+noState)
	fs.BoolVar(&f.repair, "repair", false, "save what can be read of a damaged state in --state-dir, and of its copy, and end")
	fs.DurationVar(&f.interval, "health-interval", 5*time.Second, "`time` between two heartbeats; after three without one a node is dead")
	fs.DurationVar(&f.claimTTL, "claim-ttl", 24*time.Hour, "`time` for which a dead node keeps its id and its claims")
	fs.DurationVar(&f.quarantine, "quarantine", 10*time.Minute, "`time` for which the id of an evicted node is not given out")
	fs.IntVar(&f.maxClaims, "max-claims", 4096, "most `addresses` that one node may claim")
	fs.StringVar(&f.metrics, "metrics-listen", "off", "`address` that answers Prometheus at /metrics, or off")
	fs.BoolVar(&f.reflection, "grpc-reflection", false, "let clients ask which calls there are")
	f.tls.AddFlags(fs, identity.Manager)
	f.shared.addFlags(fs)
	f.gossip.AddFlags(fs)
	f.log.AddFlags(fs)
	return c
}

// defaultStateDir is the one that systemd made, the system's for root, and the user's own otherwise.
func defaultStateDir() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if os.Getuid() == 0 {
		return "/var/lib/ernic-manager"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "ernic-manager")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "ernic-manager")
	}
	return noState
}

// config checks the flags.
func (f *flags) config() (core.Config, error) {
	for name, d := range map[string]time.Duration{"health-interval": f.interval, "claim-ttl": f.claimTTL} {
		if d < 10*time.Millisecond {
			return core.Config{}, cli.Usagef("--%s %s is too short", name, d)
		}
	}
	if f.quarantine < 0 {
		return core.Config{}, cli.Usagef("--quarantine %s is less than nothing", f.quarantine)
	}
	if f.maxClaims < 1 || f.maxClaims > 1<<20 {
		return core.Config{}, cli.Usagef("--max-claims %d is not between 1 and %d", f.maxClaims, 1<<20)
	}
	quarantine := f.quarantine
	if quarantine == 0 {
		quarantine = -1
	}
	if err := cli.CheckListen("listen", f.listen, f.tls.Enabled(), f.insecure); err != nil {
		return core.Config{}, err
	}
	if f.metrics != "off" {
		if err := cli.CheckListen("metrics-listen", f.metrics, f.tls.Enabled(), f.insecure); err != nil {
			return core.Config{}, err
		}
	}
	return core.Config{HealthInterval: f.interval, ClaimTTL: f.claimTTL, Quarantine: quarantine, MaxClaims: f.maxClaims}, nil
}

func run(ctx context.Context, f *flags) (err error) {
	log, err := f.log.New(os.Stderr)
	if err != nil {
		return err
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	f.tls.OnReload(cli.LogReload(log))
	creds, err := f.tls.Server()
	if err != nil {
		return err
	}
	l, err := cli.Listen("listen", f.listen)
	if err != nil {
		return err
	}
	name := f.name
	if name == "" {
		name, _ = os.Hostname()
	}
	cfg := manager.Config{
		Core: config, Log: log, Name: name, Address: l.Addr().String(), Version: cli.Version(), Reflection: f.reflection,
	}
	if f.shared.enabled() {
		cfg.Address = f.shared.advertise
	}
	w, err := startWitness(f, &cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer closeInto(&err, w.close)
	shows, err := openMetrics(f)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer closeInto(&err, shows.close)
	if f.shared.enabled() {
		err = runShared(ctx, f, &cfg, w, shows, l, grpc.Creds(creds))
	} else {
		err = runAlone(ctx, f, &cfg, w, shows, l, grpc.Creds(creds))
	}
	if err == nil {
		log.Info().Msg("ended")
	}
	return err
}

// runAlone serves as the only manager, with its state in a file.
func runAlone(ctx context.Context, f *flags, cfg *manager.Config, w *witness, shows *shown, l net.Listener, creds grpc.ServerOption) (err error) {
	if f.stateDir != noState {
		s, err := store.Open(f.stateDir, manager.NewHistory())
		if err != nil {
			return errors.Join(err, l.Close())
		}
		defer closeInto(&err, s.Close)
		cfg.Store = s
		copying, stop := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { s.KeepBackup(copying, backupPeriod, cfg.Log) })
		defer ended.Wait()
		defer stop()
	}
	m, err := manager.New(*cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	w.watch(m)
	shows.run(m.Counters)
	greet(cfg.Log, f, l.Addr().String())
	return m.Serve(ctx, l, creds)
}

// runShared serves as one of several managers, whenever it is elected.
func runShared(ctx context.Context, f *flags, cfg *manager.Config, w *witness, shows *shown, l net.Listener, creds grpc.ServerOption) (err error) {
	cluster, err := f.shared.open(cfg, f.interval)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer closeInto(&err, cluster.Close)
	m := manager.NewStandby(*cfg, cluster)
	w.watch(m)
	shows.run(m.Counters)
	stop := w.join(cluster)
	defer stop()
	greet(cfg.Log, f, l.Addr().String())
	return m.Serve(ctx, l, creds)
}

func greet(log zerolog.Logger, f *flags, address string) {
	state := f.stateDir
	if f.shared.enabled() {
		state = f.shared.target.String()
	}
	log.Info().Str("version", cli.Version()).Str("listen", address).Bool("tls", f.tls.Enabled()).Str("state", state).
		Stringer("health_interval", f.interval).Msg("listening")
	if f.stateDir == noState && !f.shared.enabled() {
		log.Warn().Msg("the state is kept in memory only: ids and claims do not survive a restart of the manager")
	}
	if f.insecure && !f.tls.Enabled() {
		log.Warn().Msg("connections are plain: whoever can reach the port can join the mesh")
	}
}

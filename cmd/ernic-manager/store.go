// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/etcd"
	"github.com/ernic-dev/ernic/manager/store"
)

// shared holds the flags of a state that several managers share.
type shared struct {
	store, ca, cert, key, advertise string

	target etcd.Target // valid if store is set
}

func (s *shared) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.store, "store", "", "`URL` of a state that several managers share, of which one leads: etcd://host:port[,host:port]/prefix, "+
		"or etcds:// with TLS (default: a file in --state-dir)")
	fs.StringVar(&s.ca, "store-ca", "", "PEM `file` with the certificates that sign those of etcd")
	fs.StringVar(&s.cert, "store-cert", "", "PEM `file` with the certificate that etcd is shown")
	fs.StringVar(&s.key, "store-key", "", "PEM `file` with the key of that certificate")
	fs.StringVar(&s.advertise, "advertise", "", "`address` at which workers and ernictl reach this manager, with --store (default: --listen)")
}

// enabled reports whether the state is shared.
func (s *shared) enabled() bool { return s.store != "" }

// check looks at the flags. listen is where the manager listens.
func (s *shared) check(c *cobra.Command, listen string, insecure bool) error {
	if !s.enabled() {
		for name, value := range map[string]string{"store-ca": s.ca, "store-cert": s.cert, "store-key": s.key, "advertise": s.advertise} {
			if value != "" {
				return cli.Usagef("--%s belongs to --store", name)
			}
		}
		return nil
	}
	var err error
	if s.target, err = etcd.ParseTarget(s.store); err != nil {
		return cli.Usagef("--store: %w", err)
	}
	if c.Flags().Changed("state-dir") {
		return cli.Usagef("--state-dir and --store are two places for one state")
	}
	switch {
	case (s.cert == "") != (s.key == ""):
		return cli.Usagef("--store-cert and --store-key belong together")
	case !s.target.TLS && (s.ca != "" || s.cert != ""):
		return cli.Usagef("--store-ca and --store-cert protect a connection to etcds://, not to %s", s.target)
	case !s.target.TLS && !insecure:
		for _, e := range s.target.Endpoints {
			if !cli.IsLoopback(e) {
				return cli.Usagef("--store: the connection to %s would be in the clear: use etcds://, or --insecure if that is meant", e)
			}
		}
	}
	if s.advertise == "" {
		s.advertise = listen
	}
	host, _, err := net.SplitHostPort(s.advertise)
	if err != nil {
		return cli.Usagef("--advertise %q is not host:port: %w", s.advertise, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return cli.Usagef("--advertise: workers cannot connect to %q: give the address at which they reach this manager", s.advertise)
	}
	return nil
}

// tls returns what protects the connection to etcd, nil if nothing does.
func (s *shared) tls() (*tls.Config, error) {
	if !s.target.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		raw, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("--store-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("--store-ca: there is no certificate in %s", s.ca)
		}
	}
	if s.cert != "" {
		if _, err := tls.LoadX509KeyPair(s.cert, s.key); err != nil {
			return nil, fmt.Errorf("--store-cert: %w", err)
		}
		// Read for every connection, so that a new one is used without a restart.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.cert, s.key)
			return &pair, err
		}
	}
	return c, nil
}

// open connects to the state.
func (s *shared) open(cfg *manager.Config, interval time.Duration) (*etcd.Cluster, error) {
	protect, err := s.tls()
	if err != nil {
		return nil, err
	}
	// A manager that is not heard is replaced in about the time in which it would notice a silent worker.
	lease := min(max(interval.Round(time.Second), etcd.MinLease), 10*time.Second)
	return etcd.Open(etcd.Config{
		Target: s.target, TLS: protect, Lease: lease, History: manager.NewHistory, Log: cfg.Log,
		Self: manager.Candidate{
			Name: cfg.Name, Address: cfg.Address, Gossip: gossipAddress(cfg), Version: cfg.Version, Started: time.Now(),
		},
	})
}

// gossipAddress completes the address of the manager's gossip by its host.
func gossipAddress(cfg *manager.Config) string {
	host, port, err := net.SplitHostPort(cfg.GossipAddress)
	if err != nil || host != "" {
		return cfg.GossipAddress
	}
	if host, _, err = net.SplitHostPort(cfg.Address); err != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// closeInto closes something when a function returns, and adds to its error.
func closeInto(err *error, closer func() error) { *err = errors.Join(*err, closer()) }

// repair saves what it can of a damaged state.
func repair(c *cobra.Command, f *flags) error {
	if f.shared.enabled() || f.stateDir == noState {
		return cli.Usagef("--repair: there is no state in a file: etcd is restored from a snapshot of its own")
	}
	r, err := store.Repair(f.stateDir, manager.NewHistory())
	if err != nil {
		return err
	}
	if r.Sound {
		c.Printf("the state in %s is sound: %d nodes, %d claims\n", f.stateDir, r.Nodes, r.Claims)
		return nil
	}
	for _, finding := range r.Findings {
		c.Printf("found: %s\n", finding)
	}
	c.Printf("the state in %s is repaired: %d nodes and %d claims, %d of them from its copy; the damaged file is %s\n",
		f.stateDir, r.Nodes, r.Claims, r.FromBackup, r.Kept)
	return nil
}

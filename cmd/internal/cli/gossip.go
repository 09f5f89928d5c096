// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/ernic-dev/ernic/fabric/gossip"
)

// Gossip holds the flags of the gossip between the members of a mesh.
type Gossip struct{ mode, listen, key string }

// AddFlags adds --gossip, --gossip-listen and --gossip-key.
func (g *Gossip) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&g.mode, "gossip", "on", "on or off: see and hear the other members also without the manager")
	fs.StringVar(&g.listen, "gossip-listen", "", "`address` for gossip, TCP and UDP (default: the host of --listen, any port)")
	fs.StringVar(&g.key, "gossip-key", "", "`file` with the key that all members encrypt gossip with: 64 hexadecimal digits")
}

// Setting is how a program takes part in gossip: where it listens, empty for not at all, and the key.
func (g *Gossip) Setting(listen string, insecure bool, log zerolog.Logger) (address string, key []byte, err error) {
	switch g.mode {
	case "on":
	case "off":
		return "", nil, nil
	default:
		return "", nil, Usagef("--gossip %q is none of on, off", g.mode)
	}
	if g.key != "" {
		if key, err = gossip.ReadKey(g.key); err != nil {
			return "", nil, err
		}
	}
	if g.listen != "" {
		return g.listen, key, g.check(key != nil, insecure)
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", nil, Usagef("--listen %q is not host:port: %w", listen, err)
	}
	if key == nil && !insecure && !isLoopback(host) {
		log.Warn().Msg("no gossip without --gossip-key: while the manager is away this member hears nothing of the others")
		return "", nil, nil
	}
	return net.JoinHostPort(host, "0"), key, nil
}

// check refuses an address that other hosts can reach unless a key protects it.
func (g *Gossip) check(protected, insecure bool) error {
	host, _, err := net.SplitHostPort(g.listen)
	if err != nil {
		return Usagef("--gossip-listen %q is not host:port: %w", g.listen, err)
	}
	if protected || insecure || isLoopback(host) {
		return nil
	}
	return Usagef("--gossip-listen %s can be reached by other hosts in the clear: give --gossip-key, or --insecure if that is meant", g.listen)
}

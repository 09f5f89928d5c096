// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/ernic-dev/ernic/e2e/verdict"
)

// network is a switch with hosts on it.
type network struct {
	t     *verdict.T
	name  string // begins the names of all namespaces
	hosts map[string]*host
}

// host is a namespace with one cable.
type host struct {
	net  *network
	name string
	ns   string
	addr string
	port string // of the switch
	wire *wire  // a bad cable, nil for the good one
}

func ip(t *verdict.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func newNetwork(t *verdict.T) *network {
	t.Helper()
	n := &network{t: t, name: fmt.Sprintf("ef%d", os.Getpid()), hosts: make(map[string]*host)}
	n.namespace(n.name)
	ip(t, "-n", n.name, "link", "add", "br0", "type", "bridge")
	ip(t, "-n", n.name, "link", "set", "br0", "up")
	return n
}

func (n *network) namespace(name string) {
	n.t.Helper()
	ip(n.t, "netns", "add", name)
	n.t.Cleanup(func() { ip(n.t, "netns", "del", name) })
	ip(n.t, "-n", name, "link", "set", "lo", "up")
}

// host adds a host with an address.
func (n *network) host(name, addr string) *host {
	n.t.Helper()
	h := &host{net: n, name: name, ns: n.name + name, addr: addr, port: "p" + name}
	n.namespace(h.ns)
	ip(n.t, "-n", n.name, "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", h.ns)
	ip(n.t, "-n", n.name, "link", "set", h.port, "master", "br0", "up")
	ip(n.t, "-n", h.ns, "addr", "add", addr+"/24", "dev", "eth0")
	ip(n.t, "-n", h.ns, "link", "set", "eth0", "up")
	n.hosts[name] = h
	return h
}

// unplug takes the carrier away from both ends of the cable.
func (h *host) unplug() { ip(h.net.t, "-n", h.net.name, "link", "set", h.port, "down") }

func (h *host) plug() { ip(h.net.t, "-n", h.net.name, "link", "set", h.port, "up") }

// mute lets the switch drop everything from and to the host, which sees a carrier all the time.
func (h *host) mute() { h.portState("0") }

func (h *host) unmute() { h.portState("3") }

func (h *host) portState(state string) {
	h.net.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", h.net.name, "bridge", "link", "set", "dev", h.port, "state", state).CombinedOutput()
	if err != nil {
		h.net.t.Fatalf("switch port of %s: %v: %s", h.name, err, out)
	}
}

// lose lets the host drop all it sends to another; what comes from there still arrives.
func (h *host) lose(other *host) {
	ip(h.net.t, "-n", h.ns, "route", "add", "blackhole", other.addr+"/32")
}

func (h *host) find(other *host) {
	ip(h.net.t, "-n", h.ns, "route", "del", "blackhole", other.addr+"/32")
}

// move gives the host another address, and takes the old one away.
func (h *host) move(addr string) {
	h.net.t.Helper()
	ip(h.net.t, "-n", h.ns, "addr", "del", h.addr+"/24", "dev", "eth0") // the others of its network go with it
	ip(h.net.t, "-n", h.ns, "addr", "add", addr+"/24", "dev", "eth0")
	h.addr = addr
}

// dial connects from the host.
func (h *host) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = inside(h.ns, func() error {
		// An address needs no resolver, which would run elsewhere.
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

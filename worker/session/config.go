// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/stats/section"
)

// anyNode asks the manager for the lowest free id.
const anyNode = 0xFFFFFFFF

// Protocol versions that this package speaks.
const (
	minProtocol = 1
	maxProtocol = 1
)

// DefaultManagerPort is the port of a manager whose address does not name one.
const DefaultManagerPort = "6320"

// Config says who the worker is and where its manager.
type Config struct {
	// Manager is the host:port of the manager; of several that share a state, separated by commas, the one that leads is
	// found.
	Manager string
	// Dial holds what gRPC needs to connect, the credentials first of all.
	Dial []grpc.DialOption
	// Name is what operators call the worker.
	Name string
	// Addr is the host:port on which peers reach the worker's FabricService; empty if there is none.
	Addr string
	// Locate returns what Addr is now, seen from a manager at host:port; empty if it cannot be told. It is asked before every registration and replaces Addr;
	// nil: Addr stays the same.
	Locate func(manager string) string
	// Version is that of the program.
	Version string
	// Report returns what the worker says of itself with a heartbeat; nil: nothing. It must not wait.
	Report func() Report
	// Stats returns all counters, those of up to qps queue pairs one by one, for who asks the status listener; nil: it is
	// not offered.
	Stats    func(qps int) []section.Section
	Handlers Handlers
	Log      zerolog.Logger

	// Instance names the process; made up if it is zero.
	Instance [16]byte
	// Incarnation orders the processes of one worker; the time in nanoseconds if it is zero.
	Incarnation uint64
	// MaxClaims bounds the addresses that the worker claims. Default 4096.
	MaxClaims int
	// BackoffMin and BackoffMax bound the wait between two attempts to register, of which up to half is taken off at
	// random. Default 100 ms and 2 s.
	BackoffMin, BackoffMax time.Duration
	// MinProtocol and MaxProtocol are the protocol versions offered. Default: those that this package speaks.
	MinProtocol, MaxProtocol uint32
}

// Handlers are called by the session, one after another, and must return soon. Any of them may be nil.
type Handlers struct {
	// Registered is called when the manager has accepted a registration. The node is another than the last time if the
	// manager took the worker for a new one.
	Registered func(node uint32)
	// Mesh is called when a new view is in place.
	Mesh func(old, now *Mesh)
	// Gossip is called with every registration if the manager can be joined for gossip, at host:port.
	Gossip func(address string)
	// Relay is called when a peer that cannot reach this worker calls by way of the manager.
	Relay func(from uint32, token [16]byte)
	// Drain is called when the worker is asked to end as soon as no guest uses it.
	Drain func(reason string)
	// SetLink is called when the link of the NIC is to be taken down, or left to its wire again.
	SetLink func(up bool)
}

// ManagerAddr completes the address of a manager as a user writes it: host, host:port, IPv6 address, or [IPv6]:port.
func ManagerAddr(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if ip := net.ParseIP(s); ip == nil && (s == "" || !isHost(s)) {
			return "", fmt.Errorf("manager address %q: not host or host:port", s)
		}
		host, port = s, DefaultManagerPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", fmt.Errorf("manager address %q: not host or host:port", s)
	}
	return net.JoinHostPort(host, port), nil
}

// isHost tells a name from an attempt at an address that failed.
func isHost(s string) bool {
	for _, r := range s {
		if r == ':' || r == '[' || r == ']' || r == '/' || r <= ' ' {
			return false
		}
	}
	return true
}

func (c *Config) fill() error {
	if c.Addr != "" {
		if err := checkAddr(c.Addr); err != nil {
			return err
		}
	}
	if len(c.Dial) == 0 {
		return errors.New("session: no credentials to connect with")
	}
	if c.Instance == ([16]byte{}) {
		// Read never fails; see its documentation.
		rand.Read(c.Instance[:])
	}
	if c.Incarnation == 0 {
		c.Incarnation = uint64(time.Now().UnixNano())
	}
	if c.MaxClaims == 0 {
		c.MaxClaims = 4096
	}
	if c.BackoffMin == 0 {
		c.BackoffMin = 100 * time.Millisecond
	}
	if c.BackoffMax == 0 {
		c.BackoffMax = 2 * time.Second
	}
	if c.MaxProtocol == 0 {
		c.MinProtocol, c.MaxProtocol = minProtocol, maxProtocol
	}
	if c.Report == nil {
		c.Report = func() Report { return Report{} }
	}
	return nil
}

// checkAddr says why peers cannot connect to an address.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("advertised address: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("advertised address %q: not host:port", addr)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("advertised address %q: peers cannot connect to the unspecified address", addr)
	}
	return nil
}

func (c *Config) register(node uint32, addr string, have *Mesh) *ernicv1.SessionRequest {
	m := &ernicv1.Register{
		Protocol:    &ernicv1.VersionRange{Min: c.MinProtocol, Max: c.MaxProtocol},
		NodeId:      node,
		Instance:    c.Instance[:],
		Incarnation: c.Incarnation,
		Name:        c.Name,
		Address:     addr,
		Version:     c.Version,
	}
	if have != empty {
		m.Have = &ernicv1.MeshPoint{History: have.History[:], Revision: have.Revision}
	}
	return &ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: m}}
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
	"github.com/ernic-dev/ernic/fabric/queue"
	"github.com/ernic-dev/ernic/fabric/wire"
)

// minWindow is the smallest window. The largest message fits, and so does what
// a sender keeps back (maxHeld), with a quarter to spare.
const minWindow = 448 << 10

// Options of a mesh link.
type Options struct {
	// Self is the own node id, Instance and Incarnation identify the process.
	Self        uint32
	Instance    [16]byte
	Incarnation uint64

	// Directory says where nodes are. A node that is not in it has no link.
	Directory *directory.Directory
	// Receiver gets the frames for this node.
	Receiver fabric.Receiver
	// Listener accepts the connections of peers. Close closes it. Without one
	// the link can only dial.
	Listener net.Listener

	// ServerCredentials and ClientCredentials secure connections. They are
	// required unless Insecure is set.
	ServerCredentials, ClientCredentials credentials.TransportCredentials
	Insecure                             bool
	// Verify binds a node id to the authenticated identity of a connection. It
	// is asked on both sides, after the hello. Nil accepts.
	Verify func(node uint32, auth credentials.AuthInfo) error

	// Lanes is the number of connections per peer that this node dials.
	// Default 4.
	Lanes int
	// Limits bound the queue of each lane.
	Limits queue.Limits
	// MaxPending bounds accepted connections that have not said hello.
	// Default 4096.
	MaxPending int
	// Window is what a peer may have on its way to this node on one lane, in
	// bytes. It bounds memory and, over long distances, bandwidth (window over
	// round trip time). Larger ones fall out of the processor's cache. Default
	// 768 KiB, at least 448 KiB.
	Window int
	// Timing holds the timeouts; zero fields get their defaults.
	Timing Timing

	// Dial replaces the TCP dialer, for tests and unusual networks.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Reflection lets whoever connects ask which calls there are.
	Reflection bool
	// OnEvent is told of links that come, go or cannot be made. It must not
	// block.
	OnEvent func(Event)

	versions [2]uint16 // lowest and highest protocol version; tests change it
}

// Timing holds the timeouts of a mesh link.
type Timing struct {
	// Connect bounds one attempt to make a connection, hello included.
	// Default 3 s.
	Connect time.Duration
	// Hello is what an accepted connection has for its hello. Default 5 s.
	Hello time.Duration
	// BackoffMin and BackoffMax bound the pause between attempts, which
	// doubles and has jitter. Defaults 25 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// Ping is the pause between pings. Default 2 s.
	Ping time.Duration
	// DeadAfter is the silence after which a lane is cut. Default 6 s.
	DeadAfter time.Duration
	// Linger is how long Close waits for queued frames. Default 300 ms.
	Linger time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		value *time.Duration
		dflt  time.Duration
	}{
		{&t.Connect, 3 * time.Second},
		{&t.Hello, 5 * time.Second},
		{&t.BackoffMin, 25 * time.Millisecond},
		{&t.BackoffMax, 5 * time.Second},
		{&t.Ping, 2 * time.Second},
		{&t.DeadAfter, 6 * time.Second},
		{&t.Linger, 300 * time.Millisecond},
	} {
		if *f.value == 0 {
			*f.value = f.dflt
		}
	}
	return t
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Directory == nil:
		return o, errors.New("mesh: no directory given")
	case o.Receiver == nil:
		return o, errors.New("mesh: no receiver given")
	case o.Insecure && (o.ServerCredentials != nil || o.ClientCredentials != nil):
		return o, errors.New("mesh: credentials given together with insecure")
	case !o.Insecure && (o.ServerCredentials == nil || o.ClientCredentials == nil):
		return o, errors.New("mesh: neither credentials nor insecure given")
	}
	if o.Insecure {
		o.ServerCredentials, o.ClientCredentials = insecure.NewCredentials(), insecure.NewCredentials()
	}
	if o.Lanes == 0 {
		o.Lanes = 4
	}
	if o.Lanes < 1 || o.Lanes > wire.MaxLanes {
		return o, fmt.Errorf("mesh: %d lanes, need 1 to %d", o.Lanes, wire.MaxLanes)
	}
	if o.MaxPending == 0 {
		o.MaxPending = 4096
	}
	if o.Window == 0 {
		o.Window = 768 << 10
	}
	if o.Window < minWindow || o.Window > 1<<30 {
		return o, fmt.Errorf("mesh: window of %d bytes, need %d to %d", o.Window, minWindow, 1<<30)
	}
	var err error
	if o.Limits, err = o.Limits.WithDefaults(); err != nil {
		return o, fmt.Errorf("mesh: %w", err)
	}
	o.Timing = o.Timing.withDefaults()
	if o.Timing.DeadAfter < o.Timing.Ping {
		return o, fmt.Errorf("mesh: ping every %v, dead after %v", o.Timing.Ping, o.Timing.DeadAfter)
	}
	if o.Dial == nil {
		var d net.Dialer
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.versions == [2]uint16{} {
		o.versions = [2]uint16{wire.VersionMin, wire.VersionMax}
	}
	return o, nil
}

// EventKind says what an Event tells.
type EventKind uint8

// Event kinds.
const (
	// LinkUp means that the first lane to a node came up: what waits for an
	// answer of that node may be sent again at once.
	LinkUp EventKind = iota
	// LinkDown means that the last lane to a node is lost.
	LinkDown
	// ConnectFailed means that an attempt to reach a node failed; the next one
	// follows after a pause.
	ConnectFailed
	// Refused means that an accepted connection was turned away.
	Refused
)

var eventNames = [...]string{"link-up", "link-down", "connect-failed", "refused"}

// String names the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event tells of a change worth a log line.
type Event struct {
	Kind EventKind
	// Node is the peer; for Refused what it claimed to be, 0 if it said nothing.
	Node uint32
	// Address is the remote address, if known.
	Address string
	// Err is why, nil for LinkUp.
	Err error
}

// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/managertest"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/relay"
	"github.com/ernic-dev/ernic/worker/session"
)

// member is a worker that nobody reaches directly. What it is sent it sends back.
type member struct {
	*session.Session
	relay  *relay.Relay
	closed string // address at which nobody listens yet
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// echo sends back what comes, until the test ends.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		ended.Wait()
	})
}

// join starts a member and waits until it is registered.
func join(t *testing.T, m *managertest.Manager, name string, peers *sync.Map) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	echo(t, l)
	w := &member{closed: fmt.Sprintf("127.%d.%d.%d:7000", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254))}
	w.relay = relay.New(relay.Config{
		Self: func() (uint32, bool) { return w.NodeID() }, Manager: func() (*grpc.ClientConn, error) { return w.DialManager() }, Listener: l.Addr().String(), Look: 50 * time.Millisecond,
		Peer: func(address string) (uint32, bool) {
			id, ok := peers.Load(address)
			if !ok {
				return 0, false
			}
			return id.(uint32), true
		},
		Log: zerolog.New(zerolog.NewTestWriter(t)),
	})
	w.Session, err = session.New(session.Config{
		Manager: managertest.Addr, Name: name, Addr: w.closed, Dial: m.DialOptions(), Log: zerolog.Nop(),
		Handlers: session.Handlers{Relay: w.relay.Answer},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		w.relay.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the registration", func() bool {
		id, ok := w.NodeID()
		peers.Store(w.closed, id)
		return ok && w.Status().GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED
	})
	return w
}

// dial connects one member to another, which each of them gives a second: on a machine that stands still that may be too
// little.
func dial(t *testing.T, from, to *member) (conn net.Conn) {
	t.Helper()
	eventually(t, "the connection", func() bool {
		var err error
		if conn, err = from.relay.Dial(t.Context(), to.closed); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return conn
}

func TestP2_WhatOneSendsComesOutAtTheOther(t *testing.T) {
	m := managertest.Start(t, manager.Config{})
	var peers sync.Map
	a, b := join(t, m, "a", &peers), join(t, m, "b", &peers)
	idA, _ := a.NodeID()
	idB, _ := b.NodeID()
	conn := dial(t, a, b)
	sent := make([]byte, 3<<20)
	rand.Read(sent)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(sent, got) {
		t.Fatalf("what came back is not what was sent: %v", err)
	}
	if !a.relay.Relayed(idB) || !b.relay.Relayed(idA) || a.relay.Relayed(idA) {
		t.Error("the two ends do not know that they are relayed")
	}
	if n, opened, bytes := a.relay.Counters(); n != 1 || opened != 1 || bytes != 6<<20 {
		t.Errorf("%d peers, %d connections, %d bytes", n, opened, bytes)
	}
	// The manager counts what it has sent, which may have arrived before.
	eventually(t, "the counters of the manager", func() bool {
		got := m.Server().Counters()
		return got["relays_open"] == 1 && got["relay_opened_total"] == 1 && got["relay_bytes_total"] == 6<<20
	})
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the connection", func() bool {
		return !a.relay.Relayed(idB) && !b.relay.Relayed(idA) && m.Server().Counters()["relays_open"] == 0
	})
}

func TestARelayedConnectionIsGivenUpForTheDirectWay(t *testing.T) {
	m := managertest.Start(t, manager.Config{})
	var peers sync.Map
	a, b := join(t, m, "a", &peers), join(t, m, "b", &peers)
	conn := dial(t, a, b)
	l, err := net.Listen("tcp", b.closed)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, l)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a connection that should be given up", n)
	}
	direct := dial(t, a, b)
	if direct.RemoteAddr().String() != b.closed {
		t.Errorf("connected to %s", direct.RemoteAddr())
	}
	_ = direct.Close()
}

func TestWithoutAWayTheErrorTellsOfBoth(t *testing.T) {
	m := managertest.Start(t, manager.Config{})
	var peers sync.Map
	a := join(t, m, "a", &peers)
	peers.Store("127.0.0.1:1", uint32(77))
	if _, err := a.relay.Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "there is no node 77") {
		t.Errorf("to a node that is not there: %v", err)
	}
	if _, err := a.relay.Dial(t.Context(), "127.0.0.1:2"); err == nil || strings.Contains(err.Error(), "manager") {
		t.Errorf("to an address that is nobody's: %v", err)
	}
	m.Stop()
	eventually(t, "the end of the session", func() bool {
		return a.Status().GetSession() != ernicv1.SessionState_SESSION_STATE_REGISTERED
	})
	if _, err := a.relay.Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "no session with the manager") {
		t.Errorf("without a manager: %v", err)
	}
}

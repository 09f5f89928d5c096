// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// securedManager is a manager that serves protected connections only.
type securedManager struct {
	t       *testing.T
	ca      *pki.Authority
	pool    *x509.CertPool
	address string
	log     *logBuffer
	server  *manager.Server
}

func startSecured(t *testing.T) *securedManager {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(dir, "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	m := &securedManager{t: t, ca: ca, pool: x509.NewCertPool(), log: &logBuffer{}}
	certs, err := pki.Certificates(filepath.Join(dir, pki.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	m.pool.AddCert(certs[0])
	if m.server, err = manager.New(manager.Config{Log: zerolog.New(m.log), Core: core.Config{HealthInterval: 2 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.issue(identity.Manager, "head")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.pool,
	})
	go func() { done <- m.server.Serve(ctx, l, grpc.Creds(creds)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *securedManager) issue(role identity.Role, name string) tls.Certificate {
	m.t.Helper()
	issued, err := m.ca.Issue(pki.Request{
		Identity: identity.Identity{Role: role, Name: name}, Validity: time.Minute, Replace: true, Hosts: []string{"127.0.0.1"},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		m.t.Fatal(err)
	}
	return pair
}

func (m *securedManager) dial(role identity.Role, name string) *grpc.ClientConn {
	m.t.Helper()
	creds := credentials.NewTLS(&tls.Config{RootCAs: m.pool, Certificates: []tls.Certificate{m.issue(role, name)}})
	conn, err := grpc.NewClient("passthrough:///"+m.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return conn
}

// outcome calls a method, with nothing in the request, and returns the code of the first answer.
func outcome(t *testing.T, conn *grpc.ClientConn, service, method string, streams bool) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	full := "/" + service + "/" + method
	if !streams {
		return status.Code(conn.Invoke(ctx, full, &ernicv1.ListNodesRequest{}, &ernicv1.ListNodesResponse{}))
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, full)
	if err != nil {
		return status.Code(err)
	}
	// A stream that has been refused already takes nothing; why is told to who receives.
	if err := stream.SendMsg(&ernicv1.ListNodesRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return status.Code(err)
	}
	if err := stream.CloseSend(); err != nil {
		return status.Code(err)
	}
	return status.Code(stream.RecvMsg(&ernicv1.ListNodesResponse{}))
}

// TestS2_EveryCallIsForItsRoleOnly makes every call that the manager has in every role. That a call is let through shows
// in that it fails, if it does, for another reason.
func TestS2_EveryCallIsForItsRoleOnly(t *testing.T) {
	m := startSecured(t)
	type method struct {
		name    string
		streams bool
	}
	var methods []method
	for _, d := range ernicv1.ManagerService_ServiceDesc.Methods {
		methods = append(methods, method{d.MethodName, false})
	}
	for _, d := range ernicv1.ManagerService_ServiceDesc.Streams {
		methods = append(methods, method{d.StreamName, true})
	}
	refusals := uint64(0)
	for _, role := range identity.Roles() {
		conn := m.dial(role, "x")
		for _, d := range methods {
			want := role == identity.Operator
			if d.name == "Session" || d.name == "Relay" {
				want = role == identity.Worker
			}
			got := outcome(t, conn, ernicv1.ManagerService_ServiceDesc.ServiceName, d.name, d.streams)
			if (got != codes.PermissionDenied) != want {
				t.Errorf("%s as %s: %s", d.name, role, got)
			}
			if !want {
				refusals++
			}
		}
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("health as %s: %v", role, err)
		}
	}
	if n := m.server.Counters()["call_refused_total"]; n != refusals {
		t.Errorf("%d refusals were counted, %d there were", n, refusals)
	}
	if log := m.log.String(); !strings.Contains(log, `"caller":"worker x at 127.0.0.1:`) || !strings.Contains(log, "EvictNode") {
		t.Errorf("the log does not say who was refused what:\n%s", log)
	}
}

// TestI2_ANodeBelongsToTheHolderOfItsCertificate registers a worker and has another one, which knows all that the mesh
// knows of the first, ask for its id.
func TestI2_ANodeBelongsToTheHolderOfItsCertificate(t *testing.T) {
	m := startSecured(t)
	register := func(conn *grpc.ClientConn, r *ernicv1.Register) (*ernicv1.Registered, error) {
		stream, err := ernicv1.NewManagerServiceClient(conn).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&ernicv1.SessionRequest{Message: &ernicv1.SessionRequest_Register{Register: r}}); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		return resp.GetRegistered(), err
	}
	r := registration("w")
	first, err := register(m.dial(identity.Worker, "host1"), r)
	if err != nil {
		t.Fatal(err)
	}
	r.NodeId = first.GetNodeId()
	if _, err := register(m.dial(identity.Worker, "host2"), r); err == nil || !strings.Contains(err.Error(), "belongs to worker host1, not to worker host2") {
		t.Errorf("another holder: %v", err)
	}
	resp, err := ernicv1.NewManagerServiceClient(m.dial(identity.Operator, "alice")).ListNodes(t.Context(), &ernicv1.ListNodesRequest{})
	if err != nil || len(resp.GetNodes()) != 2 || resp.GetNodes()[1].GetIdentity() != "worker host1" {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestTheLogSaysWhoChangedWhat follows an address through its owners.
func TestTheLogSaysWhoChangedWhat(t *testing.T) {
	m := startSecured(t)
	admin := ernicv1.NewManagerServiceClient(m.dial(identity.Operator, "alice"))
	stream, err := ernicv1.NewManagerServiceClient(m.dial(identity.Worker, "host1")).Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, stream: stream, node: 1}
	p.sendRegister(registration("w"))
	p.claim(1, []byte{0xfd, 15: 1})
	for acked := false; !acked; {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		acked = resp.GetClaimAck() != nil
	}
	if _, err := admin.EvictNode(t.Context(), &ernicv1.EvictNodeRequest{NodeId: 1, Reason: "broken fan"}); err != nil {
		t.Fatal(err)
	}
	// What follows from the eviction is told when it has come about, maybe after
	// the answer to the operator.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events, err := admin.WatchEvents(ctx, &ernicv1.WatchEventsRequest{Last: 3, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	var told []*ernicv1.Event
	for _, want := range []string{"fd00::1 belongs to node 1", "evicted: broken fan (by operator alice at 127.0.0.1:", "fd00::1 no longer belongs to node 1"} {
		for found := false; !found; {
			if len(told) == 0 {
				resp, err := events.Recv()
				if err != nil {
					t.Fatalf("waiting for %q: %v; log:\n%s", want, err, m.log.String())
				}
				told = resp.GetEvents()
				continue
			}
			found = strings.Contains(told[0].GetText(), want)
			told = told[1:]
		}
		if !strings.Contains(m.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, m.log.String())
		}
	}
}

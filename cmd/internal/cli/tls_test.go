// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
)

// site is an authority in a directory, with the certificates it issued.
type site struct {
	t  *testing.T
	ca *pki.Authority
	// dir holds the files.
	dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(dir, "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, ca, dir}
}

func (s *site) issue(role identity.Role, name string) pki.Issued {
	s.t.Helper()
	issued, err := s.ca.Issue(pki.Request{Identity: identity.Identity{Role: role, Name: name}, Validity: time.Minute, Replace: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued
}

// flags are those of a program that has a certificate of the site, or none.
func (s *site) flags(role identity.Role, name string) *TLS {
	t := &TLS{own: role, ca: filepath.Join(s.dir, pki.CertFile)}
	if name != "" {
		issued := s.issue(role, name)
		t.cert, t.key = issued.Cert, issued.Key
	}
	return t
}

func serve(t *testing.T, f *TLS) string {
	t.Helper()
	creds, err := f.Server()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(creds))
	healthv1.RegisterHealthServer(g, health.NewServer())
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// call makes a call to a manager and returns the serial number of its certificate.
func call(t *testing.T, address string, f *TLS) (string, error) {
	t.Helper()
	creds, err := f.Client(identity.Manager)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var who peer.Peer
	if _, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&who)); err != nil {
		return "", err
	}
	info, ok := who.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		t.Fatal("the connection is not protected")
	}
	return info.State.PeerCertificates[0].SerialNumber.String(), nil
}

func TestS1_ConnectionsAreProtectedOnBothSides(t *testing.T) {
	ours, theirs := newSite(t), newSite(t)
	address := serve(t, ours.flags(identity.Manager, "head"))
	if _, err := call(t, address, ours.flags(identity.Worker, "w")); err != nil {
		t.Fatal(err)
	}
	mixed := theirs.flags(identity.Worker, "w")
	mixed.ca = ours.flags(identity.Worker, "").ca
	for name, f := range map[string]*TLS{
		"a client without a certificate":   ours.flags(identity.Worker, ""),
		"a client of another authority":    mixed,
		"a client that trusts another":     theirs.flags(identity.Worker, "w"),
		"a client that does not speak TLS": {},
	} {
		if _, err := call(t, address, f); err == nil {
			t.Errorf("%s was served", name)
		}
	}
}

// TestS2_AServerMustHaveTheRoleItIsCalledFor has a worker pose as the manager.
func TestS1_AWebServerAsksForACertificateToo(t *testing.T) {
	s := newSite(t)
	c, err := s.flags(identity.Worker, "host7").HTTPS()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}
	go func() { _ = server.Serve(tls.NewListener(l, c)) }()
	defer server.Close()
	ask := func(certificates ...tls.Certificate) (*http.Response, error) {
		pool := x509.NewCertPool()
		ca, err := os.ReadFile(filepath.Join(s.dir, pki.CertFile))
		if err != nil || !pool.AppendCertsFromPEM(ca) {
			t.Fatal("no authority")
		}
		// A certificate names no host.
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			Certificates: certificates, InsecureSkipVerify: true,
			VerifyConnection: func(st tls.ConnectionState) error {
				return identity.CheckServer(st.PeerCertificates, pool, identity.Worker)
			},
		}}}
		defer client.CloseIdleConnections()
		return client.Get("https://" + l.Addr().String())
	}
	if r, err := ask(); err == nil {
		r.Body.Close()
		t.Errorf("without a certificate the answer is %s", r.Status)
	}
	issued := s.issue(identity.Operator, "prometheus")
	pair, err := tls.LoadX509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(pair)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusTeapot {
		t.Errorf("with a certificate the answer is %s", r.Status)
	}
}

func TestS2_AServerMustHaveTheRoleItIsCalledFor(t *testing.T) {
	s := newSite(t)
	address := serve(t, s.flags(identity.Worker, "w1"))
	_, err := call(t, address, s.flags(identity.Worker, "w2"))
	if err == nil || !strings.Contains(err.Error(), "that of worker w1, not of a manager") {
		t.Errorf("got %v", err)
	}
}

func TestS1_ANewCertificateIsUsedWithoutARestart(t *testing.T) {
	s := newSite(t)
	address := serve(t, s.flags(identity.Manager, "head"))
	client := s.flags(identity.Worker, "w")
	before, err := call(t, address, client)
	if err != nil {
		t.Fatal(err)
	}
	s.issue(identity.Manager, "head")
	if after, err := call(t, address, client); err != nil || after == before {
		t.Fatalf("certificate %s before and %s after, %v", before, after, err)
	}
}

// TestS1_ANewAuthorityIsTakenInWithoutARestart changes the authority of a site in the three steps that the manual gives:
// both are trusted, then all certificates are replaced, then only the new one is trusted.
func TestS1_ANewAuthorityIsTakenInWithoutARestart(t *testing.T) {
	old, young := newSite(t), newSite(t)
	server, client, left := old.flags(identity.Manager, "head"), old.flags(identity.Worker, "w"), old.flags(identity.Worker, "left")
	address := serve(t, server)
	if _, err := call(t, address, client); err != nil {
		t.Fatal(err)
	}
	read := func(file string) []byte {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	write := func(file string, raw []byte) {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newCA := read(filepath.Join(young.dir, pki.CertFile))
	write(server.ca, append(read(server.ca), newCA...))
	for role, f := range map[identity.Role]*TLS{identity.Manager: server, identity.Worker: client} {
		issued := young.issue(role, "new")
		write(f.key, read(issued.Key))
		write(f.cert, read(issued.Cert))
		if _, err := call(t, address, client); err != nil {
			t.Fatalf("after the %s has its new certificate: %v", role, err)
		}
	}
	write(server.ca, newCA)
	if _, err := call(t, address, client); err != nil {
		t.Errorf("with the new authority alone: %v", err)
	}
	if _, err := call(t, address, left); err == nil {
		t.Error("a certificate of the old authority still counts")
	}
}

func (s *site) revoke(f *TLS) {
	s.t.Helper()
	certs, err := pki.Certificates(f.cert)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.ca.Revoke(certs[0]); err != nil {
		s.t.Fatal(err)
	}
}

// TestS1_ARevokedCertificateIsRefusedOnBothSides takes certificates back while the programs run.
func TestS1_ARevokedCertificateIsRefusedOnBothSides(t *testing.T) {
	s := newSite(t)
	server := s.flags(identity.Manager, "head")
	address := serve(t, server)
	one, other := s.flags(identity.Worker, "one"), s.flags(identity.Worker, "other")
	for _, f := range []*TLS{one, other} {
		if _, err := call(t, address, f); err != nil {
			t.Fatal(err)
		}
	}
	s.revoke(one)
	if _, err := call(t, address, one); err == nil {
		t.Error("a client whose certificate is revoked is let in")
	}
	if _, err := call(t, address, other); err != nil {
		t.Errorf("another client: %v", err)
	}
	if _, err := call(t, address, s.flags(identity.Worker, "one")); err != nil {
		t.Errorf("the client with a new certificate: %v", err)
	}
	s.revoke(server)
	if _, err := call(t, address, other); err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("a server whose certificate is revoked: %v", err)
	}
}

func TestS1_FilesThatAreOfNoUseLeaveTheOldOnesInUse(t *testing.T) {
	s := newSite(t)
	server := s.flags(identity.Manager, "head")
	var told []error
	server.OnReload(func(err error) { told = append(told, err) })
	address, client := serve(t, server), s.flags(identity.Worker, "w")
	if err := os.WriteFile(server.cert, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := call(t, address, client); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0] == nil || !strings.Contains(told[0].Error(), server.cert) {
		t.Fatalf("told %v", told)
	}
	s.issue(identity.Manager, "head")
	if _, err := call(t, address, client); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[1] != nil {
		t.Errorf("told %v", told)
	}
}

func TestTLSFlagsThatDoNotFitTogetherAreNamed(t *testing.T) {
	s := newSite(t)
	good, other := s.flags(identity.Manager, "head"), s.flags(identity.Worker, "w")
	notPEM := filepath.Join(s.dir, "text")
	if err := os.WriteFile(notPEM, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cert, key, ca, want string
	}{
		"no key":                {good.cert, "", good.ca, "--tls-key"},
		"no certificate":        {"", "", good.ca, "--tls-cert"},
		"no CA":                 {good.cert, good.key, "", "--tls-ca"},
		"no such file":          {good.cert, good.key, "/nonexistent", "/nonexistent"},
		"CA is text":            {good.cert, good.key, notPEM, "holds no certificate"},
		"another's key":         {good.cert, other.key, good.ca, "private key"},
		"another's certificate": {other.cert, other.key, good.ca, "worker w, and here one of the role manager is needed"},
		"the CA's certificate":  {good.ca, filepath.Join(s.dir, pki.KeyFile), good.ca, "names no role"},
	} {
		f := &TLS{own: identity.Manager, cert: tc.cert, key: tc.key, ca: tc.ca}
		if _, err := f.Server(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestS1_CheckListenKnowsLoopback(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "host:1": false,
	} {
		if err := CheckListen("listen", address, false, false); (err == nil) != loopback {
			t.Errorf("%s: %v", address, err)
		}
		if err := CheckListen("listen", address, true, false); err != nil {
			t.Errorf("%s with TLS: %v", address, err)
		}
		if err := CheckListen("listen", address, false, true); err != nil {
			t.Errorf("%s with --insecure: %v", address, err)
		}
	}
	if err := CheckListen("listen", "nonsense", true, true); err == nil {
		t.Error("nonsense was accepted")
	}
}

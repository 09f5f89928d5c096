// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
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
)

// authority is a CA in a directory.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.write("ca.crt", "CERTIFICATE", raw)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, raw []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes name.crt and name.key.
func (a *authority) issue(name string, serial int64) {
	a.t.Helper()
	key := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", raw)
	a.write(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) flags(name string) *TLS {
	t := &TLS{ca: filepath.Join(a.dir, "ca.crt")}
	if name != "" {
		t.cert, t.key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
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

// call makes a call and returns the serial number of the server's certificate.
func call(t *testing.T, address string, f *TLS) (int64, error) {
	t.Helper()
	creds, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var who peer.Peer
	if _, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&who)); err != nil {
		return 0, err
	}
	info, ok := who.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		t.Fatal("the connection is not protected")
	}
	return info.State.PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestS1_ConnectionsAreProtectedOnBothSides(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("manager", 10)
	ours.issue("worker", 11)
	theirs.issue("worker", 12)
	address := serve(t, ours.flags("manager"))
	if serial, err := call(t, address, ours.flags("worker")); err != nil || serial != 10 {
		t.Fatalf("certificate %d, %v", serial, err)
	}
	mixed := theirs.flags("worker")
	mixed.ca = ours.flags("").ca
	for name, f := range map[string]*TLS{
		"a client without a certificate":   ours.flags(""),
		"a client of another authority":    mixed,
		"a client that trusts another":     theirs.flags("worker"),
		"a client that does not speak TLS": {},
	} {
		if _, err := call(t, address, f); err == nil {
			t.Errorf("%s was served", name)
		}
	}
}

func TestS1_ANewCertificateIsUsedWithoutARestart(t *testing.T) {
	a := newAuthority(t)
	a.issue("manager", 10)
	a.issue("worker", 11)
	address := serve(t, a.flags("manager"))
	if serial, err := call(t, address, a.flags("worker")); err != nil || serial != 10 {
		t.Fatalf("certificate %d, %v", serial, err)
	}
	a.issue("manager", 20)
	// The clock of a file system may be coarse.
	later := time.Now().Add(time.Second)
	for _, name := range []string{"manager.crt", "manager.key"} {
		if err := os.Chtimes(filepath.Join(a.dir, name), later, later); err != nil {
			t.Fatal(err)
		}
	}
	if serial, err := call(t, address, a.flags("worker")); err != nil || serial != 20 {
		t.Fatalf("certificate %d, %v", serial, err)
	}
}

func TestTLSFlagsThatDoNotFitTogetherAreNamed(t *testing.T) {
	a := newAuthority(t)
	a.issue("manager", 10)
	a.issue("other", 11)
	good := a.flags("manager")
	notPEM := filepath.Join(a.dir, "text")
	if err := os.WriteFile(notPEM, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		flags TLS
		want  string
	}{
		"no key":         {TLS{cert: good.cert, ca: good.ca}, "--tls-key"},
		"no certificate": {TLS{ca: good.ca}, "--tls-cert"},
		"no CA":          {TLS{cert: good.cert, key: good.key}, "--tls-ca"},
		"no such file":   {TLS{cert: good.cert, key: good.key, ca: "/nonexistent"}, "/nonexistent"},
		"CA is text":     {TLS{cert: good.cert, key: good.key, ca: notPEM}, "holds no certificate"},
		"another's key":  {TLS{cert: good.cert, key: a.flags("other").key, ca: good.ca}, "private key"},
	} {
		if _, err := tc.flags.Server(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestS1_CheckListenKnowsLoopback(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "host:1": false,
	} {
		if err := CheckListen(address, false, false); (err == nil) != loopback {
			t.Errorf("%s: %v", address, err)
		}
		if err := CheckListen(address, true, false); err != nil {
			t.Errorf("%s with TLS: %v", address, err)
		}
		if err := CheckListen(address, false, true); err != nil {
			t.Errorf("%s with --insecure: %v", address, err)
		}
	}
	if err := CheckListen("nonsense", true, true); err == nil {
		t.Error("nonsense was accepted")
	}
}

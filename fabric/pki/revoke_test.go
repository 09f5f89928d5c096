// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/fabric/identity"
)

func issue(t *testing.T, a *Authority, name string) *x509.Certificate {
	t.Helper()
	out, err := a.Issue(Request{Identity: identity.Identity{Role: identity.Worker, Name: name}, Validity: time.Minute * 30, Replace: true})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := Certificates(out.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func revokedIn(t *testing.T, dir string) *Revoked {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRevoked(raw)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestS3_ARevokedCertificateIsKnownAndItsSuccessorIsNot(t *testing.T) {
	dir := t.TempDir()
	a, err := Init(dir, "site", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lost, other := issue(t, a, "host7"), issue(t, a, "host8")
	for i := range 2 { // a second time changes nothing
		if n, err := a.Revoke(lost); err != nil || n != 1 {
			t.Fatalf("round %d: %d revoked, %v", i, n, err)
		}
	}
	successor := issue(t, a, "host7")
	r := revokedIn(t, dir)
	if err := r.Check(lost); err == nil || !strings.Contains(err.Error(), "worker host7") || r.Check(other) != nil || r.Check(successor) != nil {
		t.Errorf("%v, %v, %v", err, r.Check(other), r.Check(successor))
	}
	// The authority is what it was, and goes on.
	if a, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Revoke(other); err != nil || n != 2 {
		t.Errorf("%d revoked, %v", n, err)
	}
	if r := revokedIn(t, dir); r.Len() != 2 || r.Check(lost) == nil || r.Check(other) == nil || r.Check(successor) != nil {
		t.Errorf("%d are revoked", r.Len())
	}
	if err := (*Revoked)(nil).Check(lost); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

func TestRevokeIsForTheAuthoritysOwnCertificates(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	a, err := Init(one, "site", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Init(two, "other", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	theirs := issue(t, b, "host7")
	if _, err := a.Revoke(theirs); err == nil || !strings.Contains(err.Error(), "not by this authority") {
		t.Errorf("a certificate of another: %v", err)
	}
	if _, err := a.Revoke(a.cert); err == nil || !strings.Contains(err.Error(), "its own certificate") {
		t.Errorf("its own: %v", err)
	}
	// A list that an authority of the file did not sign revokes nothing, and is not passed over in silence.
	if _, err := b.Revoke(theirs); err != nil {
		t.Fatal(err)
	}
	mine, err := os.ReadFile(filepath.Join(one, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(two, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	list := foreign[strings.Index(string(foreign), "-----BEGIN X509 CRL"):]
	if _, err := ParseRevoked(append(mine, list...)); err == nil || !strings.Contains(err.Error(), `by "other"`) {
		t.Errorf("a list of a stranger: %v", err)
	}
	// Two authorities, each with a list, in one file: each speaks for its own.
	if r, err := ParseRevoked(append(mine, foreign...)); err != nil || r.Check(theirs) == nil || r.Check(issue(t, a, "host7")) != nil {
		t.Errorf("two authorities: %v", err)
	}
}

func FuzzParseRevoked(f *testing.F) {
	f.Add([]byte("-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := ParseRevoked(raw); err == nil && r == nil {
			t.Fatal("neither a list nor an error")
		}
	})
}

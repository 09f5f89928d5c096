// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/fabric/identity"
)

const day = 24 * time.Hour

func TestS3_AnAuthorityIssuesCertificatesThatItsOwnCertificateProves(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := Init(dir, "site", 10*day); err != nil {
		t.Fatal(err)
	}
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, CertFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(raw) {
		t.Fatal("no certificate of the authority")
	}
	for _, role := range identity.Roles() {
		id := identity.Identity{Role: role, Name: "host7"}
		issued, err := a.Issue(Request{Identity: id, Validity: day, Hosts: []string{"host7.example", "10.0.0.7", "fd00::7"}})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(issued.Cert, issued.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := identity.OfCertificate(pair.Leaf); err != nil || got != id {
			t.Errorf("the certificate is that of %v, %v", got, err)
		}
		for usage, may := range map[x509.ExtKeyUsage]bool{
			x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: role != identity.Operator,
		} {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
			if (err == nil) != may {
				t.Errorf("%s, usage %d: %v", role, usage, err)
			}
		}
		for _, host := range []string{"host7.example", "10.0.0.7", "fd00::7"} {
			if err := pair.Leaf.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		if left := time.Until(issued.NotAfter); left > day || left < day-time.Minute || issued.NotAfter.After(pair.Leaf.NotAfter.Add(time.Second)) {
			t.Errorf("valid until %s, the certificate until %s", issued.NotAfter, pair.Leaf.NotAfter)
		}
		if err := identity.CheckServer([]*x509.Certificate{pair.Leaf}, roots, identity.Manager); (err == nil) != (role == identity.Manager) {
			t.Errorf("as a manager, %s: %v", role, err)
		}
		if err := identity.CheckServer([]*x509.Certificate{pair.Leaf}, x509.NewCertPool(), role); err == nil {
			t.Errorf("%s is trusted without an authority", role)
		}
	}
}

func TestS3_KeysCanBeReadByTheirOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	a, err := Init(dir, "site", day)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := a.Issue(Request{Identity: identity.Identity{Role: identity.Worker, Name: "w"}, Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]fs.FileMode{
		dir: fs.ModeDir | 0o700, filepath.Join(dir, KeyFile): 0o600, issued.Key: 0o600, filepath.Join(dir, CertFile): 0o644, issued.Cert: 0o644,
	} {
		info, err := os.Stat(file)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", file, info.Mode(), err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.*.*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestS3_WhatIsThereIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	a, err := Init(dir, "site", day)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, "site", day); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second authority: %v", err)
	}
	if again, err := os.ReadFile(filepath.Join(dir, KeyFile)); err != nil || !bytes.Equal(key, again) {
		t.Errorf("the key is another, %v", err)
	}
	r := Request{Identity: identity.Identity{Role: identity.Worker, Name: "w"}, Validity: time.Hour}
	first, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(r); err == nil || !strings.Contains(err.Error(), first.Key) {
		t.Errorf("a second certificate: %v", err)
	}
	r.Replace = true
	if _, err := a.Issue(r); err != nil {
		t.Error(err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	a, err := Init(dir, "site", day)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(other, "other", day); err != nil {
		t.Fatal(err)
	}
	r := Request{Identity: identity.Identity{Role: identity.Worker, Name: "w"}, Validity: 2 * day}
	if _, err := a.Issue(r); err == nil || !strings.Contains(err.Error(), "but the authority only until") {
		t.Errorf("beyond the authority: %v", err)
	}
	r.Validity = 0
	if _, err := a.Issue(r); err == nil || !strings.Contains(err.Error(), "validity") {
		t.Errorf("no validity: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), CertFile) {
		t.Errorf("an empty directory: %v", err)
	}
	if err := os.Rename(filepath.Join(other, KeyFile), filepath.Join(dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("another's key: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "no private key") {
		t.Errorf("a key of text: %v", err)
	}
}

func FuzzParseCertificates(f *testing.F) {
	dir := f.TempDir()
	if _, err := Init(dir, "site", day); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, CertFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		certs, err := parseCertificates(raw)
		if (err == nil) != (len(certs) > 0) {
			t.Errorf("%d certificates, %v", len(certs), err)
		}
	})
}

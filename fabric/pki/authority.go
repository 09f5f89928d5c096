// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ernic-dev/ernic/fabric/identity"
)

// Names of the files of an authority.
const (
	CertFile = "ca.crt"
	KeyFile  = "ca.key"
)

// backdate allows for clocks that are behind.
const backdate = 5 * time.Minute

// Authority signs certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Init makes an authority in a directory, which is made if it is not there. One that is there already is not touched.
func Init(dir, name string, validity time.Duration) (*Authority, error) {
	if err := checkValidity(validity); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	for _, file := range []string{CertFile, KeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("authority: %s is there already", filepath.Join(dir, file))
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdate), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, key: key}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		return nil, err
	}
	return a, writePair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile), raw, key, false)
}

// Open opens the authority of a directory.
func Open(dir string) (*Authority, error) {
	certs, err := Certificates(filepath.Join(dir, CertFile))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	key, err := readKey(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	for _, c := range certs {
		if public, ok := c.PublicKey.(*ecdsa.PublicKey); ok && public.Equal(key.Public()) {
			if !c.IsCA {
				return nil, fmt.Errorf("authority: %s is no certificate of an authority", filepath.Join(dir, CertFile))
			}
			return &Authority{dir: dir, cert: c, key: key}, nil
		}
	}
	return nil, fmt.Errorf("authority: %s and %s do not belong together", filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
}

// Request is what a certificate is to say.
type Request struct {
	Identity identity.Identity
	// Hosts are DNS names and IP addresses for programs that compare them. Those of the mesh do not.
	Hosts    []string
	Validity time.Duration
	// Replace lets the files of an earlier certificate of the same identity be replaced.
	Replace bool
}

// Issued names the files of a certificate.
type Issued struct {
	Cert, Key string
	NotAfter  time.Time
}

// Issue makes a key and signs a certificate for it; both are written beside the authority.
func (a *Authority) Issue(r Request) (Issued, error) {
	if err := checkValidity(r.Validity); err != nil {
		return Issued{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Issued{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: r.Identity.String()}, URIs: []*url.URL{r.Identity.URI()},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(r.Validity), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages(r.Identity.Role),
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		return Issued{}, fmt.Errorf("certificate of %s: valid until %s, but the authority only until %s", r.Identity,
			template.NotAfter.Format(time.DateOnly), a.cert.NotAfter.Format(time.DateOnly))
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Issued{}, fmt.Errorf("certificate of %s: %w", r.Identity, err)
	}
	base := filepath.Join(a.dir, fmt.Sprintf("%s-%s", r.Identity.Role, r.Identity.Name))
	out := Issued{Cert: base + ".crt", Key: base + ".key", NotAfter: template.NotAfter}
	return out, writePair(out.Cert, out.Key, raw, key, r.Replace)
}

// usages are the sides of a connection on which a role stands.
func usages(r identity.Role) []x509.ExtKeyUsage {
	switch r {
	case identity.Operator:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	case identity.Manager, identity.Worker:
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

func checkValidity(d time.Duration) error {
	if d < time.Minute || d > 100*365*24*time.Hour {
		return fmt.Errorf("a validity of %s is not between a minute and a hundred years", d)
	}
	return nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

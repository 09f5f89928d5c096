// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// crlBlock is the PEM type of a list of revoked certificates. It stands in the file of the authority, which everybody has.
const crlBlock = "X509 CRL"

// listValidity is how long a list says that it is valid. Nobody waits for the next one: what counts is the file.
const listValidity = 100 * 365 * 24 * time.Hour

// Revoked knows the certificates that their authority has taken back.
type Revoked struct{ serials map[string]struct{} }

// serialOf names a certificate by its issuer and serial number.
func serialOf(issuer []byte, serial *big.Int) string {
	return string(issuer) + "\x00" + serial.String()
}

// ParseRevoked reads the lists in a file of authorities. Each must be signed by an authority in it.
func ParseRevoked(raw []byte) (*Revoked, error) {
	r := &Revoked{serials: make(map[string]struct{})}
	certs, lists, err := parseAuthorities(raw)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		signed := false
		for _, c := range certs {
			signed = signed || bytes.Equal(c.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(c) == nil
		}
		if !signed {
			return nil, fmt.Errorf("a list of revoked certificates by %q, which is not signed by an authority in the file", list.Issuer.CommonName)
		}
		for _, e := range list.RevokedCertificateEntries {
			r.serials[serialOf(list.RawIssuer, e.SerialNumber)] = struct{}{}
		}
	}
	return r, nil
}

// Len returns how many certificates are revoked.
func (r *Revoked) Len() int { return len(r.serials) }

// Check returns an error if a certificate is revoked.
func (r *Revoked) Check(c *x509.Certificate) error {
	if r == nil {
		return nil
	}
	if _, found := r.serials[serialOf(c.RawIssuer, c.SerialNumber)]; found {
		return fmt.Errorf("the certificate of %q with the serial number %s is revoked", c.Subject.CommonName, c.SerialNumber.Text(16))
	}
	return nil
}

// parseAuthorities returns the certificates and the lists in a file of authorities.
func parseAuthorities(raw []byte) (certs []*x509.Certificate, lists []*x509.RevocationList, err error) {
	if certs, err = parseCertificates(raw); err != nil {
		return nil, nil, err
	}
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			return certs, lists, nil
		}
		if block.Type != crlBlock {
			continue
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		lists = append(lists, list)
	}
}

// Revoke takes certificates of the authority back: it writes a list of them into its file. Those who have a copy of that
// need the new one. It returns how many are on the list now.
func (a *Authority) Revoke(certs ...*x509.Certificate) (int, error) {
	path := filepath.Join(a.dir, CertFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("authority: %w", err)
	}
	authorities, lists, err := parseAuthorities(raw)
	if err != nil {
		return 0, fmt.Errorf("authority: %s: %w", path, err)
	}
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-backdate), NextUpdate: time.Now().Add(listValidity)}
	blocks := make([]*pem.Block, 0, len(authorities)+len(lists)+1)
	for _, c := range authorities {
		blocks = append(blocks, &pem.Block{Type: certBlock, Bytes: c.Raw})
	}
	known := make(map[string]struct{})
	for _, list := range lists {
		if list.CheckSignatureFrom(a.cert) != nil {
			blocks = append(blocks, &pem.Block{Type: crlBlock, Bytes: list.Raw})
			continue
		}
		template.Number = new(big.Int).Add(list.Number, big.NewInt(1))
		for _, e := range list.RevokedCertificateEntries {
			known[e.SerialNumber.String()] = struct{}{}
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, e)
		}
	}
	for _, c := range certs {
		switch {
		case c.CheckSignatureFrom(a.cert) != nil:
			return 0, fmt.Errorf("the certificate of %q is not by this authority", c.Subject.CommonName)
		case c.Equal(a.cert):
			return 0, errors.New("an authority cannot take its own certificate back: make a new authority")
		}
		if _, already := known[c.SerialNumber.String()]; already {
			continue
		}
		known[c.SerialNumber.String()] = struct{}{}
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: c.SerialNumber, RevocationTime: time.Now(),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.cert, a.key)
	if err != nil {
		return 0, fmt.Errorf("authority: %w", err)
	}
	blocks = append(blocks, &pem.Block{Type: crlBlock, Bytes: der})
	return len(template.RevokedCertificateEntries), writeFile(path, 0o644, blocks...)
}

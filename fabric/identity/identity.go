// SPDX-License-Identifier: Apache-2.0

// Package identity says who is at the other end of a connection, and what that one may do.
//
// A certificate of the mesh carries one URI as subject alternative name:
//
//	ernic://worker/host7
//	        |      `- name, which the site chooses and which tells holders of one role apart
//	        `- role: manager, worker or operator
//
// It says who, not where: the holder may be reached at any address. A role that is not there is not given: a certificate
// without such a URI, or with two, is nobody's.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc/credentials"
)

// Scheme is that of the URI in a certificate.
const Scheme = "ernic"

// maxName is the longest name, in bytes.
const maxName = 128

// Role is what the holder of a certificate is in the mesh.
type Role string

// Roles.
const (
	Manager  Role = "manager"  // node 0
	Worker   Role = "worker"   // serves a guest; speaks to the manager and to other workers
	Operator Role = "operator" // asks and changes: ernictl
)

// Roles returns all roles.
func Roles() []Role { return []Role{Manager, Worker, Operator} }

// Identity is the holder of a certificate.
type Identity struct {
	Role Role
	Name string
}

// New returns an identity, or says what is wrong with the role or the name.
func New(role, name string) (Identity, error) {
	id := Identity{Role(role), name}
	known := false
	for _, r := range Roles() {
		known = known || r == id.Role
	}
	if !known {
		return Identity{}, fmt.Errorf("%q is no role: manager, worker or operator", role)
	}
	if name == "" || len(name) > maxName {
		return Identity{}, fmt.Errorf("a name of %d bytes, want 1 to %d", len(name), maxName)
	}
	for _, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("-._@", c) {
			return Identity{}, fmt.Errorf("name %q: only letters, digits and -._@ may stand in it", name)
		}
	}
	return id, nil
}

// String returns role and name, such as "worker host7", or "nobody" for the zero Identity.
func (i Identity) String() string {
	if i == (Identity{}) {
		return "nobody"
	}
	return string(i.Role) + " " + i.Name
}

// URI returns what stands in the certificate.
func (i Identity) URI() *url.URL {
	return &url.URL{Scheme: Scheme, Host: string(i.Role), Path: "/" + i.Name}
}

// OfCertificate returns whose certificate c is.
func OfCertificate(c *x509.Certificate) (Identity, error) {
	var found *url.URL
	for _, u := range c.URIs {
		if u.Scheme != Scheme {
			continue
		}
		if found != nil {
			return Identity{}, fmt.Errorf("the certificate of %q names two identities, %s and %s", c.Subject.CommonName, found, u)
		}
		found = u
	}
	if found == nil {
		return Identity{}, fmt.Errorf("the certificate of %q names no role (an %s:// URI)", c.Subject.CommonName, Scheme)
	}
	id, err := New(found.Host, strings.TrimPrefix(found.Path, "/"))
	if err == nil && *id.URI() != *found {
		err = errors.New("it is not role and name alone")
	}
	if err != nil {
		return Identity{}, fmt.Errorf("the certificate of %q names %s: %w", c.Subject.CommonName, found, err)
	}
	return id, nil
}

// OfConnection returns who is at the other end of a connection. protected is false for one in the clear, which can be
// anybody's.
func OfConnection(auth credentials.AuthInfo) (id Identity, protected bool, err error) {
	tls, ok := auth.(credentials.TLSInfo)
	if !ok {
		return Identity{}, false, nil
	}
	if len(tls.State.PeerCertificates) == 0 {
		return Identity{}, true, errors.New("the other side has no certificate")
	}
	id, err = OfCertificate(tls.State.PeerCertificates[0])
	return id, true, err
}

// CheckServer is the check of a client: the certificates that a server sent must lead to one of roots and be of one of
// the roles. Where the server is reached does not matter.
func CheckServer(sent []*x509.Certificate, roots *x509.CertPool, roles ...Role) error {
	if len(sent) == 0 {
		return errors.New("the server has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range sent[1:] {
		between.AddCert(c)
	}
	_, err := sent[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return err
	}
	id, err := OfCertificate(sent[0])
	if err != nil {
		return err
	}
	for _, r := range roles {
		if id.Role == r {
			return nil
		}
	}
	return fmt.Errorf("the certificate there is that of %s, not of a %s", id, joinRoles(roles))
}

func joinRoles(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, " or ")
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
)

// TLS holds the flags that protect connections.
type TLS struct {
	cert, key, ca string

	own   identity.Role
	files pemFiles // shared by all credentials
}

// AddFlags adds --tls-cert, --tls-key and --tls-ca to a program of a role.
func (t *TLS) AddFlags(fs *pflag.FlagSet, own identity.Role) {
	t.own = own
	fs.StringVar(&t.cert, "tls-cert", "", "PEM `file` with the certificate of this program")
	fs.StringVar(&t.key, "tls-key", "", "PEM `file` with the key of the certificate")
	fs.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the certificates that sign those of the others, and lists of those that are revoked")
}

// OnReload names a function that is told when the files have changed, with an error if they are of no use: then those
// from before stay in use, and it is told once.
func (t *TLS) OnReload(f func(error)) { t.files.told = f }

// Enabled reports whether any of the flags was given.
func (t *TLS) Enabled() bool { return t.cert != "" || t.key != "" || t.ca != "" }

// LogReload returns a function for OnReload that writes to a log.
func LogReload(log zerolog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.Error().Err(err).Msg("the changed certificate files are of no use; those from before stay in use")
			return
		}
		log.Info().Msg("certificates read again")
	}
}

func (t *TLS) check(needCert bool) error {
	switch {
	case (t.cert == "") != (t.key == ""):
		return Usagef("--tls-cert and --tls-key belong together")
	case t.ca == "":
		return Usagef("--tls-ca is missing: the certificates of the others cannot be checked")
	case needCert && t.cert == "":
		return Usagef("--tls-cert and --tls-key are missing")
	}
	return nil
}

// Server returns the credentials of a listener: TLS 1.3, and only clients with a certificate that the CA signed. The
// files are read again when they change. Without flags connections are plain.
func (t *TLS) Server() (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil
	}
	c, err := t.server("h2")
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// HTTPS is Server for a web server.
func (t *TLS) HTTPS() (*tls.Config, error) { return t.server("http/1.1") }

func (t *TLS) server(protocol string) (*tls.Config, error) {
	if err := t.check(true); err != nil {
		return nil, err
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, authorities, err := t.files.load()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{*cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    authorities.pool,
				NextProtos:   []string{protocol},
				VerifyConnection: func(state tls.ConnectionState) error {
					return authorities.revoked.Check(state.PeerCertificates[0])
				},
			}, nil
		},
	}, nil
}

// load reads the files and checks that the certificate, if there is one, is of the program's role: a mistake that every
// peer would complain about is better told at the start.
func (t *TLS) load() error {
	t.files.cert, t.files.key, t.files.ca = t.cert, t.key, t.ca
	cert, _, err := t.files.load()
	if err != nil || cert == nil {
		return err
	}
	id, err := identity.OfCertificate(cert.Leaf)
	if err != nil {
		return fmt.Errorf("TLS: %s: %w", t.cert, err)
	}
	if id.Role != t.own {
		return fmt.Errorf("TLS: %s is the certificate of %s, and here one of the role %s is needed", t.cert, id, t.own)
	}
	return nil
}

// Client returns the credentials of an outgoing connection, to a server whose certificate the CA signed for one of the
// roles. Where it is reached does not matter: a certificate says who its holder is. The files are read again when they
// change. Without flags connections are plain.
func (t *TLS) Client(server ...identity.Role) (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil
	}
	if err := t.check(false); err != nil {
		return nil, err
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		// The check of the name of the host is replaced by that of the role, not left out.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection checks the chain and the role
		VerifyConnection: func(state tls.ConnectionState) error {
			_, authorities, err := t.files.load()
			if err != nil {
				return err
			}
			if err := identity.CheckServer(state.PeerCertificates, authorities.pool, server...); err != nil {
				return err
			}
			return authorities.revoked.Check(state.PeerCertificates[0])
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _, err := t.files.load()
			if cert == nil && err == nil {
				cert = &tls.Certificate{}
			}
			return cert, err
		},
	}), nil
}

// pemFiles reads files once per change.
type pemFiles struct {
	cert, key, ca string
	told          func(error)

	mu      sync.Mutex // guards what follows
	seen    [3]os.FileInfo
	pair    *tls.Certificate
	signers *authorities // nil before they were read first
	failed  string       // what was told last of files that are of no use
}

// authorities are those who sign certificates, and what they have taken back.
type authorities struct {
	pool    *x509.CertPool
	revoked *pki.Revoked
}

// load returns the certificate, nil if there is none, and the authorities. When the files change to something of no
// use, such as a certificate whose key is not written yet, what was there before stays.
func (f *pemFiles) load() (*tls.Certificate, *authorities, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, err := f.stat()
	if err == nil {
		if f.signers != nil && sameFiles(f.seen, seen) {
			return f.pair, f.signers, nil
		}
		var pair *tls.Certificate
		var ca *authorities
		if pair, ca, err = f.read(); err == nil {
			if f.signers != nil {
				f.tell(nil)
			}
			f.seen, f.pair, f.signers, f.failed = seen, pair, ca, ""
			return pair, ca, nil
		}
	}
	if f.signers == nil {
		return nil, nil, err
	}
	if f.failed != err.Error() {
		f.failed = err.Error()
		f.tell(err)
	}
	return f.pair, f.signers, nil
}

func (f *pemFiles) tell(err error) {
	if f.told != nil {
		f.told(err)
	}
}

func (f *pemFiles) stat() (seen [3]os.FileInfo, err error) {
	for i, file := range []string{f.cert, f.key, f.ca} {
		if file == "" {
			continue
		}
		if seen[i], err = os.Stat(file); err != nil {
			return seen, fmt.Errorf("TLS: %w", err)
		}
	}
	return seen, nil
}

func sameFiles(a, b [3]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
			continue
		}
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

func (f *pemFiles) read() (*tls.Certificate, *authorities, error) {
	raw, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	ca := &authorities{pool: x509.NewCertPool()}
	if !ca.pool.AppendCertsFromPEM(raw) {
		return nil, nil, fmt.Errorf("TLS: %s holds no certificate", f.ca)
	}
	if ca.revoked, err = pki.ParseRevoked(raw); err != nil {
		return nil, nil, fmt.Errorf("TLS: %s: %w", f.ca, err)
	}
	if f.cert == "" {
		return nil, ca, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: %s and %s: %w", f.cert, f.key, err)
	}
	return &pair, ca, nil
}

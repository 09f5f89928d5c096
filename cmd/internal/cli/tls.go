// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS holds the flags that protect connections.
type TLS struct{ cert, key, ca string }

// AddFlags adds --tls-cert, --tls-key and --tls-ca.
func (t *TLS) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&t.cert, "tls-cert", "", "PEM `file` with the certificate of this program")
	fs.StringVar(&t.key, "tls-key", "", "PEM `file` with the key of the certificate")
	fs.StringVar(&t.ca, "tls-ca", "", "PEM `file` with the certificates that sign those of the others")
}

// Enabled reports whether any of the flags was given.
func (t *TLS) Enabled() bool { return t.cert != "" || t.key != "" || t.ca != "" }

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
	if err := t.check(true); err != nil {
		return nil, err
	}
	files := &pemFiles{names: *t}
	if _, _, err := files.load(); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool, err := files.load()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{*cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    pool,
				NextProtos:   []string{"h2"},
			}, nil
		},
	}), nil
}

// Client returns the credentials of an outgoing connection. Its certificate is read again when it changes. Without flags
// connections are plain.
func (t *TLS) Client() (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil
	}
	if err := t.check(false); err != nil {
		return nil, err
	}
	files := &pemFiles{names: *t}
	_, pool, err := files.load()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _, err := files.load()
			if cert == nil && err == nil {
				cert = &tls.Certificate{}
			}
			return cert, err
		},
	}), nil
}

// pemFiles reads files once per change.
type pemFiles struct {
	names TLS
	mu    sync.Mutex // guards what follows
	stamp [3]time.Time
	cert  *tls.Certificate
	pool  *x509.CertPool
}

// load returns the certificate, nil if there is none, and the pool of the CA.
func (f *pemFiles) load() (*tls.Certificate, *x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var stamp [3]time.Time
	for i, file := range []string{f.names.cert, f.names.key, f.names.ca} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	if f.pool != nil && stamp == f.stamp {
		return f.cert, f.pool, nil
	}
	raw, err := os.ReadFile(f.names.ca)
	if err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, nil, fmt.Errorf("TLS: %s holds no certificate", f.names.ca)
	}
	var cert *tls.Certificate
	if f.names.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.names.cert, f.names.key)
		if err != nil {
			return nil, nil, fmt.Errorf("TLS: %s and %s: %w", f.names.cert, f.names.key, err)
		}
		cert = &pair
	}
	f.stamp, f.cert, f.pool = stamp, cert, pool
	return cert, pool, nil
}

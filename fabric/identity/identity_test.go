// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
)

func certificate(t *testing.T, uris ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestACertificateIsItsHoldersOrNobodys(t *testing.T) {
	for _, tc := range []struct {
		uris []string
		want string // the identity, or what the error says
	}{
		{[]string{"ernic://worker/host7"}, "worker host7"},
		{[]string{"https://example.org/x", "ernic://operator/alice@example.org"}, "operator alice@example.org"},
		{nil, "names no role"},
		{[]string{"spiffe://worker/host7"}, "names no role"},
		{[]string{"ernic://worker/a", "ernic://manager/a"}, "two identities"},
		{[]string{"ernic://root/a"}, "no role"},
		{[]string{"ernic://worker/"}, "0 bytes"},
		{[]string{"ernic://worker"}, "0 bytes"},
		{[]string{"ernic://worker/a/b"}, "only letters"},
		{[]string{"ernic://worker/a%0ab"}, "only letters"},
		{[]string{"ernic://worker/a?role=manager"}, "role and name alone"},
		{[]string{"ernic://manager@worker/a"}, "role and name alone"},
		{[]string{"ernic://worker:1/a"}, "no role"},
		{[]string{"ernic:worker"}, "no role"},
		{[]string{"ernic://worker/" + strings.Repeat("a", 129)}, "129 bytes"},
	} {
		id, err := OfCertificate(certificate(t, tc.uris...))
		got := id.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) || (err == nil) != (got == tc.want) {
			t.Errorf("%v: %s, want %s", tc.uris, got, tc.want)
		}
	}
}

func FuzzOfCertificate(f *testing.F) {
	for _, s := range []string{"ernic://worker/host7", "ernic://manager/a/b", "ernic:x", "ernic://worker/%41", "https://x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		id, err := OfCertificate(&x509.Certificate{URIs: []*url.URL{u}})
		if err == nil && id.URI().String() != s {
			t.Errorf("%q is taken for %s", s, id)
		}
	})
}

func TestOnlyAProtectedConnectionHasAnIdentity(t *testing.T) {
	if id, protected, err := OfConnection(nil); protected || err != nil || id != (Identity{}) {
		t.Errorf("in the clear: %v, %v, %v", id, protected, err)
	}
	if _, protected, err := OfConnection(credentials.TLSInfo{}); !protected || err == nil {
		t.Errorf("without a certificate: %v, %v", protected, err)
	}
	info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, "ernic://worker/a")}}}
	if id, protected, err := OfConnection(info); !protected || err != nil || id != (Identity{Worker, "a"}) {
		t.Errorf("with one: %v, %v, %v", id, protected, err)
	}
}

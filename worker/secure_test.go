// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/worker/session"
)

type nodeList map[uint32]*session.Node

func (l nodeList) Node(id uint32) (*session.Node, bool) {
	n, ok := l[id]
	return n, ok
}

func holder(role identity.Role, name string) credentials.AuthInfo {
	cert := &x509.Certificate{URIs: []*url.URL{identity.Identity{Role: role, Name: name}.URI()}}
	return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
}

func TestS2_AConnectionSpeaksForTheNodesOfItsHolderOnly(t *testing.T) {
	mesh := nodeList{1: {ID: 1, Identity: "worker host1"}, 2: {ID: 2, Identity: "worker host2"}, 3: {ID: 3}}
	for _, tc := range []struct {
		name string
		node uint32
		auth credentials.AuthInfo
		want string // "": accepted
	}{
		{"the holder", 1, holder(identity.Worker, "host1"), ""},
		{"another worker", 1, holder(identity.Worker, "host2"), `node 1 belongs to "worker host1", and the certificate is that of worker host2`},
		{"the manager", 1, holder(identity.Manager, "host1"), "not of a worker"},
		{"an operator", 1, holder(identity.Operator, "host1"), "not of a worker"},
		{"a certificate of nobody", 1, credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}}, "names no role"},
		{"no certificate", 1, credentials.TLSInfo{}, "no certificate"},
		{"a connection in the clear", 1, nil, "in the clear"},
		{"a node that is not there", 9, holder(identity.Worker, "host1"), "not in the mesh"},
		{"a node that registered in the clear", 3, holder(identity.Worker, "host1"), `belongs to ""`},
	} {
		err := verify(mesh, tc.node, tc.auth)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestAWorkerThatDrainsEndsWithItsGuest(t *testing.T) {
	ended := 0
	end := func() { ended++ }
	t.Run("without a guest at once", func(t *testing.T) {
		var d drain
		d.running(end)
		d.begin()
		if ended != 1 || d.enter() == nil {
			t.Errorf("ended %d times", ended)
		}
	})
	t.Run("asked before it runs", func(t *testing.T) {
		var d drain
		ended = 0
		d.begin()
		d.running(end)
		if ended != 1 {
			t.Errorf("ended %d times", ended)
		}
	})
	t.Run("with a guest when it leaves", func(t *testing.T) {
		var d drain
		ended = 0
		d.running(end)
		if err := d.enter(); err != nil {
			t.Fatal(err)
		}
		d.begin()
		if ended != 0 || !d.wished() {
			t.Fatalf("ended %d times", ended)
		}
		d.leave()
		if ended != 1 {
			t.Errorf("ended %d times", ended)
		}
	})
	t.Run("a guest that leaves is no reason", func(t *testing.T) {
		var d drain
		ended = 0
		d.running(end)
		if err := d.enter(); err != nil {
			t.Fatal(err)
		}
		d.leave()
		if ended != 0 || d.enter() != nil {
			t.Errorf("ended %d times", ended)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ernic-dev/ernic/fabric"
	"github.com/ernic-dev/ernic/fabric/directory"
	"github.com/ernic-dev/ernic/fabric/wire"
)

// impostor is a hand-made peer: node 1, which says what it likes.
type impostor struct {
	t      *testing.T
	stream grpc.ClientStream
	seq    uint64
}

func (b *bed) dialRaw(t *testing.T, node uint32, first []byte) *impostor {
	t.Helper()
	n, _ := b.dir.Node(node)
	cc, err := grpc.NewClient("passthrough:///"+n.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	stream, err := cc.NewStream(context.Background(), &streamDesc, methodPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(rawBytes(first)); err != nil {
		t.Fatal(err)
	}
	return &impostor{t: t, stream: stream}
}

// answer returns the next message of the node, or why there is none.
func (i *impostor) answer() ([]byte, error) {
	m := newRxMessage()
	if err := i.stream.RecvMsg(m); err != nil {
		m.Release()
		return nil, err
	}
	return m.bytes, nil
}

// send sends a batch of one frame, spoiled.
func (i *impostor) send(f wire.Frame, spoil func([]byte)) {
	f.Seq = i.seq
	i.seq++
	msg := wire.AppendFrame(wire.AppendPrologue(nil), &f, true)
	wire.FinishPrologue(msg, 1, 1, 0)
	if spoil != nil {
		spoil(msg)
	}
	_ = i.stream.SendMsg(rawBytes(msg))
}

func goodHello() wire.Hello {
	return wire.Hello{Lanes: 1, VersionMin: 1, VersionMax: 1, Node: 1, To: 2, Instance: [16]byte{1, 1}, Epoch: 9}
}

// withImpostor makes node 2 and lets node 1 be played by the test.
func withImpostor(t *testing.T, r fabric.Receiver) (*bed, *Link) {
	b := newBed(t)
	l := b.node(2, r, nil)
	b.dir.Apply(directory.Change{Nodes: []directory.Node{{ID: 1, Address: "127.0.0.1:1", Instance: [16]byte{1, 1}}}})
	return b, l
}

func TestHostile_FramesWithAForeignSourceOrDestinationAreCounted(t *testing.T) {
	r, c := words()
	b, l := withImpostor(t, r)
	h := goodHello()
	i := b.dialRaw(t, 2, h.Append(nil))
	if _, err := i.answer(); err != nil {
		t.Fatal(err)
	}
	i.send(wire.Frame{Src: 7, Dst: 2, Payload: []byte("foreign source")}, nil)
	i.send(wire.Frame{Src: 1, Dst: 9, Payload: []byte("foreign destination")}, nil)
	i.send(wire.Frame{Src: 1, Dst: 2, Payload: []byte("honest")}, nil)
	expect(t, c, "honest")
	counted(t, l, 1, func(s *fabric.PeerStats) bool {
		return s.Drops[fabric.DropBadSource] == 1 && s.Drops[fabric.DropBadDestination] == 1 && s.RxFrames == 1 && s.Lanes == 1
	})
}

func TestP11_BadMessagesEndTheConnectionAndAreCounted(t *testing.T) {
	for name, spoil := range map[string]func(i *impostor){
		"magic":           func(i *impostor) { i.send(wire.Frame{Src: 1, Dst: 2}, func(b []byte) { b[0] = 0 }) },
		"length":          func(i *impostor) { i.send(wire.Frame{Src: 1, Dst: 2}, func(b []byte) { b[15]++ }) },
		"sequence":        func(i *impostor) { i.seq = 5; i.send(wire.Frame{Src: 1, Dst: 2}, nil) },
		"hello twice":     func(i *impostor) { h := goodHello(); _ = i.stream.SendMsg(rawBytes(h.Append(nil))) },
		"empty":           func(i *impostor) { _ = i.stream.SendMsg(rawBytes(nil)) },
		"larger than any": func(i *impostor) { _ = i.stream.SendMsg(rawBytes(make([]byte, wire.MaxMessage+1))) },
	} {
		t.Run(name, func(t *testing.T) {
			b, l := withImpostor(t, &station{receive: func(*fabric.Frame) { t.Error("a frame came through") }})
			h := goodHello()
			i := b.dialRaw(t, 2, h.Append(nil))
			if _, err := i.answer(); err != nil {
				t.Fatal(err)
			}
			spoil(i)
			await(t, "the end of the connection", func() bool { s := to(l, 1); return s.Lanes == 0 && s.LastError != "" })
			if s := to(l, 1); s.Drops[fabric.DropBadFrame] != 1 && name != "larger than any" {
				t.Errorf("drops %v, last error %q", s.Drops, s.LastError)
			}
		})
	}
}

func TestHostile_HellosAreRefusedWithTheReason(t *testing.T) {
	b, l := withImpostor(t, &station{})
	for want, spoil := range map[string]func(h *wire.Hello){
		"node 2 does not know node 77": func(h *wire.Hello) { h.Node = 77 },
		"node 2 does not know node 2":  func(h *wire.Hello) { h.Node = 2 },
		"node 1 means node 5":          func(h *wire.Hello) { h.To = 5 },
		"is instance 08":               func(h *wire.Hello) { h.Instance = [16]byte{8} },
		"speaks 7-9":                   func(h *wire.Hello) { h.VersionMin, h.VersionMax = 7, 9 },
		"node 1 dials node 2":          func(h *wire.Hello) { h.Purpose = wire.AskForLink },
		"lane 3 of 2":                  func(h *wire.Hello) { h.Lane, h.Lanes = 3, 2 },
	} {
		h := goodHello()
		spoil(&h)
		_, err := b.dialRaw(t, 2, h.Append(nil)).answer()
		if err == nil || !strings.Contains(status.Convert(err).Message(), want) {
			t.Errorf("%q: answered %v", want, err)
		}
	}
	if _, err := b.dialRaw(t, 2, []byte("GET / HTTP/1.1\r\n\r\n")).answer(); err == nil {
		t.Error("a hello of nonsense was taken")
	}
	await(t, "the counter", func() bool { return l.RefusedConnections() == 8 })
	if n := len(b.seen(Refused)); n != 8 {
		t.Errorf("%d refusals told", n)
	}
	if s := to(l, 1); s.Lanes != 0 {
		t.Errorf("%d lanes up", s.Lanes)
	}
}

// bother opens connections to the port of a node that never become a link.
func (b *bed) bother(t *testing.T, node uint32) (open []net.Conn) {
	t.Helper()
	n, _ := b.dir.Node(node)
	for i := range 300 {
		c, err := net.Dial("tcp", n.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, c)
		switch i % 4 {
		case 0:
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		case 1:
			junk := make([]byte, 2000)
			_, _ = rand.Read(junk)
			_, _ = c.Write(junk)
		case 2:
			_, _ = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) // and then nothing
		}
	}
	return open
}

// Garbage and silence on the port neither crash nor delay a real peer.
func TestHostile_GarbageAndSilenceOnThePort(t *testing.T) {
	b := newBed(t)
	r2, c2 := words()
	l1 := b.node(1, &station{}, nil)
	l2 := b.node(2, r2, func(o *Options) { o.Timing.Hello = time.Hour })
	b.bother(t, 2)
	say(t, l1, 2, 1, "real")
	expect(t, c2, "real")
	if n := l2.pending.Load(); n == 0 {
		t.Error("no connection without hello was open while a real peer came through")
	}
	// Who says no hello in time is cut off.
	l3 := b.node(3, &station{}, func(o *Options) { o.Timing.Hello = 200 * time.Millisecond })
	open := b.bother(t, 3)
	await(t, "the end of all that said no hello", func() bool { return l3.pending.Load() == 0 })
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		var err error
		for err == nil {
			_, err = c.Read(make([]byte, 1000))
		}
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			t.Fatal("a connection without hello is still open")
		}
		_ = c.Close()
	}
	await(t, "all lanes of the real link", func() bool { return to(l1, 2).Lanes == 4 })
	if n := len(b.seen(LinkDown)); n != 0 {
		t.Errorf("the real link was lost %d times", n)
	}
}

func TestHostile_PendingConnectionsAreBounded(t *testing.T) {
	b := newBed(t)
	l := b.node(2, &station{}, func(o *Options) { o.MaxPending = 5 })
	n, _ := b.dir.Node(2)
	for range 20 {
		c, err := net.Dial("tcp", n.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, "refusals", func() bool { return l.RefusedConnections() == 15 })
	if p := l.pending.Load(); p > 5 {
		t.Errorf("%d pending", p)
	}
}

// authority makes certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// issue makes the options of a node with a certificate that names it.
func (a *authority) issue(t *testing.T, name string) (server, client credentials.TransportCredentials) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool}),
		credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: a.pool})
}

func TestTLS_BindsANodeToItsCertificate(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	secure := func(a *authority, name string) func(*Options) {
		return func(o *Options) {
			o.Insecure = false
			o.ServerCredentials, o.ClientCredentials = a.issue(t, name)
			o.Verify = func(node uint32, auth credentials.AuthInfo) error {
				info, ok := auth.(credentials.TLSInfo)
				if !ok || len(info.State.PeerCertificates) == 0 {
					return fmt.Errorf("node %d has no certificate", node)
				}
				if cn := info.State.PeerCertificates[0].Subject.CommonName; cn != fmt.Sprint("node-", node) {
					return fmt.Errorf("node %d has the certificate of %s", node, cn)
				}
				return nil
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" works
	}{
		{"its own certificate", secure(ca, "node-2"), ""},
		{"the certificate of another node", secure(ca, "node-3"), "has the certificate of node-3"},
		{"a certificate of a stranger", secure(stranger, "node-2"), "authentication handshake failed"},
		{"no certificate", nil, "authentication handshake failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			var got atomic.Int32
			l1 := b.node(1, &station{}, secure(ca, "node-1"))
			b.node(2, &station{receive: func(f *fabric.Frame) { got.Add(1); f.Release() }}, c.change)
			say(t, l1, 2, 1, "x")
			if c.want == "" {
				await(t, "the frame", func() bool { return got.Load() == 1 })
				return
			}
			await(t, "the refusal", func() bool { return to(l1, 2).ConnectFailures > 0 })
			if s := to(l1, 2); !strings.Contains(s.LastError, c.want) || got.Load() != 0 {
				t.Errorf("%d frames came through, last error %q", got.Load(), s.LastError)
			}
		})
	}
}

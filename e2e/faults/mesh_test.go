// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

const (
	healthInterval = 400 * time.Millisecond
	managerPort    = "6320"
	gossipPort     = "6321"
	fabricPort     = "7000"
)

// mesh is a manager and workers, each on its host.
type mesh struct {
	t       *testing.T
	net     *network
	dir     string
	ca      *pki.Authority
	head    *host
	manager *process
	admin   ernicv1.ManagerServiceClient
	workers []*worker
}

// worker is a worker with the host it is on and the guest it serves.
type worker struct {
	mesh *mesh
	n    int
	host *host
	*process
	socket string
	addr   gid.GID // that the worker claims by configuration
	guest  *end
}

func newMesh(t *testing.T, workers int) *mesh {
	t.Helper()
	m := &mesh{t: t, net: newNetwork(t), dir: t.TempDir()}
	var err error
	if m.ca, err = pki.Init(filepath.Join(m.dir, "pki"), "faults", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.key(), []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	m.head = m.net.host("m", "10.97.0.1")
	m.startManager()
	m.admin = m.operator()
	for i := 1; i <= workers; i++ {
		w := &worker{
			mesh: m, n: i, host: m.net.host(fmt.Sprint("w", i), fmt.Sprint("10.97.0.", 10+i)),
			socket: filepath.Join(m.dir, fmt.Sprintf("w%d.sock", i)),
		}
		if w.addr, err = gid.Parse(fmt.Sprint("10.98.0.", i)); err != nil {
			t.Fatal(err)
		}
		m.workers = append(m.workers, w)
		w.start()
	}
	return m
}

func (m *mesh) key() string { return filepath.Join(m.dir, "gossip.key") }

// certificate returns the flags of the holder of a certificate.
func (m *mesh) certificate(role identity.Role, name string) []string {
	m.t.Helper()
	issued, err := m.ca.Issue(pki.Request{Identity: identity.Identity{Role: role, Name: name}, Validity: time.Minute * 30, Replace: true})
	if err != nil {
		m.t.Fatal(err)
	}
	return []string{"--tls-cert", issued.Cert, "--tls-key", issued.Key, "--tls-ca", filepath.Join(m.dir, "pki", pki.CertFile)}
}

func (m *mesh) startManager() {
	m.manager = m.head.start("ernic-manager", append(m.certificate(identity.Manager, "head"),
		"--listen", net.JoinHostPort(m.head.addr, managerPort), "--gossip-listen", net.JoinHostPort(m.head.addr, gossipPort),
		"--gossip-key", m.key(), "--state-dir", filepath.Join(m.dir, "state"), "--health-interval", healthInterval.String())...)
}

// operator returns a client with an operator's certificate.
func (m *mesh) operator() ernicv1.ManagerServiceClient {
	m.t.Helper()
	flags := m.certificate(identity.Operator, "tester")
	pair, err := tls.LoadX509KeyPair(flags[1], flags[3])
	if err != nil {
		m.t.Fatal(err)
	}
	certs, err := pki.Certificates(flags[5])
	if err != nil {
		m.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certs[0])
	creds := credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return identity.CheckServer(s.PeerCertificates, roots, identity.Manager)
		},
	})
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(m.head.addr, managerPort), grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return m.head.dial(ctx, address) }),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return ernicv1.NewManagerServiceClient(conn)
}

func (w *worker) start() {
	w.process = w.host.start("ernic-worker", append(w.mesh.certificate(identity.Worker, w.host.name),
		"--manager", net.JoinHostPort(w.mesh.head.addr, managerPort), "--name", w.host.name, "--socket", w.socket,
		"--listen", net.JoinHostPort(w.host.addr, fabricPort), "--gossip-listen", net.JoinHostPort(w.host.addr, gossipPort),
		"--gossip-key", w.mesh.key(), "--mac", fmt.Sprintf("02:fa:17:00:00:%02x", w.n), "--gid", w.addr.String(), "--metrics-listen", "off")...)
}

// nodes returns what the manager says of the nodes, by id; nil if it does not answer.
func (m *mesh) nodes() map[uint32]*ernicv1.Node {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	resp, err := m.admin.ListNodes(ctx, &ernicv1.ListNodesRequest{})
	if err != nil {
		return nil
	}
	nodes := make(map[uint32]*ernicv1.Node)
	for _, n := range resp.GetNodes() {
		nodes[n.GetNodeId()] = n
	}
	return nodes
}

// claim is who claims an address, and whether it counts.
type claim struct {
	node  uint32
	state ernicv1.ClaimState
}

// claims returns the claims to an address that somebody configured, in the order of nodes.
func (m *mesh) claims(g gid.GID) (found []claim) {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	resp, err := m.admin.ListGids(ctx, &ernicv1.ListGidsRequest{})
	if err != nil {
		return nil
	}
	for _, c := range resp.GetGids() {
		if gid.GID(c.GetGid()) == g {
			found = append(found, claim{c.GetNodeId(), c.GetState()})
		}
	}
	return found
}

func (m *mesh) state(id uint32) ernicv1.NodeState { return m.nodes()[id].GetState() }

// whole reports whether all workers are alive, under the ids given, and each owns its address.
func (m *mesh) whole(ids ...uint32) bool {
	nodes := m.nodes()
	for i, id := range ids {
		n := nodes[id]
		if n.GetState() != ernicv1.NodeState_NODE_STATE_ALIVE || n.GetName() != m.workers[i].host.name || n.GetReport() == nil ||
			n.GetIdentity() != "worker "+m.workers[i].host.name {
			return false
		}
		active := 0
		for _, c := range m.claims(m.workers[i].addr) {
			if c.state == ernicv1.ClaimState_CLAIM_STATE_CONFLICT || c.state == ernicv1.ClaimState_CLAIM_STATE_ACTIVE && c.node != id {
				return false
			}
			if c.node == id && c.state == ernicv1.ClaimState_CLAIM_STATE_ACTIVE {
				active++
			}
		}
		if active != 1 {
			return false
		}
	}
	return true
}

// descriptors returns how many descriptors each process has open.
func (m *mesh) descriptors() map[*process]int {
	open := map[*process]int{m.manager: m.manager.descriptors()}
	for _, w := range m.workers {
		open[w.process] = w.descriptors()
	}
	return open
}

// noneLeaked waits until no process has more descriptors open than before. Processes that were not there before may have as
// many as any other of their kind had.
func (m *mesh) noneLeaked(before map[*process]int) {
	m.t.Helper()
	most := 0
	for p, n := range before {
		if p != m.manager {
			most = max(most, n)
		}
	}
	for p, n := range m.descriptors() {
		limit, known := before[p]
		if !known {
			limit = most
		}
		now := n
		eventually(m.t, fmt.Sprintf("the close of descriptors of %s (%d, at most %d)", p.name, n, limit), func() bool {
			now = p.descriptors()
			return now <= limit
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/ernic-dev/ernic/e2e/verdict"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
	"github.com/ernic-dev/ernic/manager/history"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

const (
	healthInterval = 400 * time.Millisecond
	managerPort    = "6320"
	gossipPort     = "6321"
	fabricPort     = "7000"
	statusAddress  = "127.0.0.1:6322"
)

// mesh is a manager and workers, each on its host.
type mesh struct {
	t       *verdict.T
	net     *network
	dir     string
	ca      *pki.Authority
	head    *host
	manager *process
	admin   ernicv1.ManagerServiceClient
	workers []*worker
	most    map[string]holdings // that each process had when it had settled
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
	roams  bool // listens on all addresses of its host, and finds out by itself which one to tell
}

func newMesh(t *verdict.T, workers int) *mesh {
	t.Helper()
	m := &mesh{t: t, net: newNetwork(t), dir: t.TempDir(), most: make(map[string]holdings)}
	var err error
	if m.ca, err = pki.Init(filepath.Join(m.dir, "pki"), "faults", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.key(), []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	m.head = m.net.host("m", "10.97.0.1")
	m.startManager()
	m.admin = ernicv1.NewManagerServiceClient(m.call(m.head, net.JoinHostPort(m.head.addr, managerPort), identity.Manager))
	for i := 1; i <= workers; i++ {
		w := &worker{
			mesh: m, n: i, host: m.net.host(fmt.Sprint("w", i), fmt.Sprint("10.97.0.", 10+i)),
			socket: filepath.Join(m.dir, fmt.Sprintf("w%d.sock", i)), roams: i == workers,
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

// call connects to a process on a host with an operator's certificate.
func (m *mesh) call(h *host, address string, role identity.Role) *grpc.ClientConn {
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
			return identity.CheckServer(s.PeerCertificates, roots, role)
		},
	})
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return h.dial(ctx, address) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second},
		}))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	return conn
}

// record holds what the manager and all workers see of the mesh against a model until stop is called. The workers are
// asked from their own hosts, whatever becomes of the cables.
func (m *mesh) record() (stop func()) {
	r := history.Record(m.admin)
	var tasks sync.WaitGroup
	ctx, cancel := context.WithCancel(m.t.Context())
	var heard atomic.Int32
	for _, w := range m.workers {
		client := ernicv1.NewWorkerServiceClient(m.call(w.host, statusAddress, identity.Worker))
		tasks.Go(func() {
			for first := true; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				// A worker that is stopped does not answer, and one that is killed has nothing to say.
				one, done := context.WithTimeout(ctx, time.Second)
				if err := r.Worker(one, w.host.name, client); err == nil && first {
					first = false
					heard.Add(1)
				}
				done()
			}
		})
	}
	// From now on all hold what it takes to answer.
	m.t.Eventually("views of all workers", func() bool {
		_, _, lists := r.Seen()
		return int(heard.Load()) == len(m.workers) && lists > 0
	})
	return func() {
		m.t.Helper()
		cancel()
		tasks.Wait()
		if err := r.Stop(); err != nil {
			m.t.Errorf("the recorded history breaks promises: %v", err)
		}
		views, revisions, lists := r.Seen()
		m.t.Logf("history: %d views of %d revisions and %d lists of claims are as promised", views, revisions, lists)
		if !m.t.Failed() && (revisions < 8 || views < 100 || lists < 3) {
			m.t.Error("too little was recorded to prove anything")
		}
	}
}

func (w *worker) start() {
	host := w.host.addr
	if w.roams {
		host = "0.0.0.0"
	}
	w.process = w.host.start("ernic-worker", append(w.mesh.certificate(identity.Worker, w.host.name),
		"--manager", net.JoinHostPort(w.mesh.head.addr, managerPort), "--name", w.host.name, "--socket", w.socket,
		"--listen", net.JoinHostPort(host, fabricPort), "--gossip-listen", net.JoinHostPort(host, gossipPort),
		"--gossip-key", w.mesh.key(), "--mac", fmt.Sprintf("02:fa:17:00:00:%02x", w.n), "--gid", w.addr.String(), "--metrics-listen", "off", "--status", statusAddress,
		"--stats-file", w.statsFile(), "--stats-interval-ms", "100")...)
	w.stats = w.statsFile()
}

func (w *worker) statsFile() string { return w.socket + ".stats" }

// answer is how long one request to the manager may take. Whoever makes one has to make it again.
const answer = 5 * time.Second

// nodes returns what the manager says of the nodes, by id; nil if it does not answer.
func (m *mesh) nodes() map[uint32]*ernicv1.Node {
	ctx, cancel := context.WithTimeout(m.t.Context(), answer)
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

// known is nodes of a manager that has to answer.
func (m *mesh) known() (nodes map[uint32]*ernicv1.Node) {
	m.t.Helper()
	m.t.Eventually("an answer of the manager", func() bool {
		nodes = m.nodes()
		return nodes != nil
	})
	return nodes
}

// claim is who claims an address, and whether it counts.
type claim struct {
	node  uint32
	state ernicv1.ClaimState
}

// claims returns the claims to an address that somebody configured, in the order of nodes; false if the manager does not
// answer.
func (m *mesh) claims(g gid.GID) (found []claim, ok bool) {
	ctx, cancel := context.WithTimeout(m.t.Context(), answer)
	defer cancel()
	resp, err := m.admin.ListGids(ctx, &ernicv1.ListGidsRequest{})
	if err != nil {
		return nil, false
	}
	for _, c := range resp.GetGids() {
		if gid.GID(c.GetGid()) == g {
			found = append(found, claim{c.GetNodeId(), c.GetState()})
		}
	}
	return found, true
}

// claimed is claims of a manager that has to answer.
func (m *mesh) claimed(g gid.GID) (found []claim) {
	m.t.Helper()
	m.t.Eventually("an answer of the manager", func() (ok bool) {
		found, ok = m.claims(g)
		return ok
	})
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
		claims, _ := m.claims(m.workers[i].addr)
		for _, c := range claims {
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

// holdings is what a process holds open: descriptors, and goroutines if it tells.
type holdings struct{ descriptors, goroutines int }

func (m *mesh) processes() []*process {
	all := []*process{m.manager}
	for _, w := range m.workers {
		all = append(all, w.process)
	}
	return all
}

// settled returns what all processes hold when that no longer changes, by name.
func (m *mesh) settled() map[string]holdings {
	m.t.Helper()
	var last map[string]holdings
	m.t.Eventually("a standstill of descriptors and goroutines", func() bool {
		now := make(map[string]holdings)
		for _, p := range m.processes() {
			now[p.Name] = p.holdings()
		}
		same := maps.Equal(now, last)
		last = now
		time.Sleep(100 * time.Millisecond)
		return same
	})
	// What was not there for a moment, and no leak before, is none now.
	for name, h := range last {
		h.descriptors, h.goroutines = max(h.descriptors, m.most[name].descriptors), max(h.goroutines, m.most[name].goroutines)
		m.most[name] = h
	}
	return maps.Clone(m.most)
}

// noneLeaked waits until no process holds more than one of its name did before. The goroutine that looks after a peer stays
// with a node for as long as that is known, dead or alive.
func (m *mesh) noneLeaked(before map[string]holdings, newNodes int) {
	m.t.Helper()
	for _, p := range m.processes() {
		limit := before[p.Name]
		limit.goroutines += newNodes
		var now holdings
		ok := func() bool {
			now = p.holdings()
			return now.descriptors <= limit.descriptors && now.goroutines <= limit.goroutines
		}
		for begin := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
			// A connection whose other end went without a word is found dead by its pings.
			if time.Since(begin) > verdict.Patience {
				m.t.Fatalf("%s holds %+v, before the fault %+v", p.Name, now, limit)
			}
		}
	}
}

// relayed reports whether nodes say of all their links, of which they have some, that they go by way of the manager.
func (m *mesh) relayed(ids ...uint32) bool { return m.way(true, ids) }

// direct is the opposite of relayed.
func (m *mesh) direct(ids ...uint32) bool { return m.way(false, ids) }

func (m *mesh) way(relayed bool, ids []uint32) bool {
	nodes := m.nodes()
	for _, id := range ids {
		links := nodes[id].GetReport().GetLinkReports()
		if len(links) == 0 {
			return false
		}
		for _, l := range links {
			if l.GetState() != ernicv1.LinkState_LINK_STATE_UP || l.GetRelayed() != relayed {
				return false
			}
		}
	}
	return true
}

// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/device/ionic/driver/verbs"
	"github.com/ernic-dev/ernic/e2e/program"
	"github.com/ernic-dev/ernic/e2e/verdict"
	"github.com/ernic-dev/ernic/manager/etcd/etcdtest"
	"github.com/ernic-dev/ernic/manager/history"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/proto/gid"
)

// errContent is what a message that arrived with another content leads to.
var errContent = errors.New("a message arrived with another content")

// badCompletion is a completion that is not the one that was due.
type badCompletion struct{ wc verbs.WC }

func (e *badCompletion) Error() string { return fmt.Sprintf("completion %+v: %v", e.wc, e.wc.Status) }

// site is managers and workers.
type site struct {
	t        *verdict.T
	etcd     *etcdtest.Server  // nil if there is one manager, which has its state in a file
	dir      string            // of that state
	address  map[string]string // of the managers
	managers map[string]*program.Process
	last     *program.Process // the worker that was started last
}

// newSite starts two managers that share their state.
func newSite(t *verdict.T) *site {
	t.Helper()
	s := &site{t: t, etcd: etcdtest.Start(t), address: map[string]string{}, managers: map[string]*program.Process{}}
	for _, name := range []string{"a", "b"} {
		s.address[name] = etcdtest.Address(6320)
		s.start(name)
		t.Eventually(name+" to take part", func() bool { return s.knows(name) })
	}
	return s
}

// start starts a manager.
func (s *site) start(name string) {
	store := []string{"--state-dir", s.dir}
	if s.etcd != nil {
		store = []string{"--store", "etcd://" + s.etcd.Endpoint + "/test"}
	}
	s.managers[name] = start(s.t, "ernic-manager", append(store, "--name", name, "--listen", s.address[name], "--health-interval", "1s")...)
}

type managerInfo struct {
	Name, Address, Role string
	Asked               bool
}

// knows reports whether a manager answers and sees itself take part in the election.
func (s *site) knows(name string) bool {
	all, ok := ask[managerInfo](s.t, "managers", "--manager", s.address[name])
	return ok && slices.ContainsFunc(all, func(m managerInfo) bool { return m.Name == name && m.Asked && len(all) >= 1 && all[0].Role == "leader" })
}

// both are the addresses of the managers, as a list.
func (s *site) both() string {
	if s.address["b"] == "" {
		return s.address["a"]
	}
	return s.address["a"] + "," + s.address["b"]
}

func (s *site) worker(i int, more ...string) (socket string, addr gid.GID) {
	s.t.Helper()
	g, err := gid.Parse(fmt.Sprint("10.98.0.", i))
	s.t.Must(err)
	socket = filepath.Join(s.t.TempDir(), "w.sock")
	w := start(s.t, "ernic-worker", append([]string{
		"--manager", s.both(), "--name", fmt.Sprint("w", i), "--socket", socket,
		"--mac", fmt.Sprintf("02:fa:17:00:00:%02x", i), "--gid", g.String(), "--metrics-listen", "off",
	}, more...)...)
	s.last = w
	s.t.Eventually("the worker", func() bool {
		if !w.Running() {
			s.t.Fatalf("the worker ended:\n%s", w.Tail())
		}
		return s.healthy(i)
	})
	return socket, g
}

type node struct {
	ID           int
	Name, State  string
	SessionSince *time.Time `json:"session_since"`
}

type claim struct {
	GID, IPv4, State string
	Node             int
}

// healthy reports whether so many workers are alive, with a session, under the ids and with the addresses that they began
// with.
func (s *site) healthy(workers int) bool {
	s.t.Helper()
	nodes, ok := ask[node](s.t, "nodes", "--manager", s.both())
	if !ok || len(nodes) != workers+1 {
		return false
	}
	for i, n := range nodes[1:] {
		if n.ID != i+1 || n.Name != fmt.Sprint("w", i+1) || n.State != "alive" || n.SessionSince == nil {
			return false
		}
	}
	claims, ok := ask[claim](s.t, "gids", "--manager", s.both())
	if !ok {
		return false
	}
	for i := 1; i <= workers; i++ {
		found := 0
		for _, c := range claims {
			if c.IPv4 == fmt.Sprint("10.98.0.", i) && c.Node == i && c.State == "active" {
				found++
			}
		}
		if found != 1 {
			return false
		}
	}
	return true
}

// client returns a client of one manager.
func (s *site) client(name string) ernicv1.ManagerServiceClient {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.address[name], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}}))
	s.t.Must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return ernicv1.NewManagerServiceClient(conn)
}

// roles returns the name of the manager that leads and that of the one that stands by. A manager that the machine did not let
// run for as long as its lease has lost the lead.
func (s *site) roles() (leader, other string) {
	s.t.Helper()
	s.t.Eventually("one manager that leads", func() bool {
		leader, other = "a", "b"
		if s.leads("b") {
			leader, other = "b", "a"
		}
		return s.leads(leader) && !s.leads(other)
	})
	return leader, other
}

// leads reports whether a manager leads and serves.
func (s *site) leads(name string) bool {
	_, _, err := ctl("nodes", "--manager", s.address[name])
	return err == nil
}

func TestI4_ManagersThatShareTheirStateReplaceEachOtherUnderTraffic(tt *testing.T) {
	t := verdict.New(tt)
	s := newSite(t)
	sa, ga := s.worker(1)
	sb, gb := s.worker(2)
	tr := startTraffic(t, boot(t, sa, ga), boot(t, sb, gb))
	tr.proceed(3)

	recorded := history.Record(s.client("a"), s.client("b"))
	defer func() {
		if err := recorded.Stop(); err != nil {
			t.Error(err)
		}
		views, revisions, lists := recorded.Seen()
		t.Logf("history: %d views of %d revisions and %d lists of claims are as promised", views, revisions, lists)
		if views < 4 || lists < 4 {
			t.Error("too little was recorded to prove anything")
		}
	}()

	// step does something to the managers while the guests talk. Whoever leads afterwards has to be heard.
	step := func(what string, do func() (changed bool)) {
		t.Helper()
		t.Doing(what)
		from := tr.exchanges()
		views, _, lists := recorded.Seen()
		tr.slowest()
		begin := time.Now()
		changed := do()
		took := time.Since(begin).Round(time.Millisecond)
		tr.proceed(3)
		t.Logf("%s: all was well %s after it began; meanwhile %d exchanges, the longest took %s", what, took, tr.exchanges()-from, tr.slowest())
		t.Eventually("a view of the one that leads now", func() bool {
			v, _, l := recorded.Seen()
			return !changed || v > views && l > lists
		})
	}

	leader, other := s.roles()
	t.Eventually("the one that stands by to say so", func() bool {
		_, complaint, err := ctl("nodes", "--manager", s.address[other])
		return err != nil && strings.Contains(complaint, fmt.Sprintf("stands by: the one that leads is %q at %s", leader, s.address[leader]))
	})

	step("the leader killed", func() bool {
		leader, other = s.roles()
		s.managers[leader].End(syscall.SIGKILL)
		t.Eventually("the workers at the other one", func() bool { return s.leads(other) && s.healthy(2) })
		return true
	})
	step("another standby", func() bool {
		s.start(leader)
		t.Eventually("it to stand by", func() bool { return s.knows(leader) && s.leads(leader) != s.leads(other) })
		return false
	})
	step("the leader stopped for longer than its lease", func() bool {
		leader, other = s.roles()
		s.managers[leader].Signal(syscall.SIGSTOP)
		t.Eventually("the other one to lead", func() bool { return s.leads(other) })
		s.managers[leader].Signal(syscall.SIGCONT)
		t.Eventually("one of the two to lead", func() bool { return s.leads(leader) != s.leads(other) && s.healthy(2) })
		return true
	})
	step("the leader ended in good order", func() bool {
		leader, other = s.roles()
		t.Eventually("the other one to take part again", func() bool { return s.knows(other) })
		s.managers[leader].End(syscall.SIGTERM)
		t.Eventually("the workers at the other one", func() bool { return s.leads(other) && s.healthy(2) })
		return true
	})
	step("etcd killed, and back", func() bool {
		s.etcd.Kill()
		t.Eventually("that nobody leads", func() bool { return !s.leads(other) })
		tr.proceed(3) // nothing that works stops working
		s.etcd.Start()
		t.Eventually("the workers at the other one again", func() bool { return s.leads(other) && s.healthy(2) })
		return true
	})
	for name, p := range s.managers {
		if text := p.Log(); strings.Contains(text, `"event":"node_dead"`) || strings.Contains(text, "panic") {
			t.Errorf("%s withdrew a worker, or worse", name)
		}
	}
}

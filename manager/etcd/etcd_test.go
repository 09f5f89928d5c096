// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/manager"
	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/etcd/etcdtest"
)

// patience is how long a test waits for what must come about.
const patience = time.Minute

func open(t *testing.T, s *etcdtest.Server, name string) *Cluster {
	t.Helper()
	target, err := ParseTarget("etcd://" + s.Endpoint + "/mesh/one")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{
		Target: target, Lease: MinLease, History: manager.NewHistory, Log: zerolog.New(zerolog.NewTestWriter(t)),
		Self: manager.Candidate{Name: name, Address: name + ".test:6320", Version: "v", Started: time.Now()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func elect(t *testing.T, c *Cluster) *term {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	won := make(chan manager.Term, 1)
	go func() {
		// The term must outlive the wait for it.
		if x, err := c.Campaign(context.WithoutCancel(ctx)); err == nil {
			won <- x
		}
	}()
	select {
	case x := <-won:
		tm := x.(*term)
		t.Cleanup(tm.End)
		return tm
	case <-ctx.Done():
		t.Fatal("nobody is elected")
		return nil
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

func load(t *testing.T, x *term) core.State {
	t.Helper()
	state, err := x.Load()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func commit(t *testing.T, x *term, ch core.Changes) {
	t.Helper()
	if err := x.Commit(ch); err != nil {
		t.Fatal(err)
	}
}

var when = time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)

func address(i int) core.GID {
	return core.GID{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
}

// sample has two nodes with so many claims each.
func sample(claims int) core.Changes {
	ch := core.Changes{History: core.History{7}, Revision: 42}
	for id := core.NodeID(1); id <= 2; id++ {
		ch.Nodes = append(ch.Nodes, core.NodeRecord{
			ID: id, Instance: core.Instance{byte(id)}, Name: fmt.Sprint("w", id), Addr: "h:1", Version: "v", Protocol: 1,
			State: core.Alive, Since: when, Joined: when,
		})
		for i := range claims {
			ch.Claims = append(ch.Claims, core.ClaimRecord{
				Node: id, GID: address(int(id)<<16 | i), Source: core.SourceIP, Made: when, State: core.Active, Since: when,
			})
		}
	}
	return ch
}

func TestWhatOneManagerStoredTheNextOneLoads(t *testing.T) {
	s := etcdtest.Start(t)
	a, b := open(t, s, "a"), open(t, s, "b")
	first := elect(t, a)
	if got := load(t, first); got.History == (core.History{}) || got.Revision != 0 || len(got.Nodes)+len(got.Claims) != 0 {
		t.Fatalf("a new state is %+v", got)
	}
	// More than one transaction and more than one page hold.
	ch := sample(3000)
	commit(t, first, ch)
	if got := load(t, first); !reflect.DeepEqual(got, core.State{History: ch.History, Revision: 42, Nodes: ch.Nodes, Claims: ch.Claims}) {
		t.Fatalf("loaded revision %d of %s with %d nodes and %d claims", got.Revision, got.History, len(got.Nodes), len(got.Claims))
	}
	commit(t, first, core.Changes{History: ch.History, Revision: 43, GoneNodes: []core.NodeID{2},
		GoneClaims: []core.ClaimKey{{GID: ch.Claims[0].GID, Node: 1}}})
	first.End()

	second := elect(t, b)
	got := load(t, second)
	if got.Revision != 43 || got.History != ch.History || !reflect.DeepEqual(got.Nodes, ch.Nodes[:1]) ||
		!reflect.DeepEqual(got.Claims, ch.Claims[1:]) {
		t.Fatalf("after removal: revision %d, nodes %+v, %d claims", got.Revision, got.Nodes, len(got.Claims))
	}
}

func TestOneLeadsAndTheOthersKnowWhich(t *testing.T) {
	s := etcdtest.Start(t)
	a, b := open(t, s, "a"), open(t, s, "b")
	first := elect(t, a)
	elected := make(chan manager.Term, 1)
	go func() {
		if x, err := b.Campaign(context.Background()); err == nil {
			elected <- x
		}
	}()
	for _, c := range []*Cluster{a, b} {
		eventually(t, "two candidates", func() bool {
			all := c.Candidates()
			return len(all) == 2 && all[0].Name == "a" && all[0].Leads && all[0].Address == "a.test:6320" &&
				all[1].Name == "b" && !all[1].Leads && all[0].Self == (c == a) && all[1].Self == (c == b)
		})
	}
	select {
	case <-elected:
		t.Fatal("two lead")
	case <-first.Over():
		t.Fatal("the term is over")
	default:
	}
	first.End()
	select {
	case x := <-elected:
		t.Cleanup(x.End)
	case <-time.After(patience):
		t.Fatal("nobody follows")
	}
	eventually(t, "the new leader", func() bool {
		all := a.Candidates()
		return len(all) == 1 && all[0].Name == "b" && all[0].Leads
	})
}

// TestADeposedManagerCannotWrite takes the lease from under a manager, as time does when it stands still, and lets it write
// before it can know.
func TestADeposedManagerCannotWrite(t *testing.T) {
	s := etcdtest.Start(t)
	a, b := open(t, s, "a"), open(t, s, "b")
	first := elect(t, a)
	ch := sample(1)
	commit(t, first, ch)
	if _, err := b.client.Revoke(context.Background(), first.session.Lease()); err != nil {
		t.Fatal(err)
	}
	err := first.Commit(core.Changes{History: ch.History, Revision: 99, GoneNodes: []core.NodeID{1, 2}})
	if !errors.Is(err, manager.ErrDeposed) {
		t.Fatalf("it wrote: %v", err)
	}
	if _, err := first.Load(); !errors.Is(err, manager.ErrDeposed) {
		t.Fatalf("it read: %v", err)
	}
	select {
	case <-first.Over():
	case <-time.After(patience):
		t.Fatal("its term goes on")
	}
	if got := load(t, elect(t, b)); got.Revision != 42 || len(got.Nodes) != 2 {
		t.Fatalf("the next one loads %+v", got)
	}
}

// TestATornCommitBeginsANewHistory ends a manager between the transactions of one commit.
func TestATornCommitBeginsANewHistory(t *testing.T) {
	s := etcdtest.Start(t)
	a := open(t, s, "a")
	first := elect(t, a)
	ch := sample(200)
	commit(t, first, sample(1))
	ops := a.operations(&ch)
	torn := first.metaOp(&ch, true)
	if err := first.write(append(ops[:maxOps:maxOps], torn)); err != nil {
		t.Fatal(err)
	}
	first.End()
	second := elect(t, a)
	got := load(t, second)
	if got.History == ch.History || got.History == (core.History{}) {
		t.Fatalf("a worker at revision %d of %s would be told nothing", got.Revision, got.History)
	}
	known := map[core.NodeID]bool{}
	for _, n := range got.Nodes {
		known[n.ID] = true
	}
	for _, c := range got.Claims {
		if !known[c.Node] {
			t.Fatalf("a claim of node %d, which is not there", c.Node)
		}
	}
	ch.History, ch.Revision = got.History, got.Revision+1
	commit(t, second, ch)
	if again := load(t, second); again.History != got.History || len(again.Claims) != 400 {
		t.Fatalf("after the next commit: history %s, %d claims", again.History, len(again.Claims))
	}
}

// TestAnEtcdThatIsAwayIsWaitedFor kills etcd under a manager, for less time than the lease and then for more.
func TestAnEtcdThatIsAwayIsWaitedFor(t *testing.T) {
	s := etcdtest.Start(t)
	a := open(t, s, "a")
	first := elect(t, a)
	s.Freeze()
	stored := make(chan error, 1)
	ch := sample(1)
	go func() { stored <- first.Commit(ch) }()
	select {
	case err := <-stored:
		t.Fatalf("stored in an etcd that stands still: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Thaw()
	// On a loaded machine the lease may have run out, which the next manager then has to cope with.
	select {
	case err := <-stored:
		if err != nil && !errors.Is(err, manager.ErrDeposed) {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it is never stored")
	}
	s.Kill()
	if err := first.Commit(ch); !errors.Is(err, manager.ErrDeposed) {
		t.Fatalf("without etcd: %v", err)
	}
	<-first.Over()
	again := make(chan manager.Term, 1)
	go func() {
		if x, err := a.Campaign(context.Background()); err == nil {
			again <- x
		}
	}()
	s.Start()
	select {
	case x := <-again:
		t.Cleanup(x.End)
		if _, err := x.Load(); err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it never leads again")
	}
}

func TestDamageIsReportedWithTheWayOutAndLeftAlone(t *testing.T) {
	s := etcdtest.Start(t)
	a := open(t, s, "a")
	x := elect(t, a)
	commit(t, x, sample(1))
	for key, bad := range map[string]string{
		"/mesh/one/meta":           "{",
		"/mesh/one/nodes/00000001": `{"state": "alive"}`,
		"/mesh/one/nodes/1":        `{}`,
		"/mesh/one/claims/x":       `{}`,
	} {
		before, err := a.client.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.client.Put(context.Background(), key, bad); err != nil {
			t.Fatal(err)
		}
		_, err = x.Load()
		var damaged *DamagedError
		if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "restore it from a snapshot") {
			t.Errorf("%s: %v", key, err)
		}
		if now, err := a.client.Get(context.Background(), key); err != nil || string(now.Kvs[0].Value) != bad {
			t.Errorf("%s was changed", key)
		}
		if len(before.Kvs) > 0 {
			_, err = a.client.Put(context.Background(), key, string(before.Kvs[0].Value))
		} else {
			_, err = a.client.Delete(context.Background(), key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	load(t, x)
	newer := strings.Replace(encodeMeta(core.History{7}, 42, false), `"schema":1`, `"schema":2`, 1)
	if _, err := a.client.Put(context.Background(), a.metaKey(), newer); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Load(); err == nil || !strings.Contains(err.Error(), "schema 2") {
		t.Errorf("a newer schema: %v", err)
	}
	if _, err := a.client.Delete(context.Background(), a.metaKey()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Load(); err == nil || !strings.Contains(err.Error(), "meta is missing") {
		t.Errorf("without meta: %v", err)
	}
}

func TestTargets(t *testing.T) {
	for in, want := range map[string]string{
		"etcd://10.0.0.1:2379":                 "etcd://10.0.0.1:2379/ernic",
		"etcd://a:1,b:2/":                      "etcd://a:1,b:2/ernic",
		"etcds://[fd00::1]:2379/mesh/one/":     "etcds://[fd00::1]:2379/mesh/one",
		"etcd://":                              "missing port",
		"etcd://a":                             "missing port",
		"etcd://a:0/x":                         "not host:port",
		"etcd://:1/x":                          "not host:port",
		"etcd://a:1,/x":                        "missing port",
		"etcd://a:1/x y":                       "printable",
		"http://a:1/x":                         "does not begin",
		"etcd://[fd00::1]:2379,b:99999/mesh":   "not host:port",
		"etcd://a:1/" + strings.Repeat("m", 3): "etcd://a:1/mmm",
	} {
		got, err := ParseTarget(in)
		text := got.String()
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) || (err == nil) != IsTarget(want) {
			t.Errorf("%q: %s, want %s", in, text, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("00000001", []byte(`{"instance":"01000000000000000000000000000000","state":"alive"}`))
	f.Add("00000001/fe800000000000000000000000000001", []byte(`{"source":"mac","state":"active"}`))
	f.Add("", []byte(`{"schema":1,"history":"07000000000000000000000000000000","revision":42}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if n, err := decodeNode(key, value); err == nil && (n.ID == core.Manager || n.ID == core.AnyNode) {
			t.Fatalf("%q %q gives %+v", key, value, n)
		}
		if c, err := decodeClaim(key, value); err == nil && !c.Source.Valid() {
			t.Fatalf("%q %q gives %+v", key, value, c)
		}
		if m, h, err := decodeMeta(value); err == nil && m.History != h.String() && !strings.EqualFold(m.History, h.String()) {
			t.Fatalf("%q gives %+v", value, m)
		}
	})
}

func FuzzParseTarget(f *testing.F) {
	f.Add("etcd://10.0.0.1:2379,b:2/mesh")
	f.Add("etcds://[::1]:1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseTarget(s)
		if err != nil {
			return
		}
		if b, err := ParseTarget(a.String()); err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q: %v, and again %v (%v)", s, a, b, err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/manager/history"
)

// model drives a core with arbitrary events and checks after each of them what must hold whatever happens.
type model struct {
	t    testing.TB
	core *Core
	cfg  Config
	now  time.Time
	disk disk
	// full is set while nothing can be stored.
	full      bool
	histories byte
	trail     []func() string

	workers []*modelWorker
	next    SessionID
	// owned is what each node claims, kept apart from the core: only the node itself, an eviction, its leaving or its
	// being forgotten may change it. That it falls silent must not.
	owned map[NodeID]map[GID]bool
	// past holds the view of every revision that was ever current.
	past history.Model
	// views are held by simulated workers that ask now and then.
	views []*history.View
}

// modelWorker is a process that may be registered.
type modelWorker struct {
	instance Instance
	addr     string
	session  SessionID
	node     NodeID // AnyNode before its first registration
}

// modelUpdate is an update in the words of the model that histories are held against.
func modelUpdate(u Update) *history.Update {
	w := &history.Update{
		To: history.Point{History: u.History, Revision: u.Revision}, Snapshot: u.Snapshot,
		Nodes: make(map[uint32]history.Node), Routes: make(map[[16]byte]uint32),
	}
	for _, n := range u.Nodes {
		w.Nodes[uint32(n.ID)] = history.Node{Live: n.State.Counts(), Instance: n.Instance, Address: n.Addr}
	}
	for _, id := range u.RemovedNodes {
		w.RemovedNodes = append(w.RemovedNodes, uint32(id))
	}
	for _, r := range u.Routes {
		w.Routes[r.GID] = uint32(r.Node)
	}
	for _, g := range u.RemovedGIDs {
		w.RemovedGIDs = append(w.RemovedGIDs, g)
	}
	return w
}

func newModel(t testing.TB) *model {
	cfg := Config{HealthInterval: 5 * time.Second, ClaimTTL: time.Minute, Quarantine: 30 * time.Second, MaxClaims: 4, LogLimit: 24}
	m := &model{
		t:     t,
		cfg:   cfg.Defaults(),
		now:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		disk:  newDisk(),
		owned: make(map[NodeID]map[GID]bool),
	}
	m.core = New(m.cfg, m.now, State{History: History{1}})
	for range 4 {
		m.views = append(m.views, &history.View{})
	}
	for i := range 6 {
		m.workers = append(m.workers, m.newWorker(i))
	}
	m.record()
	return m
}

var instances uint64

func (m *model) newWorker(i int) *modelWorker {
	instances++
	w := &modelWorker{node: AnyNode, addr: fmt.Sprintf("h%d:1", i)}
	copy(w.instance[:], fmt.Sprint("i", instances))
	return w
}

func modelGID(b byte) GID { return GID{0: 0xfe, 1: 0x80, 15: 1 + b%5} }

// run takes the history of events from bytes.
func (m *model) run(in []byte) {
	for len(in) >= 3 {
		m.do(in[0], in[1], in[2])
		in = in[3:]
		m.check()
	}
}

func (m *model) do(op, a, b byte) {
	w := m.workers[int(a)%len(m.workers)]
	switch op % 14 {
	case 0, 1: // a worker opens a session, for the first time or again
		m.next++
		w.session = m.next
		m.step(Register{
			Session: w.session, Node: w.node, Instance: w.instance, Incarnation: 1, Addr: w.addr, Protocol: Versions{1, 1},
		})
	case 2, 3, 4:
		m.step(ClaimUpdate{Session: w.session, Node: w.node, Claims: []Claim{{modelGID(b), SourceARP}, {modelGID(b / 8), SourceMAC}}})
	case 5:
		m.step(ClaimUpdate{Session: w.session, Node: w.node, Release: []GID{modelGID(b)}})
	case 6:
		m.step(SessionEnded{w.session, "cut"})
	case 7: // the process is killed, with or without a reset, and started again on its address or another
		if b&1 != 0 {
			m.step(SessionEnded{w.session, "killed"})
		}
		i := int(a) % len(m.workers)
		addr := w.addr
		m.workers[i] = m.newWorker(i)
		if b&2 != 0 {
			m.workers[i].addr = addr + "x"
		}
	case 8:
		for i, w := range m.workers {
			if b>>i&1 != 0 {
				m.step(Heartbeat{Session: w.session, Node: w.node})
			}
		}
	case 9, 10:
		for range b % 8 {
			m.now = m.now.Add(m.cfg.TickPeriod)
			m.step(Tick{})
		}
	case 11:
		switch b % 8 {
		case 0:
			m.step(Leave{w.session})
		case 1:
			effects, err := m.core.Evict(m.now, w.node, "", nil)
			if err == nil {
				m.note("evict %d", w.node)
				m.took(effects)
			}
		case 2: // the manager stands still
			m.now = m.now.Add(20 * time.Second)
			m.step(Tick{})
		case 3: // the manager is killed
			m.note("restart")
			m.core = New(m.cfg, m.now, m.disk.state())
			for _, w := range m.workers {
				w.session = 0
			}
			if m.full {
				m.rewind()
			}
		case 4: // the disk is full for a while
			m.full = !m.full
			m.note("disk full: %v", m.full)
		case 5:
			m.step(Heartbeat{Session: w.session, Node: w.node + 1})
		case 6:
			m.step(Malformed{w.session, "nonsense"})
		case 7: // gossip sees or loses the process, rightly or not
			m.step(Seen{w.instance, b&8 != 0})
		}
	case 12:
		m.step(ProbeAnswer{Session: w.session})
	case 13:
		m.ask(m.views[int(a)%len(m.views)])
	}
}

// note adds a line to the trail, which is only written out if the run fails.
func (m *model) note(format string, args ...any) {
	m.trail = append(m.trail, func() string { return fmt.Sprintf(format, args...) })
}

func (m *model) step(ev Event) {
	before := m.core.Nodes()
	m.note("%s %T%+v", m.now.Format("04:05"), ev, ev)
	effects := m.core.Step(m.now, ev, nil)
	m.took(effects)
	switch ev := ev.(type) {
	case Register:
		m.checkLowest(before, ev, effects)
	case ClaimUpdate:
		m.claimed(ev, effects)
	}
}

// took carries effects out.
func (m *model) took(effects []Effect) {
	for _, e := range effects {
		m.note("    %s", e)
		switch e := e.(type) {
		case Welcome:
			for _, w := range m.workers {
				if w.session == e.Session {
					w.node = e.Node
				}
			}
			if m.owned[e.Node] == nil {
				m.owned[e.Node] = make(map[GID]bool)
			}
			if len(e.Claims) != len(m.owned[e.Node]) {
				m.fail("node %d is told that it holds %v, and owns %v", e.Node, e.Claims, m.owned[e.Node])
			}
		case End:
			for _, w := range m.workers {
				if w.session == e.Session {
					w.session = 0
					if e.Reason == ReasonEvicted || e.Reason == ReasonIDTaken {
						w.node = AnyNode
					}
				}
			}
		case Note:
			switch e.Kind {
			case NoteLeft, NoteEvicted, NoteForgotten:
				delete(m.owned, e.Node)
			}
		}
	}
}

func (m *model) claimed(ev ClaimUpdate, effects []Effect) {
	for _, e := range effects {
		ack, ok := e.(ClaimAck)
		if !ok {
			continue
		}
		own := m.owned[ev.Node]
		for _, g := range ev.Release {
			delete(own, g)
		}
		for _, cl := range ev.Claims {
			if !slices.ContainsFunc(ack.Rejected, func(r Rejected) bool { return r.GID == cl.GID }) {
				own[cl.GID] = true
			}
		}
	}
}

// checkLowest checks statement I1.
func (m *model) checkLowest(before []NodeInfo, ev Register, effects []Effect) {
	if ev.Node != AnyNode {
		return
	}
	for _, e := range effects {
		w, ok := e.(Welcome)
		if !ok || w.Session != ev.Session {
			continue
		}
		want := NodeID(1)
		for _, n := range before {
			if n.Instance == ev.Instance && n.State != Evicted {
				return
			}
			if n.ID == want {
				want++
			}
		}
		if w.Node != want {
			m.fail("a newcomer became node %d, the lowest free id was %d", w.Node, want)
		}
	}
}

// ask lets a worker learn what changed since it asked last.
func (m *model) ask(v *history.View) {
	v.Apply(modelUpdate(m.core.Since(v.At.History, v.At.Revision)))
	if !m.past.Has(v.At) {
		m.fail("an update leads to revision %s, which never was current", v.At)
	}
	if err := m.past.See("a worker", v); err != nil {
		m.fail("%v", err)
	}
}

// check holds the state against statement G8 and what is stored.
func (m *model) check() {
	states := make(map[NodeID]NodeState)
	for _, n := range m.core.Nodes() {
		states[n.ID] = n.State
	}
	claims := m.core.Claims(ClaimKey{}, 0)
	counting := make(map[GID][]NodeID)
	held := make(map[NodeID]int)
	for _, cl := range claims {
		held[cl.Node]++
		if !m.owned[cl.Node][cl.GID] {
			m.fail("node %d holds %s, which it does not own", cl.Node, cl.GID)
		}
		if states[cl.Node].Counts() {
			counting[cl.GID] = append(counting[cl.GID], cl.Node)
		}
	}
	for id, own := range m.owned {
		if held[id] != len(own) {
			m.fail("node %d owns %v, the manager holds %d of them", id, own, held[id])
		}
	}
	var shown []history.Claim
	for _, cl := range claims {
		shown = append(shown, history.Claim{GID: cl.GID, Node: uint32(cl.Node), State: modelStates[cl.State]})
	}
	if err := history.CheckClaims(shown, func(id uint32) bool { return states[NodeID(id)].Counts() }); err != nil {
		m.fail("%v", err)
	}
	conflicts := 0
	for b := range byte(5) {
		g := modelGID(b)
		id, ok := m.core.Resolve(g)
		switch owners := counting[g]; {
		case len(owners) == 1 && (!ok || id != owners[0]):
			m.fail("%s belongs to node %d alone and resolves to %d, %v", g, owners[0], id, ok)
		case len(owners) != 1 && ok:
			m.fail("%s is claimed by live nodes %v and resolves to %d", g, owners, id)
		case len(owners) > 1:
			conflicts++
		}
	}
	if m.core.Conflicts() != conflicts {
		m.fail("%d conflicts are counted, there are %d", m.core.Conflicts(), conflicts)
	}
	m.store()
	if got, want := m.disk.state(), m.core.Export(); !m.full && !reflect.DeepEqual(got, want) {
		m.fail("stored\n%+v\nheld\n%+v", got, want)
	}
	m.record()
}

// store commits what changed, if the disk takes it.
func (m *model) store() {
	if !m.full {
		m.disk.commit(m.core)
		return
	}
	if ch, ok := m.core.Changes(); ok {
		m.histories++
		m.core.StoreFailed(ch, History{2, m.histories})
	}
}

// rewind makes the model forget what never was stored, after a restart on what was.
func (m *model) rewind() {
	m.owned = make(map[NodeID]map[GID]bool)
	for _, n := range m.core.Nodes() {
		if n.State != Evicted {
			m.owned[n.ID] = make(map[GID]bool)
		}
	}
	for _, cl := range m.core.Claims(ClaimKey{}, 0) {
		m.owned[cl.Node][cl.GID] = true
	}
}

// record remembers the view of the current revision. A revision seen before, also before a restart, must look the same.
func (m *model) record() {
	v := &history.View{}
	v.Apply(modelUpdate(m.core.Since(History{0xff}, 0)))
	if err := m.past.See("the manager", v); err != nil {
		m.fail("%v", err)
	}
}

// modelStates are the states of claims in the words of the model.
var modelStates = map[ClaimState]history.ClaimState{
	Active: history.Active, Withdrawn: history.Withdrawn, Conflict: history.Conflict,
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.trail {
		m.t.Log(line())
	}
	m.t.Fatalf(format, args...)
}

// TestG8_RandomHistoriesResolveToOneLiveNodeOrNone runs many meshes through arbitrary histories.
func TestG8_RandomHistoriesResolveToOneLiveNodeOrNone(t *testing.T) {
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 1))
		in := make([]byte, 3*250)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		m := newModel(t)
		m.note("seed %d", seed)
		m.run(in)
	}
}

func FuzzCore(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 1, 0, 1, 0, 2, 1, 1, 13, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 0, 1, 7, 0, 1, 0, 0, 0, 2, 0, 1, 9, 0, 7, 13, 1, 0})
	f.Add([]byte{0, 0, 0, 2, 0, 1, 11, 0, 3, 0, 0, 0, 11, 0, 4, 2, 0, 9, 13, 0, 0, 11, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 3*400 {
			return
		}
		newModel(t).run(in)
	})
}

// SPDX-License-Identifier: Apache-2.0

package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/proto/gid"
)

var update = flag.Bool("update", false, "rewrite the expected traces in testdata")

// TestScripts runs the incident reports in testdata: commands, a line of four dashes, and the trace they must leave.
//
//	register s1 any instance=a addr=h1:1 [name=n] [holder=h] [proto=1-1]    open a session
//	beat s1 ...                                                  heartbeats
//	claim s1 GID SOURCE ... | release s1 GID ...                 change the addresses of a node
//	speak s1 as N                                                a heartbeat that names another node
//	answer s1 | leave s1 | end s1 | evict N | drain N | link-up N | link-down N  what the names say
//	seen INSTANCE ... | unseen INSTANCE ...                      what the gossip of the mesh says
//	wait 16s [beating s1 ...]                                    time passes, with ticks and heartbeats
//	stall 10s                                                    time passes and the manager does not run
//	restart                                                      the manager is killed and started on what it stored
//	clock -2h                                                    the clock of its host is set
//	nodes | gids | resolve GID ... | since N                     ask
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newScript()
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n\n") {
		commands, want, _ := strings.Cut(block, "\n----")
		want = strings.Trim(want, "\n")
		var got strings.Builder
		comment := true
		for line := range strings.Lines(commands) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			comment = false
			if err := s.run(strings.Fields(line), &got); err != nil {
				t.Fatalf("block %d, %q: %v", i+1, line, err)
			}
			s.checkStored(t, line)
		}
		trace := strings.TrimRight(got.String(), "\n")
		if !comment && trace != want && !*update {
			t.Errorf("block %d:\n%s\n---- got\n%s\n---- want\n%s", i+1, commands, trace, want)
		}
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(strings.TrimRight(commands, "\n") + "\n")
		if !comment {
			out.WriteString("----\n")
			if trace != "" {
				out.WriteString(trace + "\n")
			}
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// script is a mesh driven by commands.
type script struct {
	core  *Core
	cfg   Config
	start time.Time
	now   time.Time
	disk  disk
	beats map[SessionID]uint64
	nodes map[SessionID]NodeID
}

func newScript() *script {
	s := &script{
		cfg:   Config{}.Defaults(),
		start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		disk:  newDisk(),
		beats: make(map[SessionID]uint64),
		nodes: make(map[SessionID]NodeID),
	}
	s.now = s.start
	s.core = New(s.cfg, s.now, State{History: History{1}})
	return s
}

// disk is a store that takes changes as the real one does.
type disk struct {
	history  History
	revision uint64
	nodes    map[NodeID]NodeRecord
	claims   map[ClaimKey]ClaimRecord
}

func newDisk() disk {
	return disk{nodes: make(map[NodeID]NodeRecord), claims: make(map[ClaimKey]ClaimRecord), history: History{1}}
}

func (d *disk) commit(c *Core) {
	ch, ok := c.Changes()
	if !ok {
		return
	}
	d.history, d.revision = ch.History, ch.Revision
	for _, r := range ch.Nodes {
		d.nodes[r.ID] = r
	}
	for _, id := range ch.GoneNodes {
		delete(d.nodes, id)
	}
	for _, r := range ch.Claims {
		d.claims[r.key()] = r
	}
	for _, k := range ch.GoneClaims {
		delete(d.claims, k)
	}
}

func (d *disk) state() State {
	s := State{History: d.history, Revision: d.revision}
	for _, r := range d.nodes {
		s.Nodes = append(s.Nodes, r)
	}
	for _, r := range d.claims {
		s.Claims = append(s.Claims, r)
	}
	slices.SortFunc(s.Nodes, func(a, b NodeRecord) int { return int(a.ID) - int(b.ID) })
	slices.SortFunc(s.Claims, func(a, b ClaimRecord) int { return a.key().Compare(b.key()) })
	return s
}

// checkStored fails if what was stored is not what the core would export.
func (s *script) checkStored(t *testing.T, line string) {
	t.Helper()
	got, want := fmt.Sprintf("%+v", s.disk.state()), fmt.Sprintf("%+v", s.core.Export())
	if got != want {
		t.Fatalf("after %q the store holds\n%s\nthe core\n%s", line, got, want)
	}
}

func (s *script) step(ev Event, out *strings.Builder) {
	s.print(s.core.Step(s.now, ev, nil), out)
}

func (s *script) print(effects []Effect, out *strings.Builder) {
	s.disk.commit(s.core)
	for _, e := range effects {
		if w, ok := e.(Welcome); ok {
			s.nodes[w.Session] = w.Node
		}
		if _, ok := e.(HeartbeatAck); ok {
			continue
		}
		fmt.Fprintf(out, "%6s %s\n", s.now.Sub(s.start), e)
	}
}

func (s *script) run(args []string, out *strings.Builder) error {
	switch args[0] {
	case "wait":
		return s.wait(args[1:], out)
	case "stall", "clock":
		d, err := time.ParseDuration(args[1])
		s.now = s.now.Add(d)
		return err
	case "restart":
		s.core = New(s.cfg, s.now, s.disk.state())
		return nil
	case "seen", "unseen":
		for _, a := range args[1:] {
			ev := Seen{Alive: args[0] == "seen"}
			copy(ev.Instance[:], a)
			s.step(ev, out)
		}
		return nil
	case "evict", "drain", "link-up", "link-down":
		id, err := strconv.ParseUint(args[1], 10, 32)
		if err != nil {
			return err
		}
		do := s.core.Evict
		switch args[0] {
		case "drain":
			do = s.core.Drain
		case "link-up", "link-down":
			do = func(at time.Time, id NodeID, reason string, out []Effect) ([]Effect, error) {
				return s.core.SetLink(at, id, args[0] == "link-up", reason, out)
			}
		}
		effects, err := do(s.now, NodeID(id), strings.Join(args[2:], " "), nil)
		if err != nil {
			fmt.Fprintf(out, "%6s error: %v\n", s.now.Sub(s.start), err)
		}
		s.print(effects, out)
		return nil
	case "nodes", "gids", "resolve", "since":
		return s.ask(args, out)
	}
	session, err := sessionOf(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "register":
		return s.register(session, args[2:], out)
	case "beat":
		for _, a := range args[1:] {
			session, err := sessionOf(a)
			if err != nil {
				return err
			}
			s.beat(session, out)
		}
	case "speak":
		id, err := strconv.ParseUint(args[3], 10, 32)
		if err != nil {
			return err
		}
		s.step(Heartbeat{Session: session, Node: NodeID(id)}, out)
	case "claim":
		ev := ClaimUpdate{Session: session, Node: s.nodes[session], Sequence: 1}
		for i := 2; i+1 < len(args); i += 2 {
			g, err := gid.Parse(args[i])
			if err != nil {
				return err
			}
			ev.Claims = append(ev.Claims, Claim{g, Source(slices.Index(sourceNames[:], args[i+1]))})
		}
		s.step(ev, out)
	case "release":
		ev := ClaimUpdate{Session: session, Node: s.nodes[session], Sequence: 1}
		for _, a := range args[2:] {
			g, err := gid.Parse(a)
			if err != nil {
				return err
			}
			ev.Release = append(ev.Release, g)
		}
		s.step(ev, out)
	case "answer":
		s.step(ProbeAnswer{Session: session}, out)
	case "leave":
		s.step(Leave{session}, out)
	case "end":
		s.step(SessionEnded{session, "connection reset"}, out)
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (s *script) beat(session SessionID, out *strings.Builder) {
	s.beats[session]++
	s.step(Heartbeat{Session: session, Node: s.nodes[session], Sequence: s.beats[session]}, out)
}

func (s *script) register(session SessionID, args []string, out *strings.Builder) error {
	r := Register{Session: session, Node: AnyNode, Incarnation: 1, Protocol: Versions{1, 1}, Version: "test"}
	if args[0] != "any" {
		id, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			return err
		}
		r.Node = NodeID(id)
	}
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "instance":
			copy(r.Instance[:], value)
		case "addr":
			r.Addr = value
		case "name":
			r.Name = value
		case "holder":
			r.Identity = value
		case "proto":
			if _, err := fmt.Sscanf(value, "%d-%d", &r.Protocol.Min, &r.Protocol.Max); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown argument %q", a)
		}
	}
	s.step(r, out)
	return nil
}

// wait lets time pass in ticks; sessions named after "beating" send heartbeats.
func (s *script) wait(args []string, out *strings.Builder) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	var beating []SessionID
	for _, a := range args[min(2, len(args)):] {
		session, err := sessionOf(a)
		if err != nil {
			return err
		}
		beating = append(beating, session)
	}
	period := s.cfg.TickPeriod
	if d >= 5*time.Minute {
		period = d / 100
		s.core.cfg.TickPeriod = period
		defer func() { s.core.cfg.TickPeriod = s.cfg.TickPeriod }()
	}
	for waited := period; waited <= d; waited += period {
		s.now = s.now.Add(period)
		if waited%s.cfg.HealthInterval == 0 || period > s.cfg.HealthInterval {
			for _, session := range beating {
				s.beat(session, out)
			}
		}
		s.step(Tick{}, out)
	}
	return nil
}

func (s *script) ask(args []string, out *strings.Builder) error {
	switch args[0] {
	case "nodes":
		for _, n := range s.core.Nodes() {
			line := fmt.Sprintf("node %d %s %s claims=%d", n.ID, n.Addr, n.State, n.Claims)
			if n.Reason != "" {
				line += " (" + n.Reason + ")"
			}
			fmt.Fprintln(out, line)
		}
	case "gids":
		for _, cl := range s.core.Claims(ClaimKey{}, 0) {
			fmt.Fprintf(out, "%s node %d %s %s since %s\n", cl.GID, cl.Node, cl.Source, cl.State, cl.Since.Sub(s.start))
		}
	case "resolve":
		for _, a := range args[1:] {
			g, err := gid.Parse(a)
			if err != nil {
				return err
			}
			if id, ok := s.core.Resolve(g); ok {
				fmt.Fprintf(out, "%s -> node %d\n", a, id)
			} else {
				fmt.Fprintf(out, "%s -> none\n", a)
			}
		}
	case "since":
		rev, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return err
		}
		u := s.core.Since(s.core.history, rev)
		kind := "difference"
		if u.Snapshot {
			kind = "snapshot"
		}
		fmt.Fprintf(out, "%s to revision %d\n", kind, u.Revision)
		for _, n := range u.Nodes {
			fmt.Fprintf(out, "  node %d %s %s\n", n.ID, n.Addr, n.State)
		}
		for _, id := range u.RemovedNodes {
			fmt.Fprintf(out, "  node %d gone\n", id)
		}
		for _, r := range u.Routes {
			fmt.Fprintf(out, "  %s -> node %d\n", r.GID, r.Node)
		}
		for _, g := range u.RemovedGIDs {
			fmt.Fprintf(out, "  %s -> none\n", g)
		}
	}
	return nil
}

func sessionOf(s string) (SessionID, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "s"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no session", s)
	}
	return SessionID(n), nil
}

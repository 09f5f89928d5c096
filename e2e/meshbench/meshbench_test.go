// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// A hundred workers go through all that is measured, and agree after each step.
// How long it takes is not judged here.
func TestAHundredWorkersAgreeAfterEveryStep(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/ernic-manager").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	o := options{bin: bin, workers: 100, claims: 5000, rounds: 20, kills: 3, rest: 100 * time.Millisecond, patience: 5 * time.Minute}
	r, err := measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	r.print(&table)
	t.Logf("\n%s", &table)
	for _, q := range []struct {
		what string
		quantiles
		samples int
	}{{"claims", r.Claim, 20 * 100}, {"releases", r.Release, 20 * 100}, {"restarts of workers", r.WorkerRestart, 3 * 100}} {
		if q.Samples != q.samples || q.P50 <= 0 || q.P50 > q.P99 || q.P99 > q.Worst {
			t.Errorf("%s: %+v, want %d samples", q.what, q.quantiles, q.samples)
		}
	}
	if r.Storm.Registered <= 0 || r.Storm.Registered > r.Storm.Whole || r.ManagerRestart.Listening <= 0 ||
		r.ManagerRestart.Listening > r.ManagerRestart.Whole || r.Rest.Resident == 0 || r.Rest.Stored == 0 {
		t.Errorf("figures are missing: %+v", r)
	}
	file := filepath.Join(t.TempDir(), "mesh.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(raw, &back); err != nil || back.Claim != r.Claim || back.Workers != 100 {
		t.Errorf("%v: %s", err, raw)
	}
}

func TestAManagerThatEndsIsAnErrorWithItsLog(t *testing.T) {
	o := options{bin: t.TempDir(), workers: 2, claims: 2, rounds: 1, kills: 1, rest: time.Millisecond, patience: time.Minute}
	script := "#!/bin/sh\necho the disk is on fire >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(o.bin, "ernic-manager"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("error %v", err)
	}
}

// update is a part of an update as the manager sends it.
func update(t *testing.T, m *ernicv1.MeshUpdate) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Workers that are told the same share a view, on whichever way they come to a
// revision, and a revision that looks different to two of them is found.
func TestViews_AreSharedAndCompared(t *testing.T) {
	history := bytes.Repeat([]byte{1}, 16)
	part := func(revision uint64, snapshot bool, routes map[int]uint32, removed ...int) []byte {
		m := &ernicv1.MeshUpdate{To: &ernicv1.MeshPoint{History: history, Revision: revision}, Snapshot: snapshot}
		for i, node := range routes {
			g := address(i)
			m.Routes = append(m.Routes, &ernicv1.Route{Gid: g[:], NodeId: node})
		}
		for _, i := range removed {
			g := address(i)
			m.RemovedGids = append(m.RemovedGids, g[:])
		}
		return update(t, m)
	}
	v := &views{}
	next := func(from *view, b []byte, snapshot bool) *view {
		t.Helper()
		to, err := v.next(from, [][]byte{b}, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	first := part(1, true, map[int]uint32{1: 1})
	a, b := next(nothing, first, true), next(nothing, first, true)
	if a != b {
		t.Error("two workers that heard the same hold two views")
	}
	// One step by step, the other at once.
	a = next(a, part(2, false, map[int]uint32{2: 2, 3: 3}), false)
	a = next(a, part(3, false, map[int]uint32{1: 7}, 3), false)
	if b = next(b, part(3, false, map[int]uint32{1: 7, 2: 2}), false); a != b {
		t.Error("two workers at one revision hold two views")
	}
	if node, ok := a.mesh.Resolve(address(1)); !ok || node != 7 {
		t.Errorf("address 1 resolves to %d, %v", node, ok)
	}
	for name, wrong := range map[string][]byte{
		"another owner":      part(3, true, map[int]uint32{1: 7, 2: 9}),
		"an address less":    part(3, true, map[int]uint32{1: 7}),
		"no update":          []byte("nonsense"),
		"of another history": update(t, &ernicv1.MeshUpdate{To: &ernicv1.MeshPoint{History: bytes.Repeat([]byte{2}, 16), Revision: 4}}),
	} {
		if to, err := v.next(b, [][]byte{wrong}, strings.HasPrefix(name, "an")); err == nil {
			t.Errorf("%s: %+v", name, to)
		}
	}
}

func TestQuantiles_AreSamples(t *testing.T) {
	var d []time.Duration
	for i := 200; i > 0; i-- {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	if q := quantilesOf(d); q != (quantiles{200, 100, 198, 200}) {
		t.Errorf("of 1 to 200 ms: %+v", q)
	}
	if q := quantilesOf(nil); q != (quantiles{}) {
		t.Errorf("of none: %+v", q)
	}
}

func TestOptions_AreChecked(t *testing.T) {
	good := options{workers: 10, claims: 100, rounds: 1, kills: 1, rest: 1, patience: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []func(o *options){
		func(o *options) { o.workers = 1 }, func(o *options) { o.claims = 9 }, func(o *options) { o.claims = 10*maxClaims + 1 },
		func(o *options) { o.rounds = 0 }, func(o *options) { o.kills = 0 }, func(o *options) { o.rest = 0 },
	} {
		o := good
		bad(&o)
		if o.check() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

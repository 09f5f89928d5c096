// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"

	"github.com/ernic-dev/ernic/manager/core"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, core.History{7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func load(t *testing.T, s *Store) core.State {
	t.Helper()
	state, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

var when = time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)

func sample() core.Changes {
	return core.Changes{
		History:  core.History{7},
		Revision: 42,
		Nodes: []core.NodeRecord{
			{ID: 1, Instance: core.Instance{1}, Incarnation: 5, Name: "alpha", Addr: "h1:1", Version: "v", Protocol: 1, Identity: "worker h1",
				State: core.Alive, Partitioned: true, Since: when, Joined: when},
			{ID: 2, Instance: core.Instance{2}, State: core.Dead, Reason: "nothing came", Since: when, Joined: when},
			{ID: 9, Instance: core.Instance{9}, State: core.Evicted, Reason: "evicted", Since: when, Joined: when, Until: when},
		},
		Claims: []core.ClaimRecord{
			{Node: 1, GID: core.GID{0xfe, 0x80}, Source: core.SourceMAC, Incarnation: 5, Made: when, State: core.Active, Since: when},
			{Node: 2, GID: core.GID{0xfe, 0x80, 15: 1}, Source: core.SourceQP, Made: when, State: core.Withdrawn, Since: when},
		},
	}
}

func TestCommittedStateIsLoadedAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if got := load(t, s); got.History != (core.History{7}) || got.Revision != 0 || len(got.Nodes)+len(got.Claims) != 0 {
		t.Fatalf("a new store holds %+v", got)
	}
	ch := sample()
	if err := s.Commit(ch); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir)
	want := core.State{History: ch.History, Revision: 42, Nodes: ch.Nodes, Claims: ch.Claims}
	if got := load(t, s); !reflect.DeepEqual(got, want) {
		t.Fatalf("loaded\n%+v\nwant\n%+v", got, want)
	}

	err := s.Commit(core.Changes{History: ch.History, Revision: 43, GoneNodes: []core.NodeID{9},
		GoneClaims: []core.ClaimKey{{GID: ch.Claims[0].GID, Node: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	got := load(t, s)
	if got.Revision != 43 || !reflect.DeepEqual(got.Nodes, ch.Nodes[:2]) || !reflect.DeepEqual(got.Claims, ch.Claims[1:]) {
		t.Fatalf("after removal %+v", got)
	}
}

func TestSecondManagerIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := Open(dir, core.History{})
	if err == nil || !strings.Contains(err.Error(), "in use by another manager") {
		t.Fatalf("error %v", err)
	}
}

func TestNewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(schemaKey, binary.BigEndian.AppendUint32(nil, Schema+1))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	before, _ := os.ReadFile(filepath.Join(dir, FileName))
	if _, err := Open(dir, core.History{}); err == nil || !strings.Contains(err.Error(), "schema 2") {
		t.Fatalf("error %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, FileName)); !reflect.DeepEqual(before, after) {
		t.Fatal("the file was changed")
	}
}

// TestDamageIsReportedNotEmptied damages a file in many ways. Whatever comes of it, it is an error or the state that was
// stored, never an empty mesh, and the file stays as it is.
func TestDamageIsReportedNotEmptied(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ch := sample()
	if err := s.Commit(ch); err != nil {
		t.Fatal(err)
	}
	s.Close()
	good, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	damages := map[string][]byte{
		"text":          []byte(strings.Repeat("this is no database\n", 1000)),
		"half a header": good[:page/2],
		"cut":           good[:2*page],
	}
	for i := 0; i+page <= len(good); i += page {
		for name, fill := range map[string]byte{"zeros": 0, "ones": 0xff} {
			bad := append([]byte(nil), good...)
			for j := range page {
				bad[i+j] = fill
			}
			damages[name+" in page "+string(rune('0'+i/page))] = bad
		}
	}
	reported := 0
	for name, bad := range damages {
		// A directory each: a file that bbolt panicked over stays locked until the process ends.
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		state, err := reopen(dir)
		if err == nil {
			if len(state.Nodes) == 0 || len(state.Claims) == 0 {
				t.Errorf("%s: an empty mesh was read", name)
			}
			continue
		}
		reported++
		var damaged *DamagedError
		if !errors.As(err, &damaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", name, err)
		}
		if after, _ := os.ReadFile(path); !reflect.DeepEqual(after, bad) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if reported < 3 {
		t.Errorf("only %d of %d damages were noticed", reported, len(damages))
	}
}

func reopen(dir string) (core.State, error) {
	s, err := Open(dir, core.History{})
	if err != nil {
		return core.State{}, err
	}
	defer s.Close()
	return s.Load()
}

func TestStateDirectoryThatCannotBeMadeIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "state"), core.History{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("error %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1}, []byte(`{"instance":"01000000000000000000000000000000","state":"alive"}`))
	f.Add(append([]byte{0, 0, 0, 1}, make([]byte, 16)...), []byte(`{"source":"mac","state":"active"}`))
	f.Add([]byte{}, []byte(`{`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if n, err := decodeNode(key, value); err == nil {
			if n.ID == core.Manager || n.ID == core.AnyNode || (n.State != core.Alive && n.State != core.Dead && n.State != core.Evicted) {
				t.Fatalf("%x %q gives %+v", key, value, n)
			}
		}
		if c, err := decodeClaim(key, value); err == nil && !c.Source.Valid() {
			t.Fatalf("%x %q gives %+v", key, value, c)
		}
	})
}

// TestRepairSavesWhatCanBeRead damages a file page by page, with a copy beside it and without.
func TestRepairSavesWhatCanBeRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ch := sample()
	// Enough claims for pages of their own.
	for i := range 600 {
		ch.Claims = append(ch.Claims, core.ClaimRecord{
			Node: core.NodeID(1 + i%2), GID: core.GID{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}, Source: core.SourceIP, Made: when,
			State: core.Active, Since: when,
		})
	}
	if err := s.Commit(ch); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	good, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	backup, err := os.ReadFile(filepath.Join(dir, BackupName))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	damaged, hopeless, partly := 0, 0, 0
	for i := 0; i+page <= len(good); i += page * 6 {
		for _, withCopy := range []bool{true, false} {
			bad := append([]byte(nil), good...)
			for j := range page {
				bad[i+j] = 0xee
			}
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if withCopy {
				if err := os.WriteFile(filepath.Join(dir, BackupName), backup, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := Repair(dir, core.History{8})
			if err != nil {
				if withCopy {
					t.Errorf("page %d, with a copy: %v", i/page, err)
				}
				if after, _ := os.ReadFile(path); !reflect.DeepEqual(after, bad) {
					t.Errorf("page %d: the file was changed", i/page)
				}
				hopeless++
				continue
			}
			if r.Sound {
				continue // a page that nothing stands in
			}
			damaged++
			if kept, err := os.ReadFile(r.Kept); err != nil || !reflect.DeepEqual(kept, bad) {
				t.Errorf("page %d: the damaged file was not kept: %v", i/page, err)
			}
			state, err := reopen(dir)
			switch {
			case err != nil:
				t.Errorf("page %d: after the repair: %v", i/page, err)
			case state.History != (core.History{8}) || len(state.Nodes) != r.Nodes || len(state.Claims) != r.Claims:
				t.Errorf("page %d: %+v, and %d nodes, %d claims of %s", i/page, r, len(state.Nodes), len(state.Claims), state.History)
			case withCopy && (len(state.Nodes) != len(ch.Nodes) || len(state.Claims) != len(ch.Claims)):
				t.Errorf("page %d: %d nodes and %d claims are left in spite of the copy", i/page, len(state.Nodes), len(state.Claims))
			}
			if !withCopy && r.Claims > 0 && r.Claims < len(ch.Claims) {
				partly++
			}
		}
	}
	t.Logf("%d files repaired, %d of them in part, %d beyond repair", damaged, partly, hopeless)
	if damaged < 4 || partly == 0 {
		t.Errorf("%d damages, %d repairs in part", damaged, partly)
	}
}

func TestRepairLeavesASoundFileAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Commit(sample()); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(dir, core.History{8}); err == nil || !strings.Contains(err.Error(), "in use by another manager") {
		t.Errorf("a file in use: %v", err)
	}
	s.Close()
	before, _ := os.ReadFile(filepath.Join(dir, FileName))
	r, err := Repair(dir, core.History{8})
	if err != nil || !r.Sound || r.Nodes != 3 || r.Claims != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, FileName)); !reflect.DeepEqual(before, after) {
		t.Error("it was changed")
	}
	if _, err := Repair(t.TempDir(), core.History{8}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestACopyIsKeptWhileTheStateChanges(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.KeepBackup(ctx, time.Millisecond, zerolog.Nop())
	}()
	if err := s.Commit(sample()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		other := t.TempDir()
		raw, err := os.ReadFile(filepath.Join(dir, BackupName))
		if err == nil {
			if err := os.WriteFile(filepath.Join(other, FileName), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if state, err := reopen(other); err == nil && state.Revision == 42 && len(state.Nodes) == 3 {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no copy of the state: %v", err)
		}
	}
	cancel()
	<-done
}

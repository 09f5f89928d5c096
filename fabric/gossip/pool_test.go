// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

func member(t *testing.T, n byte, key []byte, join *Pool) *Pool {
	t.Helper()
	p, err := Start(Config{Listen: "127.0.0.1:0", Key: key, Instance: [16]byte{n}, Fast: true, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if join != nil {
		joins(t, p, join)
	}
	return p
}

// joins makes p a member of the pool of another. On a machine that stands still a single attempt takes too long.
func joins(t *testing.T, p, other *Pool) {
	t.Helper()
	eventually(t, "the membership", func() bool { return p.Join(other.Addr()) == nil })
}

// answers waits until a member answers another.
func answers(t *testing.T, asking *Pool, n byte) {
	t.Helper()
	eventually(t, "an answer", func() bool { return asking.Ask([16]byte{n}) == nil })
}

func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		if ok() {
			return time.Since(begin)
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s did not come about", what)
	return 0
}

// heard returns the record of a member as another has it.
func heard(p *Pool, n byte) *ernicv1.GossipRecord {
	for _, r := range p.Records() {
		if r.GetInstance()[0] == n {
			return r
		}
	}
	return nil
}

func gids(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = append(make([]byte, 14), byte(i>>8), byte(i))
	}
	return list
}

func TestH7_WhatAMemberSaysReachesAllOthers(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	a := member(t, 1, key, nil)
	b, c := member(t, 2, key, a), member(t, 3, key, a)
	eventually(t, "the pool", func() bool { return a.Len() == 3 && b.Len() == 3 && c.Len() == 3 })
	b.Say(&ernicv1.GossipRecord{NodeId: 2, Address: "h2:1", Gids: gids(3)})
	took := eventually(t, "the record", func() bool { return len(heard(a, 2).GetGids()) == 3 && len(heard(c, 2).GetGids()) == 3 })
	t.Logf("a record reaches two others in %s", took)
	// One that does not fit into a datagram takes the other way, and replaces it.
	b.Say(&ernicv1.GossipRecord{NodeId: 2, Address: "h2:1", Gids: gids(2000)})
	took = eventually(t, "the large record", func() bool { return len(heard(a, 2).GetGids()) == 2000 && len(heard(c, 2).GetGids()) == 2000 })
	t.Logf("a record of 2,000 addresses reaches two others in %s", took)
	// A member that comes later hears it too.
	d := member(t, 4, key, c)
	eventually(t, "the record of before", func() bool { return len(heard(d, 2).GetGids()) == 2000 })
}

func TestH8_AMemberThatEndsIsGone(t *testing.T) {
	a := member(t, 1, nil, nil)
	b, c := member(t, 2, nil, a), member(t, 3, nil, a)
	eventually(t, "the pool", func() bool { return a.Len() == 3 && b.Len() == 3 && c.Len() == 3 })
	c.Say(&ernicv1.GossipRecord{NodeId: 3})
	eventually(t, "the record", func() bool { return heard(a, 3) != nil })
	answers(t, a, 2)
	if err := a.Ask([16]byte{9}); err == nil {
		t.Error("a member that never was answers")
	}
	if err := b.Leave(time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the farewell", func() bool { _, ok := a.Gone()[[16]byte{2}]; return ok })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Ask([16]byte{3}); err == nil {
		t.Error("a member that is dead answers")
	}
	took := eventually(t, "the death", func() bool { _, ok := a.Alive()[[16]byte{3}]; return !ok })
	t.Logf("a dead member is gone after %s", took)
	if heard(a, 3) != nil {
		t.Error("its record is still there")
	}
}

func TestAPoolIsClosedToThoseWithoutItsKey(t *testing.T) {
	a := member(t, 1, bytes.Repeat([]byte{7}, 16), nil)
	b := member(t, 2, bytes.Repeat([]byte{8}, 16), nil)
	if err := b.Join(a.Addr()); err == nil {
		t.Error("another key opened the pool")
	}
	c := member(t, 3, nil, nil)
	if err := c.Join(a.Addr()); err == nil {
		t.Error("the pool is open without a key")
	}
	if a.Len() != 1 {
		t.Errorf("%d members", a.Len())
	}
}

func TestReadKeySaysWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for text, ok := range map[string]bool{
		strings.Repeat("ab", 32) + "\n": true, strings.Repeat("ab", 16): true, strings.Repeat("ab", 15): false, "": false, "text": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := ReadKey(file); (err == nil) != ok || ok && len(key) != len(strings.TrimSpace(text))/2 {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadKey("/nonexistent"); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("no file: %v", err)
	}
}

// FuzzMessages feeds the pool what others may send. Nothing of no use is kept, and nobody speaks for the process itself.
func FuzzMessages(f *testing.F) {
	good := &ernicv1.GossipRecord{Instance: bytes.Repeat([]byte{5}, 16), Version: 1, NodeId: 5, Gids: gids(2)}
	f.Add(encode(good))
	f.Add(encode(&ernicv1.GossipRecords{Records: []*ernicv1.GossipRecord{good, {Instance: []byte{1}}}}))
	f.Add(encode(&ernicv1.GossipRecord{Instance: append([]byte{1}, make([]byte, 15)...), Version: 9, NodeId: 1}))
	f.Add([]byte{0xff, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &Pool{cfg: Config{Instance: [16]byte{1}}, records: make(map[[16]byte]*ernicv1.GossipRecord), wake: make(chan struct{}, 1)}
		p.queue.NumNodes = func() int { return 1 }
		p.queue.RetransmitMult = 1
		p.NotifyMsg(raw)
		p.MergeRemoteState(raw, false)
		for instance, r := range p.records {
			if err := check(r); err != nil || instance == p.cfg.Instance || instance != [16]byte(r.GetInstance()) {
				t.Errorf("kept %v: %v", r, err)
			}
		}
	})
}

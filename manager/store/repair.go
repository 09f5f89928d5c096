// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ernic-dev/ernic/manager/core"
)

// maxProbed is how many node ids are looked for one by one in a file whose order cannot be trusted.
const maxProbed = 1 << 16

// Repaired says what Repair did.
type Repaired struct {
	// Sound: there was nothing to repair, and nothing was done.
	Sound         bool
	Nodes, Claims int
	// FromBackup of them were not found in the damaged file.
	FromBackup int
	// Kept is where the damaged file is now.
	Kept string
	// Findings are what was wrong.
	Findings []string
}

// Repair makes a file that can be used again of what can be read of a damaged one, and of the copy beside it where that
// fails. The damaged file is kept under another name. history must be a new one: nobody may take the view that a worker
// holds for that of the repaired state. Nothing is changed if nothing at all can be read.
func Repair(dir string, history core.History) (*Repaired, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	s, err := Open(dir, history)
	var damaged *DamagedError
	if err == nil {
		var state core.State
		state, err = s.Load()
		err = errors.Join(err, s.Close())
		if err == nil {
			return &Repaired{Sound: true, Nodes: len(state.Nodes), Claims: len(state.Claims)}, nil
		}
	}
	if !errors.As(err, &damaged) {
		return nil, err
	}
	r := &Repaired{Findings: []string{damaged.Err.Error()}}
	found := newSalvage()
	if err := found.read(path); err != nil {
		r.Findings = append(r.Findings, err.Error())
	}
	r.FromBackup = -found.size()
	if err := found.read(filepath.Join(dir, BackupName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Findings = append(r.Findings, err.Error())
	}
	r.FromBackup += found.size()
	if len(found.nodes) == 0 {
		return nil, fmt.Errorf("%w; neither it nor its copy %s holds a node that can be read", damaged, BackupName)
	}
	state := found.changes(history)
	r.Nodes, r.Claims = len(state.Nodes), len(state.Claims)
	return r, r.replace(dir, state)
}

// replace puts a new file with a state in the place of the damaged one.
func (r *Repaired) replace(dir string, state core.Changes) error {
	work, err := os.MkdirTemp(dir, "repair-*")
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	s, err := Open(work, state.History)
	if err == nil {
		err = errors.Join(s.Commit(state), s.Close())
	}
	path := filepath.Join(dir, FileName)
	if err == nil {
		r.Kept = path + ".damaged-" + time.Now().UTC().Format("20060102-150405")
		err = os.Rename(path, r.Kept)
	}
	if err == nil {
		err = os.Rename(filepath.Join(work, FileName), path)
	}
	return errors.Join(err, os.RemoveAll(work))
}

// salvage is what was read of damaged files. What was read first counts.
type salvage struct {
	revision uint64
	nodes    map[core.NodeID]core.NodeRecord
	claims   map[core.ClaimKey]core.ClaimRecord
}

func newSalvage() *salvage {
	return &salvage{nodes: make(map[core.NodeID]core.NodeRecord), claims: make(map[core.ClaimKey]core.ClaimRecord)}
}

func (v *salvage) size() int { return len(v.nodes) + len(v.claims) }

// changes returns all that was read. Claims of nodes that were not are left out.
func (v *salvage) changes(history core.History) core.Changes {
	ch := core.Changes{History: history, Revision: v.revision + 1}
	for _, n := range v.nodes {
		ch.Nodes = append(ch.Nodes, n)
	}
	for _, c := range v.claims {
		if _, ok := v.nodes[c.Node]; ok {
			ch.Claims = append(ch.Claims, c)
		}
	}
	return ch
}

// read takes in what can be read of a file.
func (v *salvage) read(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	// A page that is not there faults, and one that is not what it should be makes bbolt panic. Each look is guarded for
	// itself, so that it costs no more than what it was after.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err := openCopy(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = guard(func() error { return db.View(func(tx *bbolt.Tx) error { return v.walk(tx) }) })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// Closing waits for transactions that a panic left open.
	go func() { _ = db.Close() }()
	return nil
}

// openCopy opens a copy of a file, which is removed at once: bbolt keeps a file locked that it has panicked over.
func openCopy(path string) (db *bbolt.DB, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ernic-salvage-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Join(dir, FileName)
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		return nil, err
	}
	err = guard(func() (err error) {
		db, err = bbolt.Open(name, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
		return err
	})
	return db, err
}

// guard turns a panic or a fault into an error.
func guard(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return do()
}

// walk takes in what a transaction can reach.
func (v *salvage) walk(tx *bbolt.Tx) error {
	var meta, nodes, claims *bbolt.Bucket
	for name, b := range map[string]**bbolt.Bucket{"meta": &meta, "nodes": &nodes, "claims": &claims} {
		// What cannot be reached stays nil.
		_ = guard(func() error { *b = tx.Bucket([]byte(name)); return nil })
	}
	if meta != nil {
		_ = guard(func() error {
			if raw := meta.Get(revisionKey); len(raw) == 8 {
				v.revision = max(v.revision, binary.BigEndian.Uint64(raw))
			}
			return nil
		})
	}
	if nodes == nil {
		return errors.New("its nodes cannot be reached")
	}
	lost := 0
	err := guard(func() error {
		return nodes.ForEach(func(k, raw []byte) error { return v.node(k, raw) })
	})
	for id := core.NodeID(1); err != nil && id <= maxProbed; id++ {
		if guard(func() error { return v.node(nodeKey(id), nodes.Get(nodeKey(id))) }) != nil {
			lost++
		}
	}
	for id := range v.nodes {
		if claims == nil {
			break
		}
		if guard(func() error { return v.claimsOf(claims, id) }) != nil {
			lost++
		}
	}
	if claims == nil {
		return errors.New("its claims cannot be reached")
	}
	if lost > 0 {
		return fmt.Errorf("%d places in it cannot be read", lost)
	}
	return nil
}

func (v *salvage) node(key, raw []byte) error {
	if raw == nil {
		return nil
	}
	rec, err := decodeNode(key, raw)
	if err != nil {
		return err
	}
	if _, known := v.nodes[rec.ID]; !known {
		v.nodes[rec.ID] = rec
	}
	return nil
}

// claimsOf takes in the claims of a node, as many as can be read.
func (v *salvage) claimsOf(b *bbolt.Bucket, id core.NodeID) error {
	var wrong error
	prefix := nodeKey(id)
	c := b.Cursor()
	for key, raw := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, raw = c.Next() {
		rec, err := decodeClaim(key, raw)
		if err != nil {
			wrong = err
			continue
		}
		k := core.ClaimKey{GID: rec.GID, Node: rec.Node}
		if _, known := v.claims[k]; !known {
			v.claims[k] = rec
		}
	}
	return wrong
}

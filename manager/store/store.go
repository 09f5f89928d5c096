// SPDX-License-Identifier: Apache-2.0

// Package store keeps the state of a manager in a bbolt file. A commit is one transaction that is on disk when it
// returns, so that a manager killed at any moment finds what it acknowledged.
//
//	meta    schema    uint32, big endian: the layout of this file
//	        history   16 bytes
//	        revision  uint64, big endian
//	nodes   uint32 id, big endian                  -> JSON
//	claims  uint32 id, big endian, 16 bytes GID    -> JSON
package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ernic-dev/ernic/manager/core"
	"github.com/ernic-dev/ernic/manager/record"
)

// Schema is the layout that this package writes. It reads no other.
const Schema = 1

// FileName is the name of the file in the state directory.
const FileName = "manager.db"

// lockWait is how long Open waits for another manager to let go of the file.
const lockWait = time.Second

var (
	metaBucket   = []byte("meta")
	nodesBucket  = []byte("nodes")
	claimsBucket = []byte("claims")

	schemaKey   = []byte("schema")
	historyKey  = []byte("history")
	revisionKey = []byte("revision")
)

// Store is an open file. Its methods must not run concurrently.
type Store struct {
	path    string
	db      *bbolt.DB
	commits atomic.Uint64
}

// DamagedError reports a file that cannot be read as what it should be. The file is left as it is.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the state in %s is damaged: %v; nothing was changed: start the manager with --repair to save what can be read of it and "+
		"of its copy, or move it away to start with an empty mesh (workers that are running keep their ids and addresses)", e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Open opens the state in a directory, and makes both if they are not there. history is the name of the history that a
// new file begins.
func Open(dir string, history core.History) (s *Store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(dir, FileName)
	defer catchDamage(path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("the state in %s is in use by another manager", path)
	case errors.Is(err, os.ErrPermission), errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("state file: %w", err)
	case err != nil:
		return nil, &DamagedError{path, err}
	}
	s = &Store{path: path, db: db}
	if err := s.prepare(history); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// catchDamage turns a panic or a fault inside bbolt, which is what a damaged page leads to, into an error.
func catchDamage(path string, err *error) {
	if r := recover(); r != nil {
		*err = &DamagedError{path, fmt.Errorf("%v", r)}
	}
}

// prepare lays a new file out and checks an old one.
func (s *Store) prepare(history core.History) error {
	empty := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			empty = true
			return nil
		}
		raw := meta.Get(schemaKey)
		if len(raw) != 4 {
			return &DamagedError{s.path, errors.New("it does not say which schema it has")}
		}
		if v := binary.BigEndian.Uint32(raw); v != Schema {
			return fmt.Errorf("the state in %s has schema %d, this manager reads schema %d: run the manager that wrote it", s.path, v, Schema)
		}
		if err := s.check(tx); err != nil {
			return &DamagedError{s.path, err}
		}
		return nil
	})
	if err != nil || !empty {
		return err
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{metaBucket, nodesBucket, claimsBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(metaBucket)
		return errors.Join(
			meta.Put(schemaKey, binary.BigEndian.AppendUint32(nil, Schema)),
			meta.Put(historyKey, history[:]),
			meta.Put(revisionKey, binary.BigEndian.AppendUint64(nil, 0)),
		)
	})
	if err != nil {
		return fmt.Errorf("state file %s: %w", s.path, err)
	}
	return nil
}

// check reads every page. bbolt's own check runs in a goroutine in which a fault would end the process, so what could
// fault is touched before it.
func (s *Store) check(tx *bbolt.Tx) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes and should have %d", info.Size(), tx.Size())
	}
	err = tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(_, _ []byte) error { return nil })
	})
	for problem := range tx.Check() {
		err = errors.Join(err, problem)
	}
	return err
}

// Load returns what was committed last.
func (s *Store) Load() (state core.State, err error) {
	defer catchDamage(s.path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = s.db.View(func(tx *bbolt.Tx) error {
		meta, nodes, claims := tx.Bucket(metaBucket), tx.Bucket(nodesBucket), tx.Bucket(claimsBucket)
		if meta == nil || nodes == nil || claims == nil {
			return errors.New("a bucket is missing")
		}
		history, revision := meta.Get(historyKey), meta.Get(revisionKey)
		if len(history) != 16 || len(revision) != 8 {
			return errors.New("it does not say which revision it holds")
		}
		state.History = core.History(history)
		state.Revision = binary.BigEndian.Uint64(revision)
		err := nodes.ForEach(func(k, v []byte) error {
			rec, err := decodeNode(k, v)
			state.Nodes = append(state.Nodes, rec)
			return err
		})
		if err != nil {
			return err
		}
		return claims.ForEach(func(k, v []byte) error {
			rec, err := decodeClaim(k, v)
			state.Claims = append(state.Claims, rec)
			return err
		})
	})
	if err != nil {
		return core.State{}, &DamagedError{s.path, err}
	}
	return state, nil
}

// Commit stores changes, all or nothing.
func (s *Store) Commit(ch core.Changes) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		meta, nodes, claims := tx.Bucket(metaBucket), tx.Bucket(nodesBucket), tx.Bucket(claimsBucket)
		if err := meta.Put(historyKey, ch.History[:]); err != nil {
			return err
		}
		if err := meta.Put(revisionKey, binary.BigEndian.AppendUint64(nil, ch.Revision)); err != nil {
			return err
		}
		for i := range ch.Nodes {
			if err := nodes.Put(nodeKey(ch.Nodes[i].ID), record.EncodeNode(&ch.Nodes[i])); err != nil {
				return err
			}
		}
		for _, id := range ch.GoneNodes {
			if err := nodes.Delete(nodeKey(id)); err != nil {
				return err
			}
		}
		for i := range ch.Claims {
			rec := &ch.Claims[i]
			if err := claims.Put(claimKey(rec.Node, rec.GID), record.EncodeClaim(rec)); err != nil {
				return err
			}
		}
		for _, key := range ch.GoneClaims {
			if err := claims.Delete(claimKey(key.Node, key.GID)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state file %s: %w", s.path, err)
	}
	s.commits.Add(1)
	return nil
}

// Path returns the name of the file.
func (s *Store) Path() string { return s.path }

// Close lets go of the file.
func (s *Store) Close() error { return s.db.Close() }

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"
)

// BackupName is the name of the copy that is kept beside the file.
const BackupName = FileName + ".backup"

// Backup writes a copy of the state beside it, in place of the one before. It may run concurrently with the other methods.
func (s *Store) Backup() error {
	path := filepath.Join(filepath.Dir(s.path), BackupName)
	temporary := path + ".new"
	err := s.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(temporary, 0o600) })
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy of the state: %w", err), removeIfThere(temporary))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// KeepBackup writes a copy now and then one every so often if something has changed, until ctx ends.
func (s *Store) KeepBackup(ctx context.Context, every time.Duration, log zerolog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for copied := ^uint64(0); ; {
		if now := s.commits.Load(); now != copied {
			if err := s.Backup(); err != nil {
				log.Warn().Err(err).Msg("the state cannot be copied")
			} else {
				copied = now
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/worker/stats/section"
)

// File keeps a file current: a snapshot is written when it is opened, then every
// Interval, then once more at the end. A reader always finds a whole one, as each
// is written beside the file and renamed over it.
type File struct {
	Path     string
	Format   section.Format
	Interval time.Duration
	QPs      int // queue pairs to show one by one
	Source   *Source
	Log      zerolog.Logger

	buf     []byte
	failing bool
}

// Write writes a snapshot now.
func (f *File) Write() error {
	f.buf = section.Encode(f.buf[:0], f.Format, f.Source.Take(f.QPs).Sections())
	next := f.Path + ".new"
	if err := os.WriteFile(next, f.buf, 0o644); err != nil {
		return fmt.Errorf("stats file: %w", err)
	}
	if err := os.Rename(next, f.Path); err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("stats file: %w", err)
	}
	return nil
}

// Run writes at every interval until ctx ends. A disk that is full is logged
// once, and tried again: it is no reason to take the NIC away from a guest.
func (f *File) Run(ctx context.Context) error {
	t := time.NewTicker(f.Interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f.report(f.Write())
		case <-ctx.Done():
			f.report(f.Write())
			return nil
		}
	}
}

// report logs the first of a series of errors, and the end of the series.
func (f *File) report(err error) {
	switch {
	case err != nil && !f.failing:
		f.Log.Error().Err(err).Str("path", f.Path).Msg("stats file cannot be written; it is tried again every interval")
	case err == nil && f.failing:
		f.Log.Info().Str("path", f.Path).Msg("stats file is written again")
	}
	f.failing = err != nil
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/ernic-dev/ernic/worker/stats/section"
)

func TestFileRun_WritesAtEveryIntervalAndAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats")
	synctest.Test(t, func(t *testing.T) {
		n := uint64(0)
		f := &File{
			Path: path, Format: section.Text, Interval: time.Second, Log: zerolog.Nop(),
			Source: &Source{Carrier: func(count func(string, uint64)) { n++; count("writes", n) }},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			b, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(b), "writes : "+want+"\n") {
				t.Errorf("want write %s, have %v\n%s", want, err, b)
			}
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if _, err := os.Stat(path); err == nil {
			t.Error("written before the interval was over")
		}
		time.Sleep(time.Millisecond)
		expect("1")
		time.Sleep(2 * time.Second)
		expect("3")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect("4")
	})
}

func TestFileRun_SaysOnceThatItCannotWriteAndGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &File{Path: filepath.Join(dir, "stats"), Format: section.JSON, Interval: time.Second, Source: new(Source), Log: zerolog.New(&log)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		time.Sleep(5500 * time.Millisecond)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(f.Path); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "cannot be written"); n != 1 || strings.Count(log.String(), "written again") != 1 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

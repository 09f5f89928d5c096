// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errMirror = errors.New("503 the mirror is away")

func TestAttemptOutlastsAMirrorThatIsAway(t *testing.T) {
	for _, c := range []struct {
		failures, calls int
		want            error
	}{{0, 1, nil}, {1, 2, nil}, {2, 3, nil}, {9, 3, errMirror}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := attempt(t.Context(), nil, func() error {
				if calls++; calls <= c.failures {
					return errMirror
				}
				return nil
			})
			if !errors.Is(err, c.want) || calls != c.calls {
				t.Errorf("%d failures: %d calls, %v; want %d, %v", c.failures, calls, err, c.calls, c.want)
			}
		})
	}
}

func TestAttemptEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), pauses[0]/2)
		defer cancel()
		begun := time.Now()
		err := attempt(ctx, nil, func() error { return errMirror })
		if !errors.Is(err, errMirror) || time.Since(begun) >= pauses[0] {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

func TestEachAttemptStartsFromNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &build{ctx: t.Context(), dir: dir, log: &buildLog{w: io.Discard}}
		calls := 0
		err := b.persist(func(b *build) error {
			if left, err := os.ReadDir(b.dir); err != nil || len(left) != 0 {
				t.Errorf("call %d finds %v, %v", calls, left, err)
			}
			if err := os.MkdirAll(filepath.Join(b.dir, "tree", "half"), 0o755); err != nil {
				return err
			}
			if calls++; calls < 3 {
				return errMirror
			}
			return nil
		})
		if err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
	if _, err := os.Stat(filepath.Join(dir, "tree")); err != nil {
		t.Errorf("what the last attempt made: %v", err)
	}
}

func TestFreeSpaceIsOfTheDirectoryAskedFor(t *testing.T) {
	if err := enoughSpace("/proc"); err == nil || !strings.Contains(err.Error(), "/proc") {
		t.Errorf("a file system without space: %v", err)
	}
	if err := enoughSpace("/no/such/directory"); err == nil || !strings.Contains(err.Error(), "/no/such/directory") {
		t.Errorf("no directory: %v", err)
	}
}

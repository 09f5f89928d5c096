// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal(ErrNotRoot)
	}
}

func TestIsolatedWorkLeavesNoMount(t *testing.T) {
	needRoot(t)
	before, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out bytes.Buffer
	b := &build{ctx: t.Context(), log: &buildLog{w: &bytes.Buffer{}}}
	if err := b.isolated(nil, &out, "sh", "-c", `mount -t tmpfs none "$1" && grep -c "$1" /proc/mounts; exit 3`, "sh", dir); err == nil {
		t.Error("the script's failure got lost")
	}
	if strings.TrimSpace(out.String()) != "1" {
		t.Errorf("inside, the mount was seen %q times", out.String())
	}
	after, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(after), dir) {
		t.Errorf("mounts before:\n%s\nafter:\n%s", before, after)
	}
}

func TestCancelledWorkLeavesNoProcess(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	marker := "86399." + strconv.Itoa(os.Getpid())
	b := &build{ctx: ctx, log: &buildLog{w: &bytes.Buffer{}}}
	done := make(chan error, 1)
	go func() {
		done <- b.isolated(nil, b.log, "sh", "-c", "sleep "+marker+" & setsid sleep "+marker+" & wait")
	}()
	waitFor(t, "the two sleeps to run", func() bool { return processesWith(t, marker) >= 3 })
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	waitFor(t, "all of it to be gone", func() bool { return processesWith(t, marker) == 0 })
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// processesWith counts processes whose command line contains a marker.
func processesWith(t *testing.T, marker string) (n int) {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		if strings.Contains(string(b), marker) {
			n++
		}
	}
	return n
}

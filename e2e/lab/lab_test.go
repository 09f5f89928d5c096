// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ernic-dev/ernic/e2e/lab/child"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

func testNetwork(t *testing.T, taps, mtu int) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal(image.ErrNotRoot)
	}
	n, err := NewNetwork(t.Context(), taps, mtu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func TestNetworkHasTAPsThatOnlyItsProgramsSee(t *testing.T) {
	n := testNetwork(t, 2, 4200)
	out, err := n.Run(t.Context(), "sh", "-c", "cat /sys/class/net/tap1/mtu /sys/class/net/"+Bridge+"/operstate; ls /sys/class/net/"+Bridge+"/brif")
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(out); len(f) != 4 || f[0] != "4200" || f[2] != n.Tap(0) || f[3] != n.Tap(1) {
		t.Errorf("inside: %q", out)
	}
	if _, err := net.InterfaceByName(n.Tap(0)); err == nil {
		t.Errorf("%s is in this process's network too", n.Tap(0))
	}
	if _, err := n.Run(t.Context(), "ip", "link", "show", "nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a failing program: %v", err)
	}
}

func TestNetworkCarriesConnectionsInside(t *testing.T) {
	n := testNetwork(t, 0, 0)
	var l net.Listener
	if err := n.thread.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := n.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		c.Close()
		t.Error("the address is reachable from outside")
	}
	if _, err := n.Dial(t.Context(), "tcp", "localhost:1"); err == nil || !strings.Contains(err.Error(), "IP") {
		t.Errorf("a name: %v", err)
	}
}

func TestNetworkEndsWithItsPrograms(t *testing.T) {
	n := testNetwork(t, 1, 0)
	p, err := startProgram(Program{Name: "sleep", Path: "sleep", Args: []string{"600"}}, filepath.Join(t.TempDir(), "log"), n.Start)
	if err != nil {
		t.Fatal(err)
	}
	if got := netInode(t, p.PID()); got != n.Inode() {
		t.Errorf("the program is in network %d, not in %d", got, n.Inode())
	}
	n.Close()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("a program outlived its network")
	}
	if _, err := n.Run(t.Context(), "true"); !errors.Is(err, child.ErrClosed) {
		t.Errorf("a closed network: %v", err)
	}
}

func netInode(t *testing.T, pid int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestNetworkRefusesNonsense(t *testing.T) {
	for _, c := range [][2]int{{-1, 0}, {1001, 0}, {1, -1}, {1, 1 << 20}} {
		if n, err := NewNetwork(t.Context(), c[0], c[1]); err == nil {
			n.Close()
			t.Errorf("%d TAPs of %d bytes were made", c[0], c[1])
		}
	}
}

func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := startProgram(Program{Name: "prog", Path: "sh", Args: []string{"-c", script}}, filepath.Join(t.TempDir(), "log"), child.Start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestProgramIsWatched(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := shell(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	if err := p.WaitLog(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(p.LogPath()); err != nil || string(b) != "ready\nbye\n" || p.Log() != string(b) {
		t.Errorf("log %q, file %q, %v", p.Log(), b, err)
	}
	if p.endedUnasked() {
		t.Error("it ended because it was asked to")
	}
}

func TestProgramThatFailsIsNamedWithItsLastWords(t *testing.T) {
	p := shell(t, "echo 'cannot open tap9' >&2; exit 4")
	for what, err := range map[string]error{"WaitLog": p.WaitLog(t.Context(), "ready"), "Wait": p.Wait(t.Context()), "Stop": p.Stop(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "prog") || !strings.Contains(err.Error(), "cannot open tap9") || !strings.Contains(err.Error(), "exit status 4") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !p.endedUnasked() {
		t.Error("nobody asked it to end")
	}
}

func TestProgramThatIgnoresSIGTERMIsKilledAndReported(t *testing.T) {
	p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	if err := p.WaitLog(t.Context(), "ready"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "had to be killed") {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it lives: %v", err)
	}
}

func TestSocketIsFoundInsideAndOutsideTheNetwork(t *testing.T) {
	l := &Lab{Network: testNetwork(t, 0, 0)}
	dir := t.TempDir()
	for _, where := range []string{"inside", "outside"} {
		path := filepath.Join(dir, where)
		listen := func() error {
			s, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { s.Close() })
			}
			return err
		}
		if yes, err := l.listening(path); yes || err != nil {
			t.Errorf("%s, before: %v, %v", where, yes, err)
		}
		var err error
		if where == "inside" {
			err = l.Network.thread.Do(listen)
		} else {
			err = listen()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.WaitSocket(t.Context(), path); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := l.WaitSocket(ctx, filepath.Join(dir, "nobody")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listens: %v", err)
	}
	l.programs = []*Process{shell(t, "echo no such TAP; exit 1")}
	<-l.programs[0].Done()
	if err := l.WaitSocket(t.Context(), filepath.Join(dir, "nobody")); err == nil || !strings.Contains(err.Error(), "no such TAP") {
		t.Errorf("the program that should listen has ended: %v", err)
	}
}

func TestRunDirectoriesOfTheDeadAreSwept(t *testing.T) {
	root := t.TempDir()
	living, err := newRunDir(root, "living", false)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newRunDir(root, "dead", false)
	if err != nil {
		t.Fatal(err)
	}
	// What the kernel does at the end of a process.
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := newRunDir(root, "next", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead one is left: %v", err)
	}
	if _, err := os.Stat(living.path); err != nil {
		t.Errorf("the living one is gone: %v", err)
	}
	if _, err := newRunDir(root, "next", true); err == nil || !strings.Contains(err.Error(), "next") {
		t.Errorf("a second lab of one name: %v", err)
	}
	for _, d := range []*runDir{living, next} {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", d.path, err)
		}
	}
}

func TestEveryCloseReturnsWhenAllIsDone(t *testing.T) {
	dir, err := newRunDir(t.TempDir(), "x", false)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{dir: dir, logDir: dir.path, release: func() {}}
	p, err := l.Start(Program{Name: "slow", Path: "sh", Args: []string{"-c", "trap 'sleep 0.2; exit 5' TERM; echo ready; while :; do sleep 0.01; done"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitLog(t.Context(), "ready"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := l.Close(); err == nil || !strings.Contains(err.Error(), "exit status 5") {
				t.Errorf("the program's status got lost: %v", err)
			}
			if _, err := os.Stat(dir.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("closed, and the run directory is there: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := l.Start(Program{Name: "late", Path: "true"}); !errors.Is(err, errClosed) {
		t.Errorf("a program in a closed lab: %v", err)
	}
}

func TestListensAtReadsTheKernelsTable(t *testing.T) {
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/x/w1.sock
0000000000000000: 00000003 00000000 00000000 0001 03 12346 /run/x/w2.sock
0000000000000000: 00000002 00000000 00010000 0001 01 12347
0000000000000000: 00000002 00000000 00010000 0001 01 12348 @abstract
`
	for path, want := range map[string]bool{"/run/x/w1.sock": true, "/run/x/w2.sock": false, "/run/x/w": false, "": false} {
		if got := listensAt(table, path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

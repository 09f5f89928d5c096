// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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

	"github.com/ernic-dev/ernic/e2e/guest/wire"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
)

// testReaper is one for all tests: it waits for every child of this process.
var testReaper = sync.OnceValue(newReaper)

// virtioSerial is a port of an agent whose other end is a Unix socket, as QEMU
// offers it. One host is connected at a time; bytes of a host that has gone stay
// in the port.
func virtioSerial(t *testing.T) (socket string, off <-chan struct{}) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	powered := make(chan struct{})
	var once sync.Once
	p := &port{fd: pair[0], reaper: testReaper(), powerOff: func() { once.Do(func() { close(powered) }) }}
	go p.serve()

	socket = filepath.Join(t.TempDir(), "a")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	outer := os.NewFile(uintptr(pair[1]), "port")
	var mu sync.Mutex
	var host net.Conn
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := outer.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			c := host
			mu.Unlock()
			if c != nil {
				c.Write(b[:n])
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			host = c
			mu.Unlock()
			b := make([]byte, 1<<16)
			for {
				n, err := c.Read(b)
				if n > 0 {
					outer.Write(b[:n])
				}
				if err != nil {
					break
				}
			}
			mu.Lock()
			host = nil
			mu.Unlock()
			c.Close()
		}
	}()
	return socket, powered
}

func dial(t *testing.T, socket string) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := guest.Dial(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCommandsRunOverOneLine(t *testing.T) {
	socket, _ := virtioSerial(t)
	c := dial(t, socket)
	if c.Info.CPUs < 1 || c.Info.Kernel == "" {
		t.Errorf("the welcome says %+v", c.Info)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			in := strings.Repeat(fmt.Sprintf("line of %d\n", i), 5000)
			r, err := c.Run(t.Context(), guest.Cmd{Argv: []string{"sh", "-c", "cat; echo done >&2; exit $CODE"},
				Env: []string{fmt.Sprint("CODE=", i)}, Stdin: strings.NewReader(in)})
			var x *guest.ExitError
			if i != 0 && (!errors.As(err, &x) || x.Code != i) || i == 0 && err != nil {
				t.Errorf("command %d: %v", i, err)
			}
			if r.Stdout != in || r.Stderr != "done\n" || r.Code != i {
				t.Errorf("command %d: %d of %d bytes, %q, exit status %d", i, len(r.Stdout), len(in), r.Stderr, r.Code)
			}
		})
	}
	wg.Wait()
}

func TestCommandThatReadsNoInputDoesNotHoldTheLine(t *testing.T) {
	socket, _ := virtioSerial(t)
	c := dial(t, socket)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in := bytes.NewReader(make([]byte, 20<<20))
	if _, err := c.Run(ctx, guest.Cmd{Argv: []string{"true"}, Stdin: in}); err != nil {
		t.Errorf("true with 20 MiB of input: %v", err)
	}
	if r, err := c.Run(ctx, guest.Shell("echo next")); err != nil || r.Output() != "next" {
		t.Errorf("the next command: %q, %v", r.Output(), err)
	}
}

func TestUploadWritesWithItsMode(t *testing.T) {
	socket, _ := virtioSerial(t)
	c := dial(t, socket)
	path := filepath.Join(t.TempDir(), "new", "file")
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	if err := c.Upload(t.Context(), path, 0o751, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes arrived: %v", len(got), len(data), err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o751 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := c.Upload(t.Context(), "/dev/null/file", 0o600, bytes.NewReader(data)); err == nil {
		t.Error("an upload below a file succeeded")
	}
}

func TestNextHostFindsACleanAgent(t *testing.T) {
	socket, _ := virtioSerial(t)
	marker := filepath.Join(t.TempDir(), "pid")
	first := dial(t, socket)
	if _, err := first.Start(t.Context(), guest.Shellf("echo $$ >%s; while :; do echo noise; done", marker)); err != nil {
		t.Fatal(err)
	}
	var pid int
	eventually(t, "the noise to start", func() bool {
		b, err := os.ReadFile(marker)
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(b), &pid)
		return err == nil
	})
	first.Close()
	second := dial(t, socket)
	if r, err := second.Run(t.Context(), guest.Shell("echo quiet")); err != nil || r.Stdout != "quiet\n" {
		t.Errorf("the second host gets %q, %v", r.Stdout, err)
	}
	eventually(t, "the first host's command to end", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

func TestAgentSkipsWhatIsNoFrame(t *testing.T) {
	socket, off := virtioSerial(t)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	junk := append([]byte("the tail of something"), wire.Append(nil, wire.Frame{Type: wire.Welcome, Stream: 3})...)
	junk = wire.Append(junk, wire.Frame{Type: wire.Start, Stream: 9, Payload: []byte("{not json")})
	junk = wire.Append(junk, wire.Frame{Type: wire.Stdin, Stream: 77, Payload: []byte("nobody's")})
	junk = wire.Append(junk, wire.Frame{Type: wire.Signal, Stream: 77, Payload: []byte{9}})
	if _, err := conn.Write(junk); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	c := dial(t, socket)
	if r, err := c.Run(t.Context(), guest.Shell("echo fine")); err != nil || r.Output() != "fine" {
		t.Errorf("after junk: %q, %v", r.Output(), err)
	}
	if err := c.PowerOff(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-off:
	case <-time.After(time.Minute):
		t.Error("the agent does not power off")
	}
}

func TestOrphansAreBuried(t *testing.T) {
	// Orphans of this test's children come to this process, as they come to
	// process 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	socket, _ := virtioSerial(t)
	c := dial(t, socket)
	r, err := c.Run(t.Context(), guest.Shell("sleep 0.05 >/dev/null 2>&1 & echo $!"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan to be buried", func() bool {
		_, err := os.Stat("/proc/" + r.Output())
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestLookPathTakesTheLastPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nowhere", "PATH=" + dir}
	if got, err := lookPath("tool", env); err != nil || got != filepath.Join(dir, "tool") {
		t.Errorf("got %q, %v", got, err)
	}
	for _, name := range []string{"text", "absent"} {
		if got, err := lookPath(name, env); err == nil {
			t.Errorf("%s was found at %q", name, got)
		}
	}
	if got, err := lookPath("./x", env); err != nil || got != "./x" {
		t.Errorf("a path: %q, %v", got, err)
	}
}

func TestKernelWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cmdline")
	if err := os.WriteFile(path, []byte("quiet ernic.root=/dev/vda  x=a=b ernic.probe\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := kernelWords(path)
	if err != nil || fmt.Sprint(got) != "map[ernic.probe: ernic.root:/dev/vda quiet: x:a=b]" {
		t.Errorf("got %v, %v", got, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/e2e/program"
	"github.com/ernic-dev/ernic/e2e/verdict"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// disk is a small file system that only processes in its mount namespace see.
type disk struct {
	t      *verdict.T
	dir    string
	holder *exec.Cmd // keeps the namespace
}

func newDisk(t *verdict.T, size string) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	d.holder = exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size="+size+" small "+d.dir+" && echo ready && exec cat")
	in, err := d.holder.StdinPipe()
	t.Must(err)
	out, err := d.holder.StdoutPipe()
	t.Must(err)
	t.Must(d.holder.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = d.holder.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("mount: %q, %v", line, err)
	}
	return d
}

// inside is the beginning of a command in the namespace.
func (d *disk) inside() []string {
	return []string{"nsenter", "--target", fmt.Sprint(d.holder.Process.Pid), "--mount", "--"}
}

func (d *disk) run(args ...string) {
	d.t.Helper()
	args = append(d.inside(), args...)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// manager starts a manager on the disk, on an address of loopback that is the test's alone.
func (d *disk) manager(listen string) *program.Process {
	d.t.Helper()
	return program.Start(d.t, "a manager on a small disk", append(d.inside(),
		program.Path("ernic-manager"), "--log-format", "json", "--listen", listen, "--state-dir", filepath.Join(d.dir, "state"))...)
}

func claimed(s *session.Session) (acknowledged, all int) {
	for _, c := range s.Claims() {
		all++
		if c.GetAcknowledged() {
			acknowledged++
		}
	}
	return acknowledged, all
}

// TestI4_AFullDiskIsSurvived fills the disk of a manager under it, frees it again, and then kills the manager.
func TestI4_AFullDiskIsSurvived(tt *testing.T) {
	t := verdict.New(tt)
	d := newDisk(t, "16m")
	pid := os.Getpid()
	listen := fmt.Sprintf("127.%d.%d.%d:6320", 128+pid>>16&63, pid>>8&255, pid&255)
	m := d.manager(listen)
	s, err := session.New(session.Config{
		Manager: listen, Name: "claimer", Addr: "claimer.test:7000", Log: zerolog.Nop(),
		Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	t.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		t.Must(<-done)
	})
	next := 0
	claim := func(n int) {
		t.Helper()
		for range n {
			next++
			t.Must(s.Claim([16]byte{0: 0xfd, 14: byte(next >> 8), 15: byte(next)}, ernicv1.ClaimSource_CLAIM_SOURCE_IP))
		}
	}
	served := func(what string) {
		t.Helper()
		t.Eventually(what, func() bool {
			n, all := claimed(s)
			return all == next && n == all
		})
	}
	claim(200)
	served("claims on a disk with room")
	// All the room that is left, and a claim or two thousand more.
	d.run("sh", "-c", "cat /dev/zero > "+d.dir+"/filler 2>/dev/null || true")
	claim(2000)
	served("claims on a full disk")
	t.Eventually("the news that the disk is full", func() bool { return strings.Contains(m.Log(), "the state cannot be stored") })
	claim(100)
	d.run("rm", d.dir+"/filler")
	t.Eventually("the state stored again", func() bool { return strings.Contains(m.Log(), "the state is stored again") })
	served("claims on a disk with room again")
	m.End(syscall.SIGKILL)
	m = d.manager(listen)
	id, _ := s.NodeID()
	t.Eventually("the worker", func() bool {
		return strings.Contains(m.Log(), fmt.Sprintf(`"claims":%d`, next)) &&
			s.Status().GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED
	})
	if now, _ := s.NodeID(); now != id {
		t.Errorf("node %d is node %d", id, now)
	}
	m.End(syscall.SIGKILL)

	// Read-only: it does not start, says why, and changes nothing.
	d.run("mount", "-o", "remount,ro", d.dir)
	m = d.manager(listen)
	m.Wait()
	if text := m.Log(); !strings.Contains(text, "read-only file system") || !strings.Contains(text, filepath.Join(d.dir, "state")) {
		t.Errorf("on a disk that is read-only:\n%s", m.Tail())
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
	"github.com/ernic-dev/ernic/worker/session"
)

// asManager in the environment makes the test binary be the program.
const asManager = "TEST_RUN_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is the program in a process of its own.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string

	mu  sync.Mutex // guards log
	log bytes.Buffer
	// closed is closed when the log has ended.
	closed chan struct{}
}

// start starts the program and waits until it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], append([]string{"--log-format", "json"}, args...)...), closed: make(chan struct{})}
	// A program with the race detector sleeps for a second when it ends, unless it is told not to.
	p.cmd.Env = append(os.Environ(), asManager+"=1", "GORACE=atexit_sleep_ms=0")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go func() {
		defer close(p.closed)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			p.log.Write(lines.Bytes())
			p.log.WriteByte('\n')
			p.mu.Unlock()
			var entry struct{ Message, Listen string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Message == "listening" {
				listening <- entry.Listen
			}
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			<-p.closed
			_ = p.cmd.Wait()
		}
	})
	select {
	case p.address = <-listening:
	case <-p.closed:
		t.Fatalf("the manager ended:\n%s", p.text())
	case <-time.After(time.Minute):
		t.Fatalf("the manager does not listen:\n%s", p.text())
	}
	return p
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// end sends a signal and returns the exit status and how long it took.
func (p *process) end(s syscall.Signal) (int, time.Duration) {
	p.t.Helper()
	begin := time.Now()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	<-p.closed
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode(), time.Since(begin)
}

// worker starts a worker that ends with the test.
func worker(t *testing.T, address, name string) *session.Session {
	t.Helper()
	s, err := session.New(session.Config{
		Manager: address, Name: name, Addr: name + ".test:7000", Log: zerolog.Nop(),
		Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func acknowledged(s *session.Session) (n int) {
	for _, c := range s.Claims() {
		if c.GetAcknowledged() {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come about", what)
}

func registered(s *session.Session) bool {
	return s.Status().GetSession() == ernicv1.SessionState_SESSION_STATE_REGISTERED
}

func address(i int) [16]byte { return [16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)} }

// ownAddress returns an address of this host that nobody else uses, so that a manager finds it free after a restart.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d:6320", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// TestI4_KilledAtAnyMomentItLosesNothingItAcknowledged kills the manager with SIGKILL while workers claim addresses, over
// and over. What was acknowledged must be there when it is back, before any worker has come back and said so: it is
// asked through a worker that never claimed anything.
func TestI4_KilledAtAnyMomentItLosesNothingItAcknowledged(t *testing.T) {
	dir, at := t.TempDir(), ownAddress()
	args := []string{"--listen", at, "--state-dir", dir, "--health-interval", "2s"}
	p := start(t, args...)
	w := worker(t, at, "claimer")
	eventually(t, "the registration", func() bool { return registered(w) })
	id, _ := w.NodeID()
	next := 1
	for round := range 5 {
		stop := time.After(time.Duration(20+rand.IntN(150)) * time.Millisecond)
	claiming:
		for {
			if err := w.Claim(address(next), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
				t.Fatal(err)
			}
			next++
			select {
			case <-stop:
				break claiming
			case <-time.After(time.Millisecond):
			}
		}
		if status, _ := p.end(syscall.SIGKILL); status != -1 {
			t.Fatalf("status %d", status)
		}
		safe := 0
		var lost [][16]byte
		for _, c := range w.Claims() {
			if c.GetAcknowledged() {
				safe++
				lost = append(lost, [16]byte(c.GetGid()))
			}
		}
		// The store is looked at by a manager that the worker does not find.
		shadow := start(t, "--listen", "127.0.0.1:0", "--state-dir", dir)
		witness := worker(t, shadow.address, fmt.Sprint("witness", round))
		eventually(t, "the witness", func() bool { return registered(witness) && witness.Mesh().Revision > 0 })
		for _, g := range lost {
			if got, ok := witness.Resolve(g); !ok || got != id {
				t.Fatalf("round %d: %x was acknowledged and resolves to node %d, %v", round, g, got, ok)
			}
		}
		shadow.end(syscall.SIGTERM)
		begin := time.Now()
		p = start(t, args...)
		eventually(t, "all claims", func() bool { return registered(w) && acknowledged(w) == next-1 })
		if got, _ := w.NodeID(); got != id {
			t.Fatalf("the worker was node %d and is node %d", id, got)
		}
		t.Logf("round %d: %d of %d claims were acknowledged; all was well %s after the start", round, safe, next-1, time.Since(begin))
	}
}

func TestSIGTERMEndsItWithinTwoSeconds(t *testing.T) {
	p := start(t, "--listen", "127.0.0.1:0", "--state-dir", t.TempDir())
	for i := range 5 {
		w := worker(t, p.address, fmt.Sprint("w", i))
		eventually(t, "the registration", func() bool { return registered(w) })
	}
	// Connections that say nothing must not hold it up either.
	for range 20 {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	status, took := p.end(syscall.SIGTERM)
	if status != 0 || took > 2*time.Second {
		t.Errorf("status %d after %s:\n%s", status, took, p.text())
	}
}

func TestS4_GarbageAndSilentConnectionsDelayNobody(t *testing.T) {
	p := start(t, "--listen", "127.0.0.1:0", "--state-dir", "none")
	for i := range 300 {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%3 == 0 {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}
		if i%3 == 1 {
			_, _ = c.Write(bytes.Repeat([]byte{0xff, 0, 7}, 1000))
		}
	}
	begin := time.Now()
	w := worker(t, p.address, "w")
	eventually(t, "the registration", func() bool { return registered(w) })
	t.Logf("registered after %s", time.Since(begin))
	if strings.Contains(p.text(), "panic") {
		t.Errorf("log:\n%s", p.text())
	}
}

func TestH5_AStalledManagerWithdrawsNobody(t *testing.T) {
	p := start(t, "--listen", "127.0.0.1:0", "--state-dir", "none", "--health-interval", "200ms")
	w, other := worker(t, p.address, "w1"), worker(t, p.address, "w2")
	if err := w.Claim(address(1), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim", func() bool { _, ok := other.Resolve(address(1)); return ok })
	// Long enough for both sides to have given each other up by the clock.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the return", func() bool { return registered(w) && registered(other) })
	time.Sleep(time.Second)
	if _, ok := other.Resolve(address(1)); !ok {
		t.Error("the address no longer resolves")
	}
	if strings.Contains(p.text(), "node_dead") {
		t.Errorf("a node was declared dead:\n%s", p.text())
	}
	if !strings.Contains(p.text(), "manager_stalled") {
		t.Errorf("the stall was not noticed:\n%s", p.text())
	}
}

func TestS1_OnlyLoopbackIsServedInTheClear(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:6320", "host.example:6320"} {
		status, errs := run2(t, "--listen", listen, "--state-dir", "none")
		if status != 2 || !strings.Contains(errs, "--insecure") || !strings.Contains(errs, listen) {
			t.Errorf("%s: status %d, %s", listen, status, errs)
		}
	}
	p := start(t, "--listen", "0.0.0.0:0", "--insecure", "--state-dir", "none")
	if status, _ := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("with --insecure: status %d", status)
	}
}

// run2 runs the program to its end in this process.
func run2(t *testing.T, args ...string) (status int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	root := command()
	root.SetOut(&errs)
	status = cli.Run(ctx, root, args, &errs)
	return status, errs.String()
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := t.TempDir()
	p := start(t, "--listen", "127.0.0.1:0", "--state-dir", dir)
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "manager.db"), bytes.Repeat([]byte("x"), 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--nope"}, 2, "unknown flag: --nope"},
		{[]string{"extra"}, 2, "extra"},
		{[]string{"--listen", "nonsense"}, 2, `--listen "nonsense"`},
		{[]string{"--listen", busy.Addr().String(), "--state-dir", "none"}, 1, "another program listens there"},
		{[]string{"--listen", "192.0.2.1:6320", "--insecure", "--state-dir", "none"}, 1, "does not have the address"},
		{[]string{"--health-interval", "1ms"}, 2, "--health-interval 1ms is too short"},
		{[]string{"--health-interval", "soon"}, 2, "--health-interval"},
		{[]string{"--quarantine", "-1s"}, 2, "--quarantine"},
		{[]string{"--max-claims", "0"}, 2, "--max-claims 0"},
		{[]string{"--gossip", "maybe"}, 2, `--gossip "maybe"`},
		{[]string{"--gossip-listen", "0.0.0.0:0"}, 2, "--gossip-key"},
		{[]string{"--gossip-key", "/nonexistent/key"}, 1, "/nonexistent/key"},
		{[]string{"--log-level", "loud"}, 2, `--log-level "loud"`},
		{[]string{"--listen", "127.0.0.1:0", "--state-dir", dir}, 1, "in use by another manager"},
		{[]string{"--listen", "127.0.0.1:0", "--state-dir", damaged}, 1, "is damaged"},
		{[]string{"--listen", "127.0.0.1:0", "--state-dir", damaged}, 1, "with --repair"},
		{[]string{"--repair", "--state-dir", damaged}, 1, "neither it nor its copy"},
		{[]string{"--repair", "--state-dir", "/nonexistent/state"}, 1, "/nonexistent/state"},
		{[]string{"--repair", "--store", "etcd://127.0.0.1:1"}, 2, "--repair"},
		{[]string{"--store", "nonsense"}, 2, `--store: "nonsense"`},
		{[]string{"--store", "etcd://127.0.0.1:1", "--state-dir", dir}, 2, "two places"},
		{[]string{"--store", "etcd://192.0.2.1:2379"}, 2, "in the clear"},
		{[]string{"--store", "etcd://127.0.0.1:1", "--listen", "0.0.0.0:6320", "--insecure"}, 2, "--advertise"},
		{[]string{"--store", "etcd://127.0.0.1:1", "--advertise", "nonsense"}, 2, "--advertise"},
		{[]string{"--store", "etcd://127.0.0.1:1", "--store-ca", "ca.crt"}, 2, "etcds://"},
		{[]string{"--store", "etcds://127.0.0.1:1", "--store-cert", "a.crt"}, 2, "--store-key"},
		{[]string{"--store", "etcds://127.0.0.1:1", "--store-ca", "/nonexistent/ca.crt"}, 1, "/nonexistent/ca.crt"},
		{[]string{"--advertise", "127.0.0.1:1"}, 2, "belongs to --store"},
		{[]string{"--tls-cert", "a.crt"}, 2, "--tls-key"},
		{[]string{"--tls-cert", "/nonexistent/a.crt", "--tls-key", "/nonexistent/a.key", "--tls-ca", "/nonexistent/ca.crt"}, 1, "/nonexistent/a.crt"},
	} {
		status, errs := run2(t, tc.args...)
		if status != tc.status || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: status %d, want %d and %q; printed\n%s", tc.args, status, tc.status, tc.want, errs)
		}
	}
	t.Setenv("ERNIC_HEALTH_INTERVAL", "soon")
	if status, errs := run2(t); status != 2 || !strings.Contains(errs, "ERNIC_HEALTH_INTERVAL") {
		t.Errorf("status %d, %s", status, errs)
	}
	p.end(syscall.SIGTERM)
}

// TestI4_ADamagedStateIsRepairedFromItsCopy damages the file of a manager that was killed, and lets workers find the one
// that is started on what was saved.
func TestI4_ADamagedStateIsRepairedFromItsCopy(t *testing.T) {
	dir, at := t.TempDir(), ownAddress()
	args := []string{"--listen", at, "--state-dir", dir, "--health-interval", "2s"}
	p := start(t, args...)
	w := worker(t, at, "claimer")
	other := worker(t, at, "other")
	eventually(t, "the registrations", func() bool { return registered(w) && registered(other) })
	id, _ := w.NodeID()
	for i := range 50 {
		if err := w.Claim(address(i), ernicv1.ClaimSource_CLAIM_SOURCE_IP); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the claims", func() bool { return acknowledged(w) == 50 })
	p.end(syscall.SIGTERM)
	// The first start copied a mesh without nodes. The next one copies all of that.
	backup := filepath.Join(dir, "manager.db.backup")
	if err := os.Remove(backup); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	p = start(t, args...)
	eventually(t, "the copy", func() bool { _, err := os.Stat(backup); return err == nil })
	p.end(syscall.SIGKILL)
	path := filepath.Join(dir, "manager.db")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 0x55
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, errs := run2(t, args...); status != 1 || !strings.Contains(errs, "is damaged") || !strings.Contains(errs, "--repair") {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, out := run2(t, "--repair", "--state-dir", dir); status != 0 || !strings.Contains(out, "repaired: 2 nodes and 50 claims, 52 of them from its copy") {
		t.Errorf("status %d, %s", status, out)
	}
	if status, out := run2(t, "--repair", "--state-dir", dir); status != 0 || !strings.Contains(out, "is sound") {
		t.Errorf("status %d, %s", status, out)
	}
	start(t, args...)
	eventually(t, "the workers", func() bool { return registered(w) && acknowledged(w) == 50 && registered(other) })
	if got, _ := w.NodeID(); got != id {
		t.Errorf("node %d is node %d", id, got)
	}
	eventually(t, "the routes", func() bool { got, ok := other.Resolve(address(49)); return ok && got == id })
}

func TestMetricsAreShownAtTheAddressNamed(t *testing.T) {
	at := strings.Replace(ownAddress(), ":6320", ":9841", 1)
	p := start(t, "--listen", "127.0.0.1:0", "--state-dir", "none", "--metrics-listen", at)
	w := worker(t, p.address, "w")
	eventually(t, "the registration", func() bool { return registered(w) })
	resp, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), "ernic_manager_nodes 1\n") || !strings.Contains(string(text), "ernic_manager_node_joined_total 1\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	if status, _ := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d:\n%s", status, p.text())
	}
	if status, errs := run2(t, "--metrics-listen", "192.0.2.1:1"); status != 2 || !strings.Contains(errs, "--metrics-listen") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs a real etcd for a test: one member, in a directory of the test, on a loopback address that nobody
// else uses. The program is that of the machine's path; where there is none, that of Debian's package etcd-server is
// unpacked into the user's cache, which needs no rights and starts no service.
package etcdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab/child"
)

// startTimeout is how long etcd may take to answer, on a machine that is busy.
const startTimeout = time.Minute

// Server is an etcd that may or may not run.
type Server struct {
	t       testing.TB
	program string
	dir     string
	// Endpoint is the host:port that clients connect to.
	Endpoint string
	peers    string

	cmd    *exec.Cmd
	exited chan struct{}
	log    logBuffer
}

// logBuffer keeps what a process wrote.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Address returns a loopback address with a port that no other test uses: of the 2^24 addresses of the machine's own
// network every call takes one by chance, so that the port can be given up and taken again.
func Address(port int) string {
	ip := net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254)))
	return net.JoinHostPort(ip.String(), fmt.Sprint(port))
}

// Start starts an etcd that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	client := Address(2379)
	host, _, _ := net.SplitHostPort(client)
	s := &Server{t: t, program: program, dir: t.TempDir(), Endpoint: client, peers: net.JoinHostPort(host, "2380")}
	t.Cleanup(s.Kill)
	s.Start()
	return s
}

// Start starts it again after Kill, with the data that it had, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	client, peers := "http://"+s.Endpoint, "http://"+s.peers
	s.cmd = exec.Command(s.program,
		"--data-dir", filepath.Join(s.dir, "data"), "--name", "test",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "test="+peers,
		"--heartbeat-interval", "50", "--election-timeout", "500")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := child.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func(c *exec.Cmd) {
		defer close(exited)
		_ = c.Wait()
	}(s.cmd)
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", s.Endpoint, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-exited:
			s.t.Fatalf("etcd ended:\n%s", s.log.String())
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("etcd does not listen:\n%s", s.log.String())
		}
	}
}

// Kill ends it at once, if it runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// Freeze holds it until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets it go on after Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Program returns the path of an etcd.
func Program() (string, error) {
	if path, err := exec.LookPath("etcd"); err == nil {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("etcd is not installed, and there is no place to unpack it: %w", err)
	}
	dir := filepath.Join(cache, "ernic", "etcd")
	path := filepath.Join(dir, "usr", "bin", "etcd")
	if err := fetched(dir, path); err != nil {
		return "", fmt.Errorf("etcd is not installed (package etcd-server), and fetching it failed: %w", err)
	}
	return path, nil
}

// fetched sees to it that path is there. The tests of several packages run at the same time, and apt refuses the second
// of two that fetch its lists: one of them fetches, the others wait.
func fetched(dir, path string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return unpack(dir)
}

// unpack fetches Debian's package and unpacks it as dir.
func unpack(dir string) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(dir), "etcd-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err = download(ctx, work); err != nil {
		// The lists of packages may never have been fetched, which only root can do.
		if os.Getuid() != 0 {
			return err
		}
		if refresh := run(ctx, work, "apt-get", "update"); refresh != nil {
			return errors.Join(err, refresh)
		}
		if err = download(ctx, work); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(work, "etcd-server_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download left %d packages, %w", len(packages), err)
	}
	root := filepath.Join(work, "root")
	if err := run(ctx, work, "dpkg-deb", "-x", packages[0], root); err != nil {
		return err
	}
	return os.Rename(root, dir)
}

func download(ctx context.Context, dir string) error {
	return run(ctx, dir, "apt-get", "download", "etcd-server")
}

func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

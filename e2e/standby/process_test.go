// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come about.
const patience = time.Minute

// bin is the directory with the programs.
var bin string

var built = flag.String("bin", "", "directory with the built programs (make build); default: they are built")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if bin = *built; bin != "" {
		return m.Run()
	}
	var err error
	if bin, err = os.MkdirTemp("", "ernic-standby-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	args := []string{"build", "-o", bin, "../../cmd/ernic-manager", "../../cmd/ernic-worker", "../../cmd/ernictl"}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// log keeps what a process writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// process is one of the programs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  log
	done chan struct{}
}

func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(bin, program), append([]string{"--log-format", "json"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			text := p.log.String()
			t.Logf("log of %s %v:\n%s", program, args, text[max(0, len(text)-6000):])
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// end sends a signal that ends the process and waits for that.
func (p *process) end(s syscall.Signal) {
	p.t.Helper()
	p.signal(s)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("a process does not end")
	}
}

// ctl runs ernictl and returns what it printed, and what it complained of.
func ctl(args ...string) (out []byte, complaint string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "ernictl"), append([]string{"--timeout", "5s"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.Bytes(), stderr.String(), err
}

// ask runs ernictl and decodes its JSON. It returns false if the command fails, as it may while nobody leads.
func ask[T any](t *testing.T, args ...string) (items []T, ok bool) {
	t.Helper()
	out, _, err := ctl(append(args, "-o", "json")...)
	if err != nil {
		return nil, false
	}
	if err := json.Unmarshal(out, &items); err != nil {
		t.Fatalf("ernictl %v: %v\n%s", args, err, out)
	}
	return items, true
}

// eventually waits until ok, and returns how long that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < patience {
		if ok() {
			return time.Since(begin).Round(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not come about within %s", what, patience)
	return 0
}

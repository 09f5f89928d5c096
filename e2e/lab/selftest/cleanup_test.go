// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ernic-dev/ernic/e2e/lab"
	"github.com/ernic-dev/ernic/e2e/lab/guest"
	"github.com/ernic-dev/ernic/e2e/lab/image"
)

// victimVariable makes this test binary the process that is killed: it opens a
// lab, reports what it has made, and waits. With the value "booted" one of its
// guests has booted by then.
const victimVariable = "ERNIC_TEST_LAB_VICTIM"

// made is what the victim reports.
type made struct {
	Dir       string
	Processes []int
	Network   uint64 // inode of the name space
}

func TestMain(m *testing.M) {
	if v := os.Getenv(victimVariable); v != "" {
		if err := victim(context.Background(), v == "booted"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// victim runs two programs and two guests.
func victim(ctx context.Context, booted bool) error {
	l, err := lab.New(ctx, lab.Options{Name: "victim", Taps: 2, Progress: image.NewProgress(os.Stderr)})
	if err != nil {
		return err
	}
	var pids []int
	for name, outside := range map[string]bool{"insider": false, "outsider": true} {
		p, err := l.Start(lab.Program{Name: name, Path: "sleep", Args: []string{"600"}, Outside: outside})
		if err != nil {
			return err
		}
		pids = append(pids, p.PID())
	}
	if booted {
		guests, err := l.Boot(ctx, guest.Config{Name: "v1"})
		if err != nil {
			return err
		}
		pids = append(pids, guests[0].PID())
	}
	// This one is in the middle of its boot when the end comes.
	late, err := guest.Start(guest.Config{Artifacts: l.Artifacts, Dir: l.Dir(), Name: "v2", Accel: l.Accel})
	if err != nil {
		return err
	}
	pids = append(pids, late.PID())
	b, err := json.Marshal(made{l.Dir(), pids, l.Network.Inode()})
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	time.Sleep(10 * time.Minute)
	return nil
}

func TestNothingIsLeftOfAKilledLab(t *testing.T) {
	for sig, state := range map[syscall.Signal]string{syscall.SIGINT: "booting", syscall.SIGTERM: "booting", syscall.SIGKILL: "booted"} {
		t.Run(sig.String(), func(t *testing.T) {
			m, cmd := startVictim(t, state)
			for _, pid := range m.Processes {
				if !running(pid) {
					t.Errorf("process %d of the lab does not run before the kill", pid)
				}
			}
			if !spaceLives(t, m.Network) {
				t.Error("the network is not there before the kill")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var x *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &x) || x.Sys().(syscall.WaitStatus).Signal() != sig {
				t.Errorf("the process ended with %v, want %v", err, sig)
			}
			for _, pid := range m.Processes {
				eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !running(pid) })
			}
			eventually(t, "the end of the network", func() bool { return !spaceLives(t, m.Network) })
			if sig == syscall.SIGKILL {
				// Nobody was left to remove it. The next lab does.
				l, err := lab.New(t.Context(), lab.Options{Name: "next"})
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(m.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the run directory %s is left: %v", m.Dir, err)
			}
			mounts, err := os.ReadFile("/proc/self/mounts")
			if err != nil {
				t.Fatal(err)
			}
			cache, err := image.Dir()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(mounts)) {
				if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], cache+"/") {
					t.Errorf("a mount is left: %s", line)
				}
			}
		})
	}
}

func startVictim(t *testing.T, state string) (m made, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), victimVariable+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		cmd.Process.Kill()
		t.Fatalf("the lab that is to be killed did not come up: %v %v", err, cmd.Wait())
	}
	return m, cmd
}

func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// spaceLives tells whether any process is in a network name space.
func spaceLives(t *testing.T, inode uint64) bool {
	t.Helper()
	spaces, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("net:[%d]", inode)
	for _, s := range spaces {
		if got, err := os.Readlink(s); err == nil && got == want {
			return true
		}
	}
	return false
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited in vain for %s", what)
			return
		}
	}
}

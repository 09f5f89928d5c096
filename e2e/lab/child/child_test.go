// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentVariable makes this test binary a parent that starts a child and waits.
const parentVariable = "ERNIC_TEST_CHILD_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		cmd := exec.Command("sleep", "600")
		if err := Start(cmd); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(cmd.Process.Pid)
		// Wait never returns before the child has gone, and the child before
		// this process.
		_ = cmd.Wait()
		return
	}
	os.Exit(m.Run())
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0], "-test.run=^$")
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatalf("the child %d does not run", pid)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the parent ended by itself")
	}
	for end := time.Now().Add(time.Minute); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the child %d outlived its parent", pid)
		}
	}
}

func TestCloseKillsChildren(t *testing.T) {
	th, err := NewThread(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := th.Start(cmd); err != nil {
		t.Fatal(err)
	}
	th.Close()
	var x *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &x) || x.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child ended with %v, want SIGKILL", err)
	}
	if err := th.Start(exec.Command("true")); !errors.Is(err, ErrClosed) {
		t.Errorf("start on a closed thread: %v, want %v", err, ErrClosed)
	}
	th.Close()
}

func TestSetupErrorComesBack(t *testing.T) {
	want := errors.New("no such place")
	if _, err := NewThread(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// alive tells whether pid runs. A zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// The main thread is the one that Go cannot end.
func TestThreadIsNeverTheMainOne(t *testing.T) {
	for range 200 {
		th, err := NewThread(func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := th.Do(func() error {
			if syscall.Gettid() == syscall.Getpid() {
				return errors.New("children would outlive this thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		th.Close()
	}
}

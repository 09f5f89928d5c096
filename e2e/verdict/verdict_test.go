// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// failing makes this test binary one whose tests fail.
const failing = "ERNIC_TEST_VERDICT_FAILING"

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv(failing) != "" {
		Summarize(os.Stderr)
	}
	os.Exit(code)
}

// TestTheReasonsOfAFailureAreTheLastLines runs the tests below in a process in which they fail.
func TestTheReasonsOfAFailureAreTheLastLines(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestInner", "-test.v")
	cmd.Env = append(os.Environ(), failing+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err == nil {
		t.Fatalf("the tests passed:\n%s", out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`FAILED TestInnerFatal at "a fault": first 1; a worker ended: its log`,
		`FAILED TestInnerWithoutAReason: no reason was given`,
	}
	if got := lines[max(0, len(lines)-len(want)):]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the last lines are\n%s\nwant\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out.String())
	}
	if strings.Contains(out.String(), "went on") {
		t.Errorf("a fatal error ended nothing:\n%s", out.String())
	}
}

func TestInnerFatal(t *testing.T) {
	v := New(t)
	v.Cleanup(func() { v.Log("much that is printed later") })
	if os.Getenv(failing) == "" {
		return
	}
	v.Doing("a fault")
	v.Error("first", 1)
	v.Fatalf("a worker ended:\n%s", "its log")
	v.Log("went on")
}

func TestInnerWithoutAReason(t *testing.T) {
	if New(t); os.Getenv(failing) != "" {
		t.Fail()
	}
}

func TestInnerThatPasses(t *testing.T) {
	calls := 0
	v := New(t)
	v.Eventually("the third call", func() bool { calls++; return calls == 3 })
	v.Must(nil)
}

// SPDX-License-Identifier: Apache-2.0

// Package verdict says at the very end of a run which tests failed, at what and why. What a test of several processes prints
// when it fails is long, and the reason is far from its end.
package verdict

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long Eventually waits: so long that only what never comes about is missed, however busy the machine.
const Patience = time.Minute

// longest is how much of a reason, in bytes, is repeated.
const longest = 600

// T is a test that remembers why it failed.
type T struct {
	*testing.T

	mu      sync.Mutex // guards what follows
	doing   string
	reasons []string
}

var (
	mu     sync.Mutex // guards failed
	failed []string
)

// New returns t with a memory. It is to be called before anything else registers a cleanup.
func New(t *testing.T) *T {
	v := &T{T: t}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		line := v.line()
		t.Log(line)
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, line)
	})
	return v
}

// Summarize writes one line for each test that has failed so far.
func Summarize(w io.Writer) {
	mu.Lock()
	defer mu.Unlock()
	for _, line := range failed {
		fmt.Fprintln(w, line)
	}
}

// Doing says what the test does from now on.
func (t *T) Doing(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doing = what
}

// line is the verdict on a test that failed.
func (t *T) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	during := ""
	if t.doing != "" {
		during = fmt.Sprintf(" at %q", t.doing)
	}
	why := "no reason was given"
	if len(t.reasons) > 0 {
		why = strings.Join(t.reasons, "; ")
	}
	return fmt.Sprintf("FAILED %s%s: %s", t.Name(), during, why)
}

func (t *T) because(reason string) {
	reason = strings.Join(strings.Fields(reason), " ")
	if len(reason) > longest {
		reason = reason[:longest] + " ..."
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons = append(t.reasons, reason)
}

// Error is testing.T.Error.
func (t *T) Error(args ...any) {
	t.Helper()
	t.because(fmt.Sprintln(args...))
	t.T.Error(args...)
}

// Errorf is testing.T.Errorf.
func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.because(fmt.Sprintf(format, args...))
	t.T.Errorf(format, args...)
}

// Fatal is testing.T.Fatal.
func (t *T) Fatal(args ...any) {
	t.Helper()
	t.because(fmt.Sprintln(args...))
	t.T.Fatal(args...)
}

// Fatalf is testing.T.Fatalf.
func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.because(fmt.Sprintf(format, args...))
	t.T.Fatalf(format, args...)
}

// Must ends the test if there is an error.
func (t *T) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until ok returns true, and returns how long that took. A test that waits in vain ends.
func (t *T) Eventually(what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > Patience {
			t.Fatalf("%s did not come about within %s", what, Patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin).Round(time.Millisecond)
}

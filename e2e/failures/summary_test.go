// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const verbose = `=== RUN   TestA
=== RUN   TestA/one
    a_test.go:12: a remark of one
=== RUN   TestA/two
    a_test.go:14: guest g: the command failed
        stdout: 17
=== NAME  TestA/one
    a_test.go:13: one is wrong
--- FAIL: TestA (2.00s)
    --- FAIL: TestA/one (1.00s)
    --- FAIL: TestA/two (1.00s)
=== RUN   TestB
    b_test.go:3: fine
--- PASS: TestB (0.00s)
FAIL
logs are in /tmp/logs
        much more of them
FAIL	example.org/a	3.1s
`

const plain = `--- FAIL: TestA (2.00s)
    --- FAIL: TestA/one (1.00s)
        a_test.go:13: one is wrong
    --- FAIL: TestA/two (1.00s)
        a_test.go:14: guest g: the command failed
            stdout: 17
FAIL
FAIL	example.org/a	3.1s
ok  	example.org/b	0.1s
`

func run(t *testing.T, text string) (summary string) {
	t.Helper()
	var out bytes.Buffer
	if err := follow(strings.NewReader(text), &out); err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(out.String(), text)
	if !ok {
		t.Fatalf("the copy is\n%s", out.String())
	}
	return rest
}

func TestSummaryNamesWhatFailedAndWhy(t *testing.T) {
	const tests = "\nFAILED, 2 in all:\n  TestA/one: %sa_test.go:13: one is wrong\n  TestA/two: a_test.go:14: guest g: the command failed\n      stdout: 17\n"
	for name, c := range map[string]struct{ text, want string }{
		"with -v":    {verbose, fmt.Sprintf(tests, "a_test.go:12: a remark of one\n      ")},
		"without":    {plain, fmt.Sprintf(tests, "")},
		"no failure": {"=== RUN   TestB\n    b_test.go:3: fine\n--- PASS: TestB (0.00s)\nPASS\nok  \tx\t0.1s\n", ""},
		"a panic": {"=== RUN   TestB\npanic: no more [recovered]\n\ngoroutine 7 [running]:\n",
			"\nFAILED, 1 in all:\n  TestB: panic: no more [recovered]\n"},
		"no build": {"# example.org/c\nc.go:1:1: no\nFAIL\texample.org/c [build failed]\n",
			"\nFAILED, 1 in all:\n  FAIL\texample.org/c [build failed]\n"},
		"no end": {"--- FAIL: TestA (1.00s)", "\nFAILED, 1 in all:\n  TestA: \n"},
	} {
		if got := run(t, c.text); got != c.want {
			t.Errorf("%s: the summary is\n%q, want\n%q", name, got, c.want)
		}
	}
}

func TestSummaryIsShortHoweverMuchFails(t *testing.T) {
	for _, tests := range []int{1, 3, 40} {
		var b strings.Builder
		for i := range tests {
			fmt.Fprintf(&b, "=== RUN   Test%d\n", i)
			for range 100 {
				fmt.Fprintf(&b, "    x_test.go:1: %s\n", strings.Repeat("long ", 1000))
			}
			fmt.Fprintf(&b, "--- FAIL: Test%d (0.00s)\n", i)
		}
		s := run(t, b.String())
		if n := strings.Count(s, "\n"); n > wanted+3 || len(s) > (wanted+3)*(longest+40) {
			t.Errorf("of %d failures: %d lines, %d bytes", tests, n, len(s))
		}
	}
}

func FuzzSummary(f *testing.F) {
	f.Add(verbose)
	f.Add(plain)
	f.Fuzz(func(t *testing.T, text string) {
		if s := run(t, text); strings.Count(s, "\n") > wanted+4 {
			t.Errorf("a summary of %d lines", strings.Count(s, "\n"))
		}
	})
}

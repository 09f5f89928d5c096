// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	wanted  = 12  // lines of the summary
	longest = 300 // bytes of a line in it
	kept    = 40  // lines of one test
)

// failure is a test, or a package, that failed.
type failure struct {
	name  string
	lines []string
}

// summary reads the output of go test, with -v or without. A test's messages come
// before its verdict with -v, behind a line that names the test, and after it
// without.
type summary struct {
	failures []failure
	said     map[string][]string // by test, with -v
	current  string              // test whose messages come
	verdict  bool                // they belong to the last failure
}

var (
	// Lines that tell whose messages follow, in front of which a mark may stand.
	naming = regexp.MustCompile(`^\x16?=== (RUN|CONT|NAME|PAUSE)\s+(\S*)`)
	result = regexp.MustCompile(`^\x16?\s*--- (FAIL|PASS|SKIP): (\S+) \(`)
	// A message starts with the place of its call; its further lines are indented
	// deeper.
	message = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
	broken  = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|FAIL\t.*\[)`)
)

func (s *summary) read(line string) {
	line = strings.TrimRight(line, "\r\n")
	if m := naming.FindStringSubmatch(line); m != nil {
		s.current, s.verdict = m[2], false
		return
	}
	if m := result.FindStringSubmatch(line); m != nil {
		s.current, s.verdict = m[2], m[1] == "FAIL"
		if s.verdict {
			s.failures = append(s.failures, failure{m[2], s.said[m[2]]})
		}
		delete(s.said, m[2])
		return
	}
	if broken.MatchString(line) {
		f := failure{lines: []string{line}}
		if !strings.HasPrefix(line, "FAIL") { // that is of a package
			f.name = s.current
		}
		s.failures = append(s.failures, f)
		s.verdict = false
		return
	}
	if !message.MatchString(line) && !strings.HasPrefix(line, "        ") {
		if !strings.HasPrefix(line, " ") {
			s.verdict = false
		}
		return
	}
	if s.verdict {
		f := &s.failures[len(s.failures)-1]
		f.lines = keep(f.lines, line)
		return
	}
	if s.said == nil {
		s.said = map[string][]string{}
	}
	s.said[s.current] = keep(s.said[s.current], line)
}

// keep appends a line, without its indentation, to the last ones of a test.
func keep(lines []string, line string) []string {
	if line = strings.TrimSpace(line); line == "" {
		return lines
	}
	if len(line) > longest {
		line = line[:longest] + " ..."
	}
	if len(lines) == kept {
		lines = lines[1:]
	}
	return append(lines, line)
}

// text is the summary: each failure by name with the end of what it said, in so
// many lines that all together are few.
func (s *summary) text() string {
	var list []failure
	for _, f := range s.failures {
		// A test fails with its subtests and has nothing to say of itself.
		if len(f.lines) > 0 || !s.hasSubtest(f.name) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nFAILED, %d in all:\n", len(list))
	for i, f := range list {
		if i == wanted {
			fmt.Fprintf(&b, "  and %d more\n", len(list)-i)
			break
		}
		if f.name != "" {
			f.name += ": "
		}
		most := max(1, wanted/len(list))
		fmt.Fprintf(&b, "  %s%s\n", f.name, strings.Join(ends(f.lines, most), "\n      "))
	}
	return b.String()
}

func (s *summary) hasSubtest(name string) bool {
	for _, f := range s.failures {
		if strings.HasPrefix(f.name, name+"/") {
			return true
		}
	}
	return false
}

// ends returns n lines: the first, which says what was done, and the last ones,
// which say how it went.
func ends(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append([]string{lines[0]}, lines[len(lines)-n+1:]...)
}

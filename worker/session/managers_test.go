// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"strings"
	"testing"
)

func TestManagersAreTriedInTurnAndALeaderThatIsNamedFirst(t *testing.T) {
	m := managers{list: []string{"a:1", "b:1", "c:1"}}
	var trace []string
	try := func(leader string) {
		at := m.current()
		if m.failed(leader) {
			at += " at once"
		}
		trace = append(trace, at)
	}
	try("")    // b is next
	try("")    // c is next
	try("")    // all were tried: a pause, then a
	try("c:1") // a names c
	try("a:1") // c names a, which is not believed: on to a
	try("x:9") // a names one that is not in the list
	try("")    // it does not answer: on with the list where it was left
	try("")
	m.answered()
	try("")
	want := []string{"a:1 at once", "b:1 at once", "c:1", "a:1 at once", "c:1 at once", "a:1 at once", "x:9 at once", "a:1", "b:1 at once"}
	if !slices.Equal(trace, want) {
		t.Errorf("tried\n%s\nwant\n%s", strings.Join(trace, ", "), strings.Join(want, ", "))
	}
}

func TestOneManagerIsTriedWithAPauseEachTime(t *testing.T) {
	m := managers{list: []string{"a:1"}}
	for range 3 {
		if m.current() != "a:1" || m.failed("") {
			t.Fatalf("at %s without a pause", m.current())
		}
	}
	if !m.failed("b:1") || m.current() != "b:1" || m.failed("a:1") || m.current() != "a:1" {
		t.Fatalf("at %s after it named another", m.current())
	}
}

func TestManagerAddrsAreCompletedAndKeptOnce(t *testing.T) {
	got, err := ManagerAddrs("a, b:1,fd00::1,a:6320")
	if want := []string{"a:6320", "b:1", "[fd00::1]:6320"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range []string{"", ",", "a,", "a,,b"} {
		if got, err := ManagerAddrs(in); err == nil {
			t.Errorf("%q was taken for %v", in, got)
		}
	}
}

func TestAnAddressWithoutAHostIsThatOfTheManager(t *testing.T) {
	for in, want := range map[string]string{":7": "[fd00::1]:7", "h:7": "h:7", "x": "x"} {
		if got := onHost(in, "[fd00::1]:6320"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

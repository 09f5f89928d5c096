// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run keeps the results of one run and returns the document.
func run(t *testing.T, path, day string, fill func(*Report)) string {
	t.Helper()
	var r Report
	fill(&r)
	r.Stamp(day, "v-"+day)
	if err := r.Keep(path); err != nil {
		t.Fatal(err)
	}
	return r.Markdown("# Head\n")
}

func pass(group, name, note string) Result {
	return Result{Group: group, Name: name, Note: note, Took: 1500 * time.Millisecond}
}

func TestReport_ALaterRunReplacesItsCasesAndLeavesTheOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	run(t, path, "2026-01-01", func(r *Report) {
		r.Add(pass("a", "one", "old"))
		r.Add(Result{Group: "a", Name: "two", Failed: true, Note: "broken"})
		r.Add(Result{Group: "b", Name: "one", Skipped: true})
		r.Remark("b", "Of the first run.")
	})
	got := run(t, path, "2026-01-02", func(r *Report) {
		r.Add(pass("a", "three", ""))
		r.Add(pass("a", "two", "mended | now"))
	})
	// Twice 1.5 s and 1.5 s of the run before are 4.5 s.
	want := `# Head

## Summary

| Group | pass | skip | fail | time | run | under test |
|---|---|---|---|---|---|---|
| a | 3 | 0 | 0 | 5s | 2026-01-01, 2026-01-02 | v-2026-01-01, v-2026-01-02 |
| b | 0 | 1 | 0 | 0s | 2026-01-01 | v-2026-01-01 |

## a

| Case | Result | Note | s |
|---|---|---|---|
| one | pass | old | 1.5 |
| two | pass | mended \| now | 1.5 |
| three | pass |  | 1.5 |

## b

| Case | Result | Note | s |
|---|---|---|---|
| one | skip |  | 0.0 |

Of the first run.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReport_IsKeptAgainAndAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	run(t, path, "2026-01-01", func(r *Report) { r.Add(pass("a", "one", "")) })
	var r Report
	for _, name := range []string{"two", "three"} {
		r.Add(pass("a", name, ""))
		r.Stamp("2026-01-02", "new")
		if err := r.Keep(path); err != nil {
			t.Fatal(err)
		}
	}
	got := r.Markdown("")
	for _, s := range []string{"| a | 3 | 0 | 0 | 5s | 2026-01-01, 2026-01-02 | new, v-2026-01-01 |", "| one | pass |", "| two | pass |", "| three | pass |"} {
		if strings.Count(got, s) != 1 {
			t.Errorf("not once %q in\n%s", s, got)
		}
	}
}

func TestReport_ARenewedGroupForgetsCasesThatAreNoMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	run(t, path, "2026-01-01", func(r *Report) {
		r.Add(pass("a", "gone", ""))
		r.Add(pass("b", "stays", ""))
		r.Remark("a", "Gone too.")
	})
	got := run(t, path, "2026-01-02", func(r *Report) {
		r.Renew("a")
		r.Add(pass("a", "new", ""))
	})
	if strings.Contains(got, "gone") || strings.Contains(got, "Gone") {
		t.Errorf("what is no more is still there:\n%s", got)
	}
	for _, s := range []string{"| new | pass |", "| stays | pass |"} {
		if !strings.Contains(got, s) {
			t.Errorf("no %q in\n%s", s, got)
		}
	}
}

func TestReport_AFailureIsShownAndCounted(t *testing.T) {
	got := run(t, filepath.Join(t.TempDir(), "results.json"), "2026-01-01", func(r *Report) {
		r.Add(Result{Group: "a", Name: "one", Failed: true, Skipped: true})
	})
	for _, s := range []string{"| a | 0 | 0 | 1 |", "| one | **fail** |"} {
		if !strings.Contains(got, s) {
			t.Errorf("no %q in\n%s", s, got)
		}
	}
}

func TestReport_AFileThatIsNoResultsIsRefusedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(path, []byte("# Not this"), 0o600); err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := r.Keep(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "# Not this" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

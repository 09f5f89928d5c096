// SPDX-License-Identifier: Apache-2.0

// Package conformance keeps what conformance cases found and writes it as a
// Markdown document. Results may be of several runs: a run of a part of the
// cases replaces the results of these and leaves the others.
package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Result is one line of the report.
type Result struct {
	Group, Name string
	Failed      bool
	Skipped     bool // a suite of others skipped it; Note says why
	Note        string
	Took        time.Duration
	Day         string // of the run, as 2006-01-02
	Version     string // of what was under test
}

func (r Result) verdict() string {
	switch {
	case r.Failed:
		return "**fail**"
	case r.Skipped:
		return "skip"
	}
	return "pass"
}

// Report is what the cases found. The zero value is empty. It is safe for use by
// several goroutines.
type Report struct {
	mu sync.Mutex // guards all below
	// list is what this run found, until merge adds what others found.
	list []Result
	// remarks stand below the table of a group.
	remarks map[string][]string
	// whole are groups of which this run has all there is.
	whole []string
}

// Add adds a result.
func (r *Report) Add(e Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

// Stamp says of the results without a day of which day and version they are.
func (r *Report) Stamp(day, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if e := &r.list[i]; e.Day == "" {
			e.Day, e.Version = day, version
		}
	}
}

// Renew says that this run does all of a group: what earlier runs know of it is
// gone then, and not only the cases of the same name.
func (r *Report) Renew(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = append(r.whole, group)
}

// Remark puts a text below the table of a group.
func (r *Report) Remark(group, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.remarks == nil {
		r.remarks = map[string][]string{}
	}
	r.remarks[group] = append(r.remarks[group], text)
}

// merge puts what earlier runs found around what this one did.
func (r *Report) merge(old stored) {
	type name struct{ group, name string }
	fresh := map[name]Result{}
	for _, e := range r.list {
		fresh[name{e.Group, e.Name}] = e
	}
	var list []Result
	for _, e := range old.Results {
		if now, ok := fresh[name{e.Group, e.Name}]; ok {
			list = append(list, now)
			delete(fresh, name{e.Group, e.Name})
		} else if !slices.Contains(r.whole, e.Group) {
			list = append(list, e)
		}
	}
	for _, e := range r.list {
		if _, ok := fresh[name{e.Group, e.Name}]; ok {
			list = append(list, e)
		}
	}
	r.list = list
	for g, texts := range old.Remarks {
		if _, ok := r.remarks[g]; !ok && !slices.Contains(r.whole, g) {
			if r.remarks == nil {
				r.remarks = map[string][]string{}
			}
			r.remarks[g] = texts
		}
	}
}

// stored is the file of Keep.
type stored struct {
	Results []Result
	Remarks map[string][]string
}

// Keep merges the file at path into r, if there is one, and writes all to it.
func (r *Report) Keep(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old stored
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(b, &old); err != nil {
			return fmt.Errorf("results of earlier runs, %s: %w", path, err)
		}
	}
	r.merge(old)
	if b, err = json.MarshalIndent(stored{r.list, r.remarks}, "", "\t"); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// groups in the order they first appear.
func (r *Report) groups() []string {
	var names []string
	for _, e := range r.list {
		if !slices.Contains(names, e.Group) {
			names = append(names, e.Group)
		}
	}
	return names
}

// Markdown is the document: the head, a summary of the groups, and a table for
// each.
func (r *Report) Markdown(head string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("\n## Summary\n\n| Group | pass | skip | fail | time | run | under test |\n|---|---|---|---|---|---|---|\n")
	for _, g := range r.groups() {
		count := map[string]int{}
		var took time.Duration
		var days, versions []string
		for _, e := range r.list {
			if e.Group == g {
				count[e.verdict()]++
				took += e.Took
				days, versions = append(days, e.Day), append(versions, e.Version)
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %s | %s |\n", g, count["pass"], count["skip"], count["**fail**"],
			took.Round(time.Second), distinct(days), distinct(versions))
	}
	for _, g := range r.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| Case | Result | Note | s |\n|---|---|---|---|\n", g)
		for _, e := range r.list {
			if e.Group == g {
				fmt.Fprintf(&b, "| %s | %s | %s | %.1f |\n", Cell(e.Name), e.verdict(), Cell(e.Note), e.Took.Seconds())
			}
		}
		for _, text := range r.remarks[g] {
			b.WriteString("\n" + text + "\n")
		}
	}
	return b.String()
}

// distinct lists the different ones of some words in order.
func distinct(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

// Cell makes a cell of a Markdown table of any text.
func Cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
